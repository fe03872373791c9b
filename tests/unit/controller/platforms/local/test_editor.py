"""Changes of functions on one machine: revisions over the manifests' folder, none of which has to start here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.platforms.base import FunctionState, FunctionUnknown
from controller.platforms.editing import ChangeRefused, FunctionChange
from controller.platforms.local.editor import ChangedManifests, LocalEditor
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.platform import LocalPlatform
from tests.unit.controller.platforms.local.tiny_platform import tiny_settings

MANIFEST = """
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: rollout}
spec:
  template:
    spec:
      containers:
        - image: tiny:1
          command: [python]
          env: [{name: LEVEL, value: "1"}, {name: OLD, value: there}]
          resources: {requests: {cpu: 500m, memory: 1Gi}}
"""


class Edited:
    """A platform at zero, and what changes it."""

    def __init__(self, platform: LocalPlatform, manifests: ChangedManifests) -> None:
        self.editor = LocalEditor(platform, manifests)
        self._platform = platform

    async def state(self) -> FunctionState:
        """The function now."""
        [state] = await self._platform.functions()
        return state

    def manifest(self, revision: str) -> FunctionManifest:
        """What a revision was made of."""
        return self._platform._functions.functions["rollout"].revisions[revision].manifest


@asynccontextmanager
async def edited(folder: Path) -> AsyncIterator[Edited]:
    (folder / "rollout.yaml").write_text(MANIFEST)
    manifests = ChangedManifests()
    async with LocalPlatform(tiny_settings(folder), read=manifests.read) as platform:
        yield Edited(platform, manifests)


CHANGE = FunctionChange(
    image="tiny:2", env={"LEVEL": "2", "OLD": None}, requests={"cpu": "2"}, limits={"memory": "2Gi"}
)


async def test_a_proposal_gets_no_requests_until_they_are_sent_there(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        proposal = await it.editor.propose("rollout", CHANGE)
        assert (proposal.before, proposal.revision) == ("rollout-00001", "rollout-00002")
        assert (await it.state()).revision == "rollout-00001"
        made = it.manifest("rollout-00002")
        assert (made.image, made.env) == ("tiny:2", {"LEVEL": "2"})
        assert (made.resources.num_cpus, made.resources.memory_bytes) == (2.0, 2**31)
        await it.editor.route("rollout", "rollout-00002")
        state = await it.state()
        assert (state.revision, state.image) == ("rollout-00002", "tiny:2")


async def test_changes_come_one_over_another(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        await it.editor.propose("rollout", CHANGE)
        await it.editor.route("rollout", "rollout-00002")
        proposal = await it.editor.propose("rollout", FunctionChange(env={"MORE": "3"}))
        assert (proposal.before, proposal.revision) == ("rollout-00002", "rollout-00003")
        made = it.manifest("rollout-00003")
        assert (made.image, made.env) == ("tiny:2", {"LEVEL": "2", "MORE": "3"})


async def test_a_proposal_that_is_withdrawn_leaves_the_requests_where_they_were(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        proposal = await it.editor.propose("rollout", CHANGE)
        await it.editor.route("rollout", proposal.revision)
        newest = await it.editor.withdraw(proposal)
        assert (await it.state()).revision == "rollout-00001"
        assert it.manifest(newest).env == {"LEVEL": "1", "OLD": "there"}


async def test_what_changes_nothing_makes_no_revision(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        proposal = await it.editor.propose("rollout", FunctionChange(image="tiny:1", env={"LEVEL": "1"}))
        assert proposal.revision == proposal.before == "rollout-00001"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (FunctionChange(env={"K_REVISION": "mine"}), "K_REVISION is set by the platform|env.K_REVISION"),
        (FunctionChange(requests={"cpu": "lots"}), "resources.cpu.*not a quantity"),
    ],
)
async def test_what_is_refused_leaves_everything_as_it_was(tmp_path: Path, change: FunctionChange, said: str) -> None:
    async with edited(tmp_path) as it:
        with pytest.raises(ChangeRefused, match=said):
            await it.editor.propose("rollout", change)
        assert len((await it.state()).revisions) == 1
        assert (await it.editor.propose("rollout", CHANGE)).revision == "rollout-00002"


async def test_a_function_or_a_revision_that_is_not_there(tmp_path: Path) -> None:
    async with edited(tmp_path) as it:
        with pytest.raises(FunctionUnknown):
            await it.editor.propose("reward", CHANGE)
        with pytest.raises(ChangeRefused, match="no revision 'rollout-00009'"):
            await it.editor.route("rollout", "rollout-00009")
