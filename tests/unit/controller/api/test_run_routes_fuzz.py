"""Whatever is posted is a run or a 4xx: never a 500, and a refusal starts nothing."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.api.models import ApiProblem
from controller.runs.config.aliases import ALIASES
from controller.runs.config.keys import known_keys
from tests.unit.controller.api.fake_service import CONFIG, FakeService
from tests.unit.controller.api.serving import called

names = st.sampled_from([*known_keys(), *ALIASES]) | st.text(max_size=12)
numbers = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**63, 2**64, 1e308, 5e-324, -0.0])
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)
documents = st.dictionaries(names, values, max_size=4)
overrides = st.builds("{}={}".format, names, st.text(max_size=12) | numbers.map(str)) | st.text(max_size=12)


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The document over one that the parser accepts, so that single values are reached."""
    return CONFIG | document


bodies = (
    documents.map(json.dumps)
    | documents.map(complete).map(json.dumps)
    | st.fixed_dictionaries({"config": documents.map(complete), "overrides": st.lists(overrides, max_size=3)}).map(
        json.dumps
    )
    | values.map(json.dumps)
).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=80)


def post(body: bytes, *, path: str = "/v1/runs", headers: dict[str, str] | None = None) -> None:
    """Post the body and hold the answer to what every answer keeps."""

    async def once() -> None:
        service = FakeService()
        async with called(service) as client:
            response = await client.post(path, content=body, headers=headers)
        if response.status_code in (200, 201):
            assert len(service.records) == (response.status_code == 201)
        else:
            assert 400 <= response.status_code < 500, response.text
            assert ApiProblem.model_validate_json(response.content).message
            assert not service.records

    asyncio.run(once())


@settings(max_examples=80)
@given(bodies)
@example(json.dumps(CONFIG).encode())
@example(json.dumps(CONFIG | {"x" * 2**20: 1}).encode())
@example(json.dumps(CONFIG | {"actor.optim.lr": 10**400}).encode())
@example(json.dumps(CONFIG | {"trainer.total_epochs": 10**400}).encode())
@example(json.dumps({"config": CONFIG, "overrides": ["trainer.seed=0x" + "f" * 9000]}).encode())
@example(json.dumps({"config": CONFIG, "overrides": ["rollout.n=!!python/object:os.system {}"]}).encode())
@example(json.dumps({"config": CONFIG, "overrides": ["rollout.n=!!timestamp x"]}).encode())
@example(json.dumps({"config": CONFIG, "overrides": ["rollout.n=!!int x", "rollout.n=!!binary x"]}).encode())
@example(json.dumps({"config": CONFIG, "overrides": ["data.train_files={[1]: 2, ? {a: b} : c}"]}).encode())
def test_any_body_is_a_run_or_a_problem(body: bytes) -> None:
    post(body)


@settings(max_examples=25)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20), st.text(max_size=10))
def test_any_header_and_query_is_a_run_or_a_problem(key: str, query: str) -> None:
    body = json.dumps(CONFIG).encode()
    post(body, path=f"/v1/runs?dry_run={quote(query.encode('utf-8', 'replace'))}", headers={"Idempotency-Key": key})
