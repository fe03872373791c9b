"""All that is known to be wrong with a set of manifests that is applied at once."""

from collections.abc import Iterator

from tests.manifests.feature_flags import cluster_problems
from tests.manifests.function_rules import function_problems
from tests.manifests.kserve_rules import inference_service_problems
from tests.manifests.pod_rules import pod_problems
from tests.manifests.pods import pods_of
from tests.manifests.schemas import is_function, schema_problems
from tests.manifests.secrets import secret_keys_made
from tests.manifests.tree import Document
from tests.manifests.whole_rules import whole_problems


def problems(documents: list[Document], patches: dict[str, Document]) -> Iterator[str]:
    """``patches``: of Knative's own objects, by an administrator; see ``tree.cluster_patches``."""
    wrong = [problem for document in documents for problem in schema_problems(document)]
    yield from wrong
    if wrong:
        # The rules read fields that a schema promises.
        return
    for document in documents:
        if is_function(document):
            yield from function_problems(document)
            yield from cluster_problems(document, patches)
        if document["kind"] == "InferenceService":
            yield from inference_service_problems(document)
    for pod in pods_of(documents):
        yield from pod_problems(pod)
    yield from whole_problems(documents, secrets=secret_keys_made())
