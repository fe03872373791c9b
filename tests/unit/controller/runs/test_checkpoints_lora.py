"""Checkpoints of a policy that is weights and an adapter."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from controller.runs.checkpoints import MODEL_FOLDER, SavedRun, blob_file, write_checkpoint
from controller.runs.errors import ContractBroken
from controller.runs.manifest import Manifest, named_blobs
from controller.runs.resumption import read_verified
from shared.codec.lora_adapter import LoraAdapter, encode_adapter
from shared.contracts.policy import ModelRef, PolicyRef
from shared.store.memory_blobs import MemoryBlobs
from tests.fakes.virtual import in_virtual_time

RUN = "the-run"
SAVED_RUN = SavedRun(run=RUN, config={}, digests={}, total_steps=10)


class Adapted:
    """A head whose policy is weights and an adapter, with its blobs and a place for checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.root, self.model = folder / "checkpoints", folder / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        self.blobs = MemoryBlobs()
        rng = np.random.default_rng(0)
        self.weights = {
            "norm.weight": rng.normal(size=3).astype(np.float32),
            "q_proj.weight": rng.normal(size=(4, 3)).astype(np.float32),
        }
        matrices = (rng.normal(size=(2, 3)).astype(np.float32), rng.normal(size=(4, 2)).astype(np.float32))
        self.adapter = LoraAdapter(rank=2, alpha=8.0, matrices={"q_proj": matrices})

    async def head(self, weights: dict[str, Any] | None = None) -> Manifest:
        policy = PolicyRef(
            version=3,
            model=ModelRef(path="models/tiny"),
            weights=await self.blobs.put(RUN, 0, "policy", save(self.weights if weights is None else weights)),
            adapter=await self.blobs.put(RUN, 3, "policy-adapter", encode_adapter(self.adapter)),
        )
        state = await self.blobs.put(RUN, 3, "state", b"state 3")
        return Manifest(step=3, data_cursor=24, policy=policy, state=state, run_seed=1)

    async def write(self, head: Manifest) -> Path:
        written = await write_checkpoint(
            head,
            self.blobs,
            root=self.root,
            model_folder=self.model,
            saved_run=SAVED_RUN,
            history=b"",
            fence=1,
        )
        return Path(written.folder)


@pytest.fixture
def adapted(tmp_path: Path) -> Adapted:
    return Adapted(tmp_path)


@in_virtual_time
async def test_the_adapter_is_merged_for_loaders_and_kept_beside_its_weights(adapted: Adapted) -> None:
    head = await adapted.head()
    folder = await adapted.write(head)
    assert (folder / "policy.weights.safetensors").read_bytes() == save(adapted.weights)
    assert (folder / "lora_adapter" / "adapter_model.safetensors").read_bytes() == encode_adapter(adapted.adapter)
    config = json.loads((folder / "lora_adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (2, 8.0, "models/tiny")
    merged = load_file(folder / MODEL_FOLDER / "model.safetensors")
    a, b = adapted.adapter.matrices["q_proj"]
    np.testing.assert_allclose(merged["q_proj.weight"], adapted.weights["q_proj.weight"] + 4.0 * b @ a, rtol=1e-6)
    assert np.array_equal(merged["norm.weight"], adapted.weights["norm.weight"])


@in_virtual_time
async def test_everything_to_go_on_from_is_there_and_outlives_the_step(adapted: Adapted) -> None:
    head = await adapted.head()
    folder = await adapted.write(head)
    named = named_blobs(head)
    assert sorted(named) == ["policy.adapter", "policy.weights", "state"]
    for name, ref in named.items():
        assert len(read_verified(folder / blob_file(head, name), ref)) == ref.num_bytes
    assert {ref.id for ref in named.values()} <= Manifest.model_validate(head.model_dump()).kept_blobs()


@in_virtual_time
async def test_the_reference_below_the_adapter_is_no_file_of_its_own(adapted: Adapted) -> None:
    head = await adapted.head()
    reference = head.policy.model_copy(update={"adapter": None})
    head = head.model_copy(update={"reference": reference})
    folder = await adapted.write(head)
    assert not (folder / "reference.weights.safetensors").exists()
    read = read_verified(folder / blob_file(head, "reference.weights"), reference.weights)
    assert read == save(adapted.weights)


@in_virtual_time
async def test_an_adapter_of_other_weights_breaks_the_contract_and_leaves_no_checkpoint(adapted: Adapted) -> None:
    head = await adapted.head({"k_proj.weight": np.zeros((4, 3), np.float32)})
    with pytest.raises(ContractBroken, match="swap its image"):
        await adapted.write(head)
    assert list(adapted.root.iterdir()) == []
