import httpx
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError

from controller.api.app import make_api
from controller.api.errors import MAX_PROBLEMS, MAX_TEXT, STATUSES, NotReady, add_error_handlers, describe
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.data.errors import UploadInvalid
from shared.contracts.errors import CallConflict, StageError, StoreRefused, StoreUnavailable
from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import swaps_of


def problem(field: str = "a.b", reason: str = "it is wrong") -> ConfigProblem:
    return ConfigProblem(field=field, reason=reason, suggestion="do better")


def test_every_exception_of_the_table_is_handled_by_an_application() -> None:
    app = FastAPI()
    add_error_handlers(app)
    assert set(STATUSES) <= set(app.exception_handlers)


def test_every_exception_of_the_table_is_described() -> None:
    arguments = {ConfigInvalid: [[problem()]], NotReady: [["it is early"]], RequestValidationError: [[]]}
    refused = {UploadInvalid: {"field": "body", "reason": "no", "suggestion": "yes"}}
    for kind, (status, code) in STATUSES.items():
        got_status, got = describe(
            kind(**refused[kind]) if kind in refused else kind(*arguments.get(kind, ["the message"]))
        )
        assert (got_status, got.code) == (status, code)
        assert got.retryable == (status == 503)


def test_a_defect_says_its_type_and_not_its_message() -> None:
    status, got = describe(RuntimeError("password=hunter2"))
    assert status == 500
    assert "RuntimeError" in got.message
    assert "hunter2" not in got.model_dump_json()


async def test_a_defect_is_answered_in_the_same_shape() -> None:
    service = FakeService()
    service.failure = RuntimeError("password=hunter2")
    transport = httpx.ASGITransport(
        app=make_api(service, token=None, swaps=swaps_of(service)), raise_app_exceptions=False
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        response = await client.get("/v1/runs")
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert response.headers["content-type"] == "application/problem+json"
    assert "hunter2" not in response.text


def test_a_stage_error_that_no_user_should_meet_is_a_defect() -> None:
    assert describe(StageError("inner workings"))[0] == 500


def test_details_of_a_typed_error_are_kept() -> None:
    assert describe(CallConflict("used", run="run-7"))[1].details == {"run": "run-7"}
    assert describe(StoreRefused("full", num_bytes=3))[1].details == {"num_bytes": 3}
    assert describe(StoreUnavailable("gone"))[1].details == {}


def test_one_problem_is_not_called_several() -> None:
    assert "a problem" in describe(ConfigInvalid([problem()]))[1].message
    assert "2 problems" in describe(ConfigInvalid([problem(), problem()]))[1].message


def test_hostile_problems_are_cut_and_cleaned() -> None:
    _, got = describe(ConfigInvalid([problem("\ud800" + "x" * 10**5)] * 200))
    assert len(got.problems) == MAX_PROBLEMS
    assert got.problems[0].field == "?" + "x" * (MAX_TEXT - 1)
    assert len(got.model_dump_json()) < 200_000


def test_reasons_for_not_being_ready_are_listed() -> None:
    status, got = describe(NotReady(["Redis does not answer", "no functions"]))
    assert status == 503
    assert [fault.reason for fault in got.problems] == ["Redis does not answer", "no functions"]
    assert got.message == "Redis does not answer; no functions"
