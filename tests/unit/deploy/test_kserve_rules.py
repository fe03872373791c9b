"""Each rule for InferenceServices, and their schema, catches one that breaks it."""

import copy
import re
from collections.abc import Callable

import pytest
import yaml

from controller.runs.config.reward import RewardConfig
from shared.contracts.reward import RemoteReward, SumReward
from tests.manifests.kserve_rules import inference_service_problems
from tests.manifests.schemas import schema_problems
from tests.manifests.tree import DEPLOY, Document, documents

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
