"""What has to fit together: each misfit is caught."""

from collections.abc import Callable

import pytest

from tests.manifests.pods import template_of
from tests.manifests.tree import Document, base_documents
from tests.manifests.whole_rules import namespace_problems, whole_problems

SECRETS = {"rlhfless": {"token", "api-token", "admin-token", "redis-password"}}
Edit = Callable[[Callable[[str, str], Document]], object]


def edited(edit: Edit) -> list[str]:
    """Problems of the base after an edit, which is given a way to find a document by kind and name."""
    documents = base_documents()

    def find(kind: str, name: str) -> Document:
        return next(found for found in documents if (found["kind"], found["metadata"]["name"]) == (kind, name))

    edit(find)
    return list(whole_problems(documents, secrets=SECRETS))


def pod(document: Document) -> Document:
    template = template_of(document)
    assert template is not None
    return template["spec"]


def rule(document: Document) -> Document:
    return document["rules"][0]


def test_the_base_fits() -> None:
    assert edited(lambda find: None) == []


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda find: find("Service", "redis")["metadata"].update(name="rollout"), "Service rollout is there twice"),
        (lambda find: find("Role", "sweep")["metadata"].update(name="controller-scale"), "is there 2 times"),
        (
            lambda find: pod(find("StatefulSet", "redis"))["containers"][0]["env"][0]["valueFrom"][
                "secretKeyRef"
            ].update(key="password"),
            "key password of Secret rlhfless",
        ),
        (
            lambda find: pod(find("Deployment", "controller"))["volumes"][0]["secret"].update(secretName="other"),
            "of Secret other",
        ),
        (
            lambda find: find("PersistentVolumeClaim", "controller-state")["metadata"].update(name="state"),
            "PersistentVolumeClaim controller-state",
        ),
        (lambda find: pod(find("CronJob", "sweep")).update(serviceAccountName="sweeper"), "ServiceAccount sweeper"),
        (lambda find: find("Service", "redis")["metadata"].update(name="store"), "names the Service redis"),
        (
            lambda find: find("StatefulSet", "redis")["spec"]["selector"].update(matchLabels={"a": "b"}),
            "does not select its own pods",
        ),
        (lambda find: find("Service", "controller")["spec"].update(selector={"a": "b"}), "selects 0 kinds of pods"),
        (
            lambda find: find("Service", "controller")["spec"].update(
                selector={"app.kubernetes.io/part-of": "rlhfless"}
            ),
            "kinds of pods",
        ),
        (
            lambda find: find("Service", "controller")["spec"]["ports"][0].update(targetPort="web"),
            "have no port 'web'",
        ),
        (lambda find: find("Role", "controller-scale").update(kind="ClusterRole"), "beyond the namespace"),
        (lambda find: rule(find("Role", "controller-scale")).update(verbs=["*"]), "gives everything"),
        (lambda find: rule(find("Role", "controller-scale")).update(verbs=["delete"]), "may delete"),
        (lambda find: rule(find("Role", "controller-observe")).update(resources=["secrets"]), "nobody's business"),
        (
            lambda find: find("RoleBinding", "sweep")["roleRef"].update(name="sweeper"),
            "no Role sweeper",
        ),
        (
            lambda find: find("RoleBinding", "sweep")["subjects"][0].update(name="sweeper"),
            "no ServiceAccount sweeper",
        ),
    ],
)
def test_a_misfit_is_caught(edit: Edit, says: str) -> None:
    assert any(says in problem for problem in edited(edit))


def test_a_generated_name_is_caught() -> None:
    generated = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rlhfless-2467mtk98b"}}
    assert any("ends in a hash" in problem for problem in whole_problems([generated], secrets={}))


def test_a_document_of_another_namespace_is_caught() -> None:
    documents = [
        {"kind": "Namespace", "metadata": {"name": "other"}},
        {"kind": "Service", "metadata": {"name": "a", "namespace": "other"}},
        {"kind": "Service", "metadata": {"name": "a"}},
        {"kind": "RoleBinding", "metadata": {"name": "a", "namespace": "rlhfless"}, "subjects": [{"name": "a"}]},
    ]
    assert [len(list(namespace_problems([document], "rlhfless"))) for document in documents] == [1, 1, 1, 1]
