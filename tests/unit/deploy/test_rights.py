"""The accounts may do what the code asks of the Kubernetes API, and nothing that it never asks."""

import asyncio

import pytest

from controller.platforms.editing import FunctionChange
from controller.platforms.knative.kube_client import KubeClient
from controller.platforms.knative.sweeping import sweep
from shared.contracts.stage import Stage
from tests.fakes.kubernetes.adapter import Stand, settings_of, stand
from tests.fakes.kubernetes.api_server import KINDS, REVISIONS
from tests.fakes.kubernetes.services import base_service
from tests.fakes.virtual import in_virtual_time
from tests.manifests.tree import BASE, FUNCTIONS, Document, documents

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
Rights = set[tuple[str, str]]


def granted(account: str) -> Rights:
    """Verbs and plurals that an account's Roles give it."""
    found = [*documents(BASE / "controller-rbac.yaml"), *documents(BASE / "sweep.yaml")]
    roles = {role["metadata"]["name"]: role for role in found if role["kind"] == "Role"}
    bound = [binding["roleRef"]["name"] for binding in found if is_for(binding, account)]
    rules = [rule for name in bound for rule in roles[name]["rules"]]
    return {(verb, plural) for rule in rules for plural in rule["resources"] for verb in rule["verbs"]}


def is_for(document: Document, account: str) -> bool:
    return document["kind"] == "RoleBinding" and account in {subject["name"] for subject in document["subjects"]}


def all_but(rights: Rights) -> list[tuple[str, str]]:
    return [(verb, plural) for _, plural in KINDS for verb in VERBS if (verb, plural) not in rights]


def asked(at: Stand) -> Rights:
    return {(request.verb, request.plural) for request in at.api.asked}


async def hold_and_retire(at: Stand) -> None:
    """What a step asks of the cluster."""
    await at.platform.scale(Stage.ROLLOUT, 2, hold_until=at.platform.now() + 600)
    await asyncio.sleep(20.0)
    lives = [life for life in await at.platform.replicas() if life.ended_at is None]
    assert len(lives) == 2
    await at.platform.retire(Stage.ROLLOUT, [lives[0].instance])
    await at.platform.scale(Stage.ROLLOUT, 0, hold_until=0)
    await asyncio.sleep(60.0)


async def change_the_image(at: Stand) -> None:
    """What an admin's change asks of the cluster."""
    proposal = await at.platform.editor.propose("rollout", FunctionChange(image="dev.local/rlhfless/function-cpu:2"))
    assert proposal.revision != proposal.before
    await at.platform.editor.route("rollout", proposal.revision)
    await at.platform.editor.withdraw(proposal)


@in_virtual_time
async def test_the_controller_may_do_all_that_steps_and_admins_ask() -> None:
    async with stand(base_service("rollout"), forbidden=all_but(granted("controller"))) as at:
        await hold_and_retire(at)
        await change_the_image(at)
        assert not at.api.refused.is_set()


@in_virtual_time
async def test_the_controller_may_change_nothing_that_they_do_not_ask() -> None:
    async with stand(base_service("rollout")) as at:
        at.api.asked.clear()
        await hold_and_retire(at)
        await change_the_image(at)
    reading = {"get", "list", "watch"}
    assert {right for right in granted("controller") if right[0] not in reading} == {
        right for right in asked(at) if right[0] not in reading
    }


def test_images_are_changed_of_the_functions_alone() -> None:
    [role] = [
        found
        for found in documents(BASE / "controller-rbac.yaml")
        if found["kind"] == "Role" and found["metadata"]["name"] == "controller-swap-images"
    ]
    [rule] = [rule for rule in role["rules"] if rule["resources"] == ["services"]]
    assert sorted(rule["resourceNames"]) == sorted(file.stem for file in FUNCTIONS.glob("*.yaml"))


@in_virtual_time
async def test_the_sweep_may_do_all_that_it_asks_and_nothing_else() -> None:
    async with stand(base_service("rollout")) as at:
        await at.platform.scale(Stage.ROLLOUT, 2, hold_until=at.platform.now() + 5)
        await asyncio.sleep(1.0)
        at.api.asked.clear()
        at.api.forbidden.update(all_but(granted("sweep")))
        async with KubeClient(settings_of().access, transport=at.api_network) as client:
            assert await sweep(client, at.platform.now() + 600) == ("rollout-00001",)
        assert not at.api.refused.is_set()
        assert {(request.verb, request.plural) for request in at.api.asked} == granted("sweep")
        assert at.api.store.get(REVISIONS, "rollout-00001") is not None


def test_each_right_has_a_role_of_its_own() -> None:
    roles = [found for found in documents(BASE / "controller-rbac.yaml") if found["kind"] == "Role"]
    assert [role["metadata"]["name"] for role in roles] == [
        "controller-observe",
        "controller-scale",
        "controller-retire",
        "controller-swap-images",
    ]


@pytest.mark.parametrize(("account", "removes"), [("controller", {"revisions"}), ("sweep", set())])
def test_no_account_reads_secrets_or_makes_anything(account: str, removes: set[str]) -> None:
    verbs, plurals = zip(*granted(account), strict=True)
    assert set(verbs) <= {"get", "list", "watch", "patch", "delete"}
    assert {plural for verb, plural in granted(account) if verb == "delete"} == removes
    assert set(plurals) <= {plural for _, plural in KINDS}
