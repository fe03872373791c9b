"""Whatever a body holds, a call is served or refused: no body of a caller is a defect of the function."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.shared.service.stage_fakes import World, called, echo_app, echo_body

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**400), max_value=10**400)
    | st.floats()
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(body: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all fields of a body."""
    found = []
    for name, value in body.items():
        found.append((*path, name))
        if isinstance(value, dict):
            found += places(value, (*path, name))
    return found


@given(place=st.sampled_from(places(echo_body())), value=ANY_JSON)
async def test_any_value_in_any_field(place: tuple[str, ...], value: Any) -> None:
    body = echo_body(**{".".join(place): value})
    async with called(echo_app(World())) as client:
        answer = await client.post("/v1/reward", content=json.dumps(body))
    assert answer.status_code in (200, 409, 422), answer.text


@given(body=ANY_JSON.map(json.dumps).map(str.encode) | st.binary(max_size=50))
async def test_any_body(body: bytes) -> None:
    async with called(echo_app(World())) as client:
        answer = await client.post("/v1/reward", content=body)
    assert answer.status_code == 422, answer.text
