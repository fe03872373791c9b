"""Each rule for InferenceServices, and their schema, catches one that breaks it."""

import copy
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from controller.runs.config.reward import RewardConfig
from functions.reward.settings import V2Settings
from functions.reward.v2 import OPEN_PATHS
from shared.contracts.reward import ModelReward, RemoteReward, SumReward, TensorNames
from shared.contracts.stage import Stage
from shared.service.settings import FunctionSettings
from tests.manifests.kserve_rules import inference_service_problems
from tests.manifests.schemas import schema_problems
from tests.manifests.tree import DEPLOY, Document, documents
from tests.manifests.variables import BY_LIBRARIES, FUNCTION_FILES, variables_read

[JUDGE] = documents(DEPLOY / "components" / "kserve-judge" / "judge.yaml")
[RUNTIME] = documents(DEPLOY / "components" / "kserve-judge" / "runtime.yaml")
[REWARD] = documents(DEPLOY / "components" / "kserve" / "reward.yaml")
Edit = Callable[[Document], object]


def edited(document: Document, edit: Edit) -> Document:
    found = copy.deepcopy(document)
    edit(found)
    return found


def predictor(found: Document) -> Document:
    return found["spec"]["predictor"]


def test_a_run_can_name_the_judge_as_the_readme_says() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    [example] = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if block.startswith("reward:")]
    reward = RewardConfig.model_validate(yaml.safe_load(example)["reward"]).to_wire()
    assert isinstance(reward, SumReward)
    [part] = reward.parts
    assert isinstance(part.reward, RemoteReward)
    # KServe makes the Service NAME-predictor of an InferenceService, whose model has its name.
    assert part.reward.url == f"http://{JUDGE['metadata']['name']}-predictor.rlhfless.svc.cluster.local"
    assert part.reward.model == JUDGE["metadata"]["name"]
    # What reward reads as its secret is what the judge's process takes for its token.
    [volume] = [found for found in RUNTIME["spec"]["volumes"] if found["name"] == "token"]
    assert volume["secret"]["secretName"] == "rlhfless-rewards"
    assert [item["key"] for item in volume["secret"]["items"]] == [part.reward.secret]
    # Our own server's tensors are the defaults.
    assert part.reward.tensors == TensorNames()


def test_the_judges_runtime_starts_with_what_it_says(tmp_path: Path) -> None:
    [container] = RUNTIME["spec"]["containers"]
    (tmp_path / "token").write_text("0123456789abcdef")
    # KServe fills in the name of the InferenceService.
    said = {entry["name"]: entry["value"].replace("{{.Name}}", "judge") for entry in container["env"]}
    given = said | {"RLHFLESS_TOKEN_FILE": str(tmp_path / "token"), "PORT": "8080"}
    settings, v2 = FunctionSettings.from_environment(given), V2Settings.from_environment(given)
    assert settings.stages == (Stage.REWARD,)
    assert v2.model == JUDGE["metadata"]["name"]
    assert isinstance(v2.reward, ModelReward)
    assert Path(v2.reward.model.path) in settings.model_roots
    assert set(said) <= variables_read([*FUNCTION_FILES, "functions/reward/settings.py"]) | BY_LIBRARIES
    assert JUDGE["spec"]["predictor"]["model"]["runtime"] == RUNTIME["metadata"]["name"]
    assert container["readinessProbe"]["httpGet"]["path"] in OPEN_PATHS


@pytest.mark.parametrize("document", [JUDGE, REWARD], ids=["judge", "reward"])
def test_the_unedited_one_has_no_problem(document: Document) -> None:
    assert [*schema_problems(document), *inference_service_problems(document)] == []


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda found: found["metadata"].pop("annotations"), "deploymentMode"),
        (
            lambda found: found["metadata"]["annotations"].update({"serving.kserve.io/deploymentMode": "Standard"}),
            "deploymentMode",
        ),
        (lambda found: found["metadata"].pop("labels"), "cluster-local"),
        (lambda found: predictor(found).pop("minReplicas"), "minReplicas"),
        (lambda found: predictor(found).update(minReplicas=1), "minReplicas"),
        (lambda found: predictor(found).pop("maxReplicas"), "maxReplicas"),
        (lambda found: predictor(found).pop("containerConcurrency"), "containerConcurrency"),
        (lambda found: predictor(found).pop("timeout"), "timeout is None"),
        (lambda found: predictor(found).update(timeout=900), "timeout is 900"),
        (lambda found: predictor(found).pop("annotations"), "target-burst-capacity is None"),
    ],
)
def test_a_rule_catches(edit: Edit, says: str) -> None:
    assert any(says in problem for problem in inference_service_problems(edited(JUDGE, edit)))


@pytest.mark.parametrize(
    ("document", "edit", "says"),
    [
        (JUDGE, lambda found: predictor(found).update(minReplica=0), "minReplica"),
        (JUDGE, lambda found: predictor(found)["model"].update(storageUri="/models"), "storageUri"),
        (JUDGE, lambda found: predictor(found)["model"].update(protocolVersion="v3"), "protocolVersion"),
        (JUDGE, lambda found: predictor(found)["model"].pop("modelFormat"), "modelFormat"),
        (JUDGE, lambda found: predictor(found).pop("model"), "a model or containers"),
        (REWARD, lambda found: predictor(found)["containers"][0].update(name="function"), "name"),
        (REWARD, lambda found: predictor(found).update(lifecycle={}), "lifecycle"),
        (RUNTIME, lambda found: found["spec"].update(protocolVersions=["v4"]), "protocolVersions"),
        (RUNTIME, lambda found: found["spec"].pop("supportedModelFormats"), "supportedModelFormats"),
        (RUNTIME, lambda found: found["spec"]["containers"][0].pop("image"), "image"),
    ],
)
def test_the_schema_catches(document: Document, edit: Edit, says: str) -> None:
    assert any(says in problem for problem in schema_problems(edited(document, edit)))
