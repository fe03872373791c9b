"""What has to fit together in all that is applied at once: names, references, selectors, rights."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from tests.manifests.pods import PodTemplate, pods_of, secret_keys, template_of
from tests.manifests.schemas import label_of
from tests.manifests.tree import Document

WITHOUT_NAMESPACE = {"Namespace"}
GENERATED = re.compile(r"-[2456789bcdfghkmt]{10}$")
"""How kustomize ends the names of what it generates."""
MAKES_NOTHING = {"get", "list", "watch", "patch"}
ENDS_REVISIONS = ("controller-swap-images", ["revisions"])
"""The one Role that may delete, and what: a Revision that failed holds its GPU until it is gone."""


def whole_problems(documents: list[Document], *, secrets: Mapping[str, set[str]]) -> Iterator[str]:
    """What does not fit. ``secrets``: keys of the Secrets that are made apart."""
    yield from _names(documents)
    pods = list(pods_of(documents))
    for pod in pods:
        yield from _references(pod, documents, secrets)
    for document in documents:
        yield from _selects(document, pods)
    yield from rights_problems(documents)


def namespace_problems(documents: Iterable[Document], namespace: str) -> Iterator[str]:
    """Where what is built has another namespace, or none."""
    for document in documents:
        found = document["metadata"].get("namespace")
        if document["kind"] in WITHOUT_NAMESPACE:
            if document["metadata"]["name"] != namespace:
                yield f"{label_of(document)} is not the namespace that is used, {namespace}"
        elif found != namespace:
            yield f"{label_of(document)} is in namespace {found}, not {namespace}"
        for subject in document.get("subjects", ()):
            if subject.get("namespace") != namespace:
                yield f"{label_of(document)} binds an account of namespace {subject.get('namespace')}"


def _names(documents: list[Document]) -> Iterator[str]:
    names = Counter((found["apiVersion"], found["kind"], found["metadata"]["name"]) for found in documents)
    yield from (f"{kind} {name} is there {count} times" for (_, kind, name), count in names.items() if count > 1)
    # A Knative Service makes Kubernetes Services of its own name.
    services = Counter(found["metadata"]["name"] for found in documents if found["kind"] == "Service")
    yield from (f"Service {name} is there twice, as Kubernetes' and Knative's" for name, n in services.items() if n > 1)
    for found in documents:
        if found["kind"] in ("ConfigMap", "Secret") and GENERATED.search(found["metadata"]["name"]):
            yield f"{label_of(found)} ends in a hash: kustomize does not rewrite it inside Knative Services"


def _references(pod: PodTemplate, documents: list[Document], secrets: Mapping[str, set[str]]) -> Iterator[str]:
    there = {(found["kind"], found["metadata"]["name"]) for found in documents}
    for name, key in secret_keys(pod):
        if key not in secrets.get(name, set()):
            yield f"{pod.owner}: key {key} of Secret {name} is not there"
    for volume in pod.spec.get("volumes", ()):
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and ("PersistentVolumeClaim", claim) not in there:
            yield f"{pod.owner}: PersistentVolumeClaim {claim} is not there"
    account = pod.spec.get("serviceAccountName")
    if account and ("ServiceAccount", account) not in there:
        yield f"{pod.owner}: ServiceAccount {account} is not there"
    for container in pod.containers:
        for entry in container.get("env", ()):
            url = urlsplit(entry.get("value", ""))
            is_ours = url.scheme in ("redis", "http") and url.hostname and "$(" not in url.netloc
            if is_ours and ("Service", url.hostname) not in there:
                yield f"{pod.owner}: {entry['name']} names the Service {url.hostname}, which is not there"


def _selects(document: Document, pods: list[PodTemplate]) -> Iterator[str]:
    if document["kind"] in ("Deployment", "StatefulSet"):
        template = template_of(document)
        assert template is not None
        if not document["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items():
            yield f"{label_of(document)} does not select its own pods"
    if document["apiVersion"] == "v1" and document["kind"] == "Service":
        selector = document["spec"]["selector"].items()
        chosen = [pod for pod in pods if selector <= pod.labels.items()]
        if len(chosen) != 1:
            yield f"{label_of(document)} selects {len(chosen)} kinds of pods"
        named = {port.get("name") for pod in chosen for found in pod.containers for port in found.get("ports", ())}
        for port in document["spec"]["ports"]:
            if port["targetPort"] not in named:
                yield f"{label_of(document)}: its pods have no port {port['targetPort']!r}"


def rights_problems(documents: Iterable[Document]) -> Iterator[str]:
    """Where a Role gives more than is ever asked for, or a binding leads nowhere."""
    documents = list(documents)
    there = {(found["kind"], found["metadata"]["name"]) for found in documents}
    for document in documents:
        if document["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            yield f"{label_of(document)} reaches beyond the namespace"
        for rule in document.get("rules", ()) if document["kind"] == "Role" else ():
            everything = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "*" in everything:
                yield f"{label_of(document)} gives everything: {rule}"
            may_end = (document["metadata"]["name"], rule["resources"]) == ENDS_REVISIONS
            allowed = MAKES_NOTHING | ({"delete"} if may_end else set())
            asked_for = set(rule["verbs"]) - allowed
            if asked_for:
                yield f"{label_of(document)} may {', '.join(sorted(asked_for))}"
            if {"secrets", "configmaps"} & set(rule["resources"]):
                yield f"{label_of(document)} reads what is nobody's business: {rule['resources']}"
        if document["kind"] == "RoleBinding":
            role = ("Role", document["roleRef"]["name"])
            accounts = [("ServiceAccount", subject["name"]) for subject in document["subjects"]]
            yield from (
                f"{label_of(document)}: no {kind} {name}"
                for kind, name in (role, *accounts)
                if (kind, name) not in there
            )
