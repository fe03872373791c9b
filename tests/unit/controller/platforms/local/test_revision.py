"""Revisions are numbered by changes of the template."""

from dataclasses import replace

from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.revision import Revision

MANIFEST = FunctionManifest(name="rollout", image="a", command=("a",), template="one")


def test_another_template_is_another_revision() -> None:
    first = Revision(manifest=MANIFEST)
    assert first.name == "rollout-00001"
    assert first.next(replace(MANIFEST, source="moved.yaml")) is first
    assert first.next(replace(MANIFEST, template="two")).name == "rollout-00002"
