"""Who reaches whom under the deployed NetworkPolicies."""

import pytest

from tests.manifests.network import Peer, may_connect
from tests.manifests.pods import pods_of
from tests.manifests.tree import BASE, DEPLOY, Document, base_documents, documents

POLICIES = documents(BASE / "network-policies.yaml")


def labelled(owner: str) -> Peer:
    """A pod of what is deployed under this kind and name."""
    [pod] = [found for found in pods_of(base_documents()) if found.owner == owner]
    return Peer(labels=pod.labels)


ROLLOUT = labelled("Service rollout")
REWARD = labelled("Service reward")
CONTROLLER = labelled("Deployment controller")
SWEEP = labelled("CronJob sweep")
REDIS = labelled("StatefulSet redis")
CACHE = labelled("Deployment redis-cache")
ACTIVATOR = Peer(namespace="knative-serving", labels={"app": "activator"})
KOURIER = Peer(namespace="kourier-system")
DNS = Peer(namespace="kube-system", labels={"k8s-app": "kube-dns"})
NODE_DNS = Peer(address="169.254.20.10")
STRANGER = Peer(namespace="default", labels=ROLLOUT.labels)
PROMETHEUS = Peer(namespace="monitoring")
NGINX = Peer(namespace="ingress-nginx")
INTERNET = Peer(address="198.51.100.7")
METADATA = Peer(address="169.254.169.254")


def component(name: str) -> list[Document]:
    return [*POLICIES, *documents(DEPLOY / "components" / name / "network-policy.yaml")]


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        (ROLLOUT, REDIS, 6379),
        (ROLLOUT, CACHE, 6379),
        (REWARD, REDIS, 6379),
        (CONTROLLER, REDIS, 6379),
        (CONTROLLER, CACHE, 6379),
        (ACTIVATOR, ROLLOUT, 8012),
        (ACTIVATOR, ROLLOUT, 8112),
        (KOURIER, ROLLOUT, 8012),
        (ACTIVATOR, ROLLOUT, 9090),
        (CONTROLLER, KOURIER, 8081),
        (CONTROLLER, INTERNET, 6443),
        (CONTROLLER, INTERNET, 8443),
        (SWEEP, INTERNET, 443),
        (ROLLOUT, DNS, 53),
        (CONTROLLER, NODE_DNS, 53),
    ],
)
def test_what_is_needed_passes(source: Peer, target: Peer, port: int) -> None:
    assert may_connect(POLICIES, source, target, port)


def test_names_are_asked_for_by_udp() -> None:
    assert may_connect(POLICIES, ROLLOUT, DNS, 53, protocol="UDP")
    assert not may_connect(POLICIES, ROLLOUT, DNS, 54, protocol="UDP")


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        (STRANGER, REDIS, 6379),
        (STRANGER, ROLLOUT, 8012),
        (STRANGER, CONTROLLER, 8765),
        (ACTIVATOR, REDIS, 6379),
        (ACTIVATOR, ROLLOUT, 8080),
        (KOURIER, ROLLOUT, 9090),
        (SWEEP, REDIS, 6379),
        (REDIS, CACHE, 6379),
        (REDIS, INTERNET, 443),
        (ROLLOUT, CONTROLLER, 8765),
        (ROLLOUT, REWARD, 8012),
        (ROLLOUT, INTERNET, 443),
        (ROLLOUT, METADATA, 80),
        (REWARD, INTERNET, 443),
        (CONTROLLER, METADATA, 80),
        (PROMETHEUS, ROLLOUT, 8080),
        (NGINX, CONTROLLER, 8765),
    ],
)
def test_nothing_else_does(source: Peer, target: Peer, port: int) -> None:
    assert not may_connect(POLICIES, source, target, port)


def test_prometheus_reads_the_pods_metrics() -> None:
    policies = component("monitoring")
    assert may_connect(policies, PROMETHEUS, ROLLOUT, 8080)
    assert may_connect(policies, PROMETHEUS, CONTROLLER, 8765)
    assert not may_connect(policies, PROMETHEUS, REDIS, 6379)


def test_the_ingress_reaches_the_api_and_nothing_else() -> None:
    policies = component("ingress")
    assert may_connect(policies, NGINX, CONTROLLER, 8765)
    assert not may_connect(policies, NGINX, ROLLOUT, 8080)


def test_a_sandboxed_reward_reaches_redis_and_not_even_dns() -> None:
    [egress] = [
        change
        for change in documents(DEPLOY / "components" / "code-sandbox" / "patch.yaml")[0]
        if change["path"].endswith("rlhfless.dev~1egress")
    ]
    sandboxed = Peer(labels={**REWARD.labels, "rlhfless.dev/egress": egress["value"]})
    assert may_connect(POLICIES, sandboxed, REDIS, 6379)
    assert may_connect(POLICIES, ACTIVATOR, sandboxed, 8012)
    for target, port in ((DNS, 53), (NODE_DNS, 53), (INTERNET, 443), (CONTROLLER, 8765)):
        assert not may_connect(POLICIES, sandboxed, target, port)


def test_an_object_store_is_reached_by_tls_and_no_metadata_server_is() -> None:
    policies = component("object-store")
    for source in (ROLLOUT, REWARD):
        assert may_connect(policies, source, INTERNET, 443)
        assert not may_connect(policies, source, METADATA, 443)
        assert not may_connect(policies, source, METADATA, 80)
    assert not may_connect(policies, ROLLOUT, INTERNET, 80)
    assert not may_connect(policies, REDIS, INTERNET, 443)


def test_without_policies_everything_passes() -> None:
    """What makes the other tests mean something: the evaluation is not one that refuses by itself."""
    assert may_connect([], STRANGER, REDIS, 6379)
    assert may_connect([], ROLLOUT, INTERNET, 443)
