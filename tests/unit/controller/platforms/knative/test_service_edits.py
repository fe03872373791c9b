"""Merge patches of Services."""

import pytest

from controller.platforms.editing import FunctionChange
from controller.platforms.knative.service_edits import changed, restored, routed
from tests.fakes.kubernetes.merge_patch import merged
from tests.fakes.kubernetes.object_store import Object

SERVICE: Object = {
    "metadata": {"name": "rollout"},
    "spec": {
        "template": {
            "metadata": {"annotations": {"kept": "yes"}},
            "spec": {
                "timeoutSeconds": 600,
                "containers": [
                    {"name": "sidecar", "image": "side:1"},
                    {
                        "name": "function",
                        "image": "there/function:1",
                        "ports": [{"containerPort": 8080}],
                        "env": [
                            {"name": "LEVEL", "value": "1"},
                            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                            {"name": "OLD", "value": "x"},
                        ],
                        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
                    },
                ],
            },
        }
    },
}


def after(change: FunctionChange, service: Object = SERVICE) -> Object:
    result: Object = merged(service, changed(service, change))
    return result


def test_only_what_is_named_is_different_and_only_in_the_container_that_serves() -> None:
    result = after(
        FunctionChange(
            image="there/function:2",
            env={"LEVEL": "2", "OLD": None, "NEW": ""},
            requests={"cpu": "2"},
            limits={"nvidia.com/gpu": "1"},
        )
    )
    template = result["spec"]["template"]
    sidecar, function = template["spec"]["containers"]
    assert sidecar == {"name": "sidecar", "image": "side:1"}
    assert function["image"] == "there/function:2"
    assert [(entry["name"], entry.get("value")) for entry in function["env"]] == [
        ("LEVEL", "2"),
        ("PASSWORD", None),
        ("NEW", ""),
    ]
    assert function["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"memory": "1Gi", "nvidia.com/gpu": "1"},
    }
    assert template["metadata"] == {"annotations": {"kept": "yes"}}
    assert template["spec"]["timeoutSeconds"] == 600


@pytest.mark.parametrize(
    "change",
    [
        FunctionChange(),
        FunctionChange(image="there/function:1", env={"LEVEL": "1", "NOT_THERE": None}, requests={"cpu": "1"}),
    ],
)
def test_what_is_so_already_is_no_change(change: FunctionChange) -> None:
    assert changed(SERVICE, change) is None


def test_a_template_that_names_its_revision_names_none_afterwards() -> None:
    named: Object = merged(SERVICE, {"spec": {"template": {"metadata": {"name": "rollout-mine"}}}})
    assert "name" not in after(FunctionChange(image="there/function:2"), named)["spec"]["template"]["metadata"]


def test_an_earlier_template_comes_back() -> None:
    result = after(FunctionChange(image="there/function:2", env={"LEVEL": None}))
    assert merged(result, restored(SERVICE["spec"]["template"])) == SERVICE


def test_requests_go_to_a_revision_by_its_name_and_tags_stay() -> None:
    patch = routed(SERVICE, "rollout-00001")
    assert patch is not None
    assert patch["spec"] == {"traffic": [{"revisionName": "rollout-00001", "percent": 100, "latestRevision": False}]}
    assert patch["metadata"] == {"annotations": {"rlhfless.dev/routed-to": "rollout-00001"}}
    tied: Object = merged(SERVICE, patch)
    assert routed(tied, "rollout-00001") is None
    tagged: Object = merged(
        SERVICE,
        {
            "spec": {
                "traffic": [
                    {"revisionName": "rollout-00001", "percent": 90},
                    {"revisionName": "rollout-00002", "percent": 10, "tag": "canary"},
                    {"latestRevision": True, "percent": 0, "tag": "latest"},
                ]
            }
        },
    )
    patch = routed(tagged, "rollout-00001")
    assert patch is not None
    assert [(target["revisionName"], target["percent"], target.get("tag")) for target in patch["spec"]["traffic"]] == [
        ("rollout-00001", 100, None),
        ("rollout-00002", 0, "canary"),
    ]
    assert routed(merged(tagged, patch), "rollout-00001") is None
