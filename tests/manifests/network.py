"""Who may connect to whom under NetworkPolicies: Kubernetes' semantics, for the parts that are used.

A pod that no policy selects for a direction is open in it; one that is selected may do what any of its policies allows.
A connection needs both ends' consent. Nodes are not looked at: their pods are always reached by them.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.manifests.tree import Document


@dataclass(frozen=True)
class Peer:
    """One end of a connection: a pod, or an address outside the cluster."""

    labels: dict[str, str] = field(default_factory=dict)
    namespace: str = "rlhfless"
    address: str = ""
    """Set for what is no pod."""


def may_connect(policies: Iterable[Document], source: Peer, target: Peer, port: int, *, protocol: str = "TCP") -> bool:
    """Whether the policies of one namespace let the source open a connection to the target."""
    policies = list(policies)
    return _consents(policies, "Egress", source, target, port, protocol) and _consents(
        policies, "Ingress", target, source, port, protocol
    )


def _consents(policies: list[Document], direction: str, own: Peer, other: Peer, port: int, protocol: str) -> bool:
    if own.address:
        return True
    mine = [
        policy
        for policy in policies
        if policy["metadata"].get("namespace", "rlhfless") == own.namespace
        and direction in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], own.labels)
    ]
    key, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    rules = [rule for policy in mine for rule in policy["spec"].get(key, ())]
    return not mine or any(
        _has_port(rule.get("ports"), port, protocol) and _has_peer(rule.get(peers), own, other) for rule in rules
    )


def _has_port(ports: list[Document] | None, port: int, protocol: str) -> bool:
    return ports is None or any((found["port"], found["protocol"]) == (port, protocol) for found in ports)


def _has_peer(peers: list[Document] | None, own: Peer, other: Peer) -> bool:
    return peers is None or any(_is_peer(peer, own, other) for peer in peers)


def _is_peer(peer: Document, own: Peer, other: Peer) -> bool:
    if "ipBlock" in peer:
        if not other.address:
            return False
        address, block = ipaddress.ip_address(other.address), peer["ipBlock"]
        return address in ipaddress.ip_network(block["cidr"]) and not any(
            address in ipaddress.ip_network(left_out) for left_out in block.get("except", ())
        )
    if other.address:
        return False
    if "namespaceSelector" in peer:
        right_namespace = _selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace})
    else:
        right_namespace = other.namespace == own.namespace
    return right_namespace and _selects(peer.get("podSelector", {}), other.labels)


def _selects(selector: Document, labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    return wanted.items() <= labels.items() and all(
        _matches(expression, labels) for expression in selector.get("matchExpressions", ())
    )


def _matches(expression: Document, labels: dict[str, str]) -> bool:
    key = expression["key"]
    match expression["operator"]:
        case "In":
            return labels.get(key) in expression["values"]
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise NotImplementedError(expression["operator"])
