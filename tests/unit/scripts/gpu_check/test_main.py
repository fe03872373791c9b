"""The check in its small form, and how it goes on when a section does not end or cannot begin."""

import json
from pathlib import Path

import pytest

from scripts.gpu_check import main as gpu_check
from scripts.gpu_check.plan import Section, small_sections


def section(module: str, limit_s: float = 30.0) -> Section:
    return Section(module=module, shape="tiny", device="cpu", limit_s=limit_s, is_small=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_small_form_measures_every_section(dtype: str, tmp_path: Path) -> None:
    out = tmp_path / "check.json"
    assert gpu_check.main(["--small", "--dtype", dtype, "--out", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written["passed"]
    assert [each["name"] for each in written["sections"]] == [each.name for each in small_sections(dtype)]
    assert all(each["status"] == "done" and each["figures"] for each in written["sections"])
    assert list(tmp_path.iterdir()) == [out]


def test_a_section_that_does_not_end_is_killed_and_the_next_one_runs(tmp_path: Path) -> None:
    out = tmp_path / "check.json"
    sections = (section("machine", limit_s=0.05), section("no_such_module"))
    result = gpu_check.run(sections, out, is_small=False, missing=[])
    assert [each["status"] for each in result["sections"]] == ["timed out", "failed"]
    assert "no_such_module" in result["sections"][1]["reason"]
    assert not result["passed"]
    assert json.loads(out.read_text()) == result


def test_sections_beyond_the_budget_are_left_out(tmp_path: Path) -> None:
    sections = (section("machine"),)
    result = gpu_check.run(sections, tmp_path / "check.json", is_small=False, missing=[], budget_s=1.0)
    assert result["sections"][0]["status"] == "left out"
    assert not result["passed"]


def test_a_failed_check_fails_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(_: Section, path: Path, limit_s: float) -> dict[str, object]:
        checks = [{"name": "error", "value": 2.0, "at_most": 1.0, "passed": False}]
        path.write_text(json.dumps({"figures": {}, "checks": checks}))
        return {"status": "done", "reason": "", "seconds": 0.0}

    monkeypatch.setattr(gpu_check, "run_apart", noted)
    assert not gpu_check.run((section("machine"),), tmp_path / "out.json", is_small=False, missing=[])["passed"]


def test_an_unknown_section_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu_check.main(["--small", "--only", "generation-70b", "--out", str(tmp_path / "out.json")])
    assert "generation-tiny" in capsys.readouterr().err
