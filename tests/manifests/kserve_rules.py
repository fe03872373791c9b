"""What KServe leaves to chance in an InferenceService.

Source: kserve/kserve 0.20, ``pkg/apis/serving/v1beta1`` (defaults), ``.../reconcilers/knative/ksvc_reconciler.go``.
"""

from collections.abc import Iterator

from tests.manifests.feature_flags import DEFAULT_MAX_TIMEOUT_S
from tests.manifests.tree import Document

MODE = "serving.kserve.io/deploymentMode"
SCALING = {
    "autoscaling.knative.dev/target-utilization-percentage": "100",
    "autoscaling.knative.dev/target-burst-capacity": "-1",
}


def inference_service_problems(document: Document) -> Iterator[str]:
    """What is wrong with an InferenceService whose schema is right."""
    for problem in _problems(document):
        yield f"InferenceService {document['metadata']['name']}: {problem}"


def _problems(document: Document) -> Iterator[str]:
    predictor, metadata = document["spec"]["predictor"], document["metadata"]
    if metadata.get("annotations", {}).get(MODE) != "Knative":
        yield f"{MODE} is not Knative: the other mode buffers nothing and does not scale from zero"
    if metadata.get("labels", {}).get("networking.knative.dev/visibility") != "cluster-local":
        yield "has no label networking.knative.dev/visibility: cluster-local, so it is open to the world"
    if predictor.get("minReplicas") != 0:
        yield "minReplicas is not 0, and KServe's default is 1: a replica would be there always"
    if not predictor.get("containerConcurrency"):
        yield "containerConcurrency is missing: a replica would get any number of calls"
    if not predictor.get("maxReplicas"):
        yield "maxReplicas is missing"
    if not 0 < predictor.get("timeout", 0) <= DEFAULT_MAX_TIMEOUT_S:
        yield f"timeout is {predictor.get('timeout')}, and not up to {DEFAULT_MAX_TIMEOUT_S}"
    for key, value in SCALING.items():
        found = predictor.get("annotations", {}).get(key)
        if found != value:
            yield f"{key} is {found}, not {value}"
