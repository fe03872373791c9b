"""The kustomizations themselves, without kubectl: what they name is there, and each says what the cluster must have."""

import re
from pathlib import Path

import pytest

from tests.manifests.feature_flags import POD_FIELDS, VOLUMES, flags_needed
from tests.manifests.tree import (
    BASE,
    COMPONENTS,
    DEPLOY,
    FUNCTIONS,
    OVERLAYS,
    cluster_patches,
    documents,
    header,
    kustomization,
    parts,
)

FOLDERS = [BASE, *COMPONENTS, *OVERLAYS]


def named_files(folder: Path) -> set[Path]:
    """Files that a kustomization takes, and those that its header tells an administrator to apply."""
    content = kustomization(folder)
    taken = [*content.get("resources", ()), *(patch["path"] for patch in content.get("patches", ()) if "path" in patch)]
    found = {folder / name for name in taken if (folder / name).suffix == ".yaml"}
    return found | {folder / name for name in re.findall(r"[\w-]+\.patch\.yaml", header(folder))}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_file_is_used_and_every_used_file_is_there(folder: Path) -> None:
    assert named_files(folder) == {file for file in folder.rglob("*.yaml") if file.name != "kustomization.yaml"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_kustomization_says_what_it_is_and_what_the_cluster_must_have(folder: Path) -> None:
    assert re.fullmatch(r".{20,}[.:] Needs: .{10,}", header(folder)), header(folder)
    kind = "Component" if folder in COMPONENTS else "Kustomization"
    version = "v1alpha1" if folder in COMPONENTS else "v1beta1"
    content = kustomization(folder)
    assert (content["kind"], content["apiVersion"]) == (kind, f"kustomize.config.k8s.io/{version}")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_it_builds_on_is_there(folder: Path) -> None:
    for part in parts(folder):
        assert (part / "kustomization.yaml").is_file()
        assert part.is_relative_to(DEPLOY)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda folder: folder.name)
def test_an_overlay_is_in_one_namespace_and_made_of_components(overlay: Path) -> None:
    content = kustomization(overlay)
    assert content["namespace"] == "rlhfless"
    assert content["resources"] == ["../../base"]
    assert content["components"]


def test_nothing_gets_a_name_with_a_hash() -> None:
    """Knative Services would go on naming the object without it."""
    for folder in FOLDERS:
        assert not {"configMapGenerator", "secretGenerator", "namePrefix", "nameSuffix"} & kustomization(folder).keys()


def test_every_component_is_part_of_an_overlay_or_stands_in_the_readme() -> None:
    used = {part for overlay in OVERLAYS for part in parts(overlay)}
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for component in COMPONENTS:
        assert component.resolve() in used or f"components/{component.name}" in readme


def test_administrators_patches_name_flags_that_there_are() -> None:
    known = {*POD_FIELDS.values(), *VOLUMES.values(), "kubernetes.podspec-persistent-volume-write"}
    for folder in COMPONENTS:
        data = cluster_patches(folder).get("config-features.patch.yaml", {}).get("data", {})
        assert data.keys() <= known
        assert set(data.values()) <= {"enabled"}


def test_the_base_asks_an_administrator_for_nothing() -> None:
    assert cluster_patches(BASE) == {}
    assert all(flags_needed(documents(file)[0]) == set() for file in FUNCTIONS.glob("*.yaml"))
