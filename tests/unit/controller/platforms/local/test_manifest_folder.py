"""A folder of manifests: no two with one name or one stage."""

from pathlib import Path

import pytest

from controller.platforms.local.manifest_folder import read_manifests
from controller.platforms.local.manifest_section import ManifestRefused

SERVICE = """
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {{name: {name}}}
spec:
  template:
    spec:
      containers:
        - image: any
          command: [python, -m, functions.main]
          env: [{{name: RLHFLESS_STAGES, value: {stages}}}]
"""


def write(folder: Path, file: str, name: str, stages: str) -> None:
    (folder / file).write_text(SERVICE.format(name=name, stages=f'"{stages}"'))


def test_functions_by_name(tmp_path: Path) -> None:
    write(tmp_path, "b.yaml", "reward", "reward")
    write(tmp_path, "a.yaml", "policy", "learner,rollout")
    (tmp_path / "kustomization.yml").write_text("resources: []")
    assert list(read_manifests(tmp_path)) == ["policy", "reward"]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestRefused, match="no manifest"):
        read_manifests(tmp_path)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "reward", "reward")
    write(tmp_path, "b.yaml", "reward", "critic")
    with pytest.raises(ManifestRefused, match=r"b.yaml: metadata.name: 'reward' is also in .*a.yaml"):
        read_manifests(tmp_path)


def test_the_learners_process_may_sample_beside_rollouts_own_function(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "learner", "learner,rollout")
    write(tmp_path, "b.yaml", "rollout", "rollout")
    assert list(read_manifests(tmp_path)) == ["learner", "rollout"]


def test_a_stage_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "sampler", "rollout")
    write(tmp_path, "b.yaml", "rollout", "rollout")
    with pytest.raises(ManifestRefused, match=r"rollout is also served by .*a.yaml"):
        read_manifests(tmp_path)
