"""Every stage has the same parts, under the same name, in the source and in what is deployed."""

from pathlib import Path

import yaml

from shared.contracts.stage import Stage
from tests.structure.source_tree import ROOT, python_files, tracked_files

MANIFESTS = Path("deploy/base/functions")


def stage_folders() -> list[str]:
    """Names of the packages below functions/."""
    return sorted({path.parts[1] for path in python_files("functions") if len(path.parts) > 2})


def manifests() -> list[Path]:
    """Knative Services of the functions, one per file."""
    return [path for path in tracked_files() if path.parent == MANIFESTS and path.name != "kustomization.yaml"]


def test_stage_folders_have_their_parts() -> None:
    assert set(stage_folders()) <= set(Stage), "a package below functions/ is a stage"
    missing = [
        str(part)
        for name in stage_folders()
        for part in (
            Path("functions", name, "app.py"),
            MANIFESTS / f"{name}.yaml",
        )
        if part not in tracked_files()
    ]
    assert not missing, "\n".join(missing)


def test_manifests_are_one_service_each_named_like_its_stage() -> None:
    for path in manifests():
        assert path.stem in stage_folders(), f"{path} deploys a stage that has no package below functions/"
        documents = list(yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8")))
        found = [(document["apiVersion"], document["kind"], document["metadata"]["name"]) for document in documents]
        assert found == [("serving.knative.dev/v1", "Service", path.stem)], str(path)
