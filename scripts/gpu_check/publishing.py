"""Publishing a policy and loading it elsewhere: encode, digest and write; read, verify and copy to the device.

The blob store is the local platform's, a directory: in shared memory where it has room, else on disk.
"""

import asyncio
import hashlib
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedModel

from scripts.gpu_check.figures import Figures, Timer
from scripts.gpu_check.machine import SHARED_MEMORY, free_host_bytes
from scripts.gpu_check.plan import Section
from scripts.gpu_check.random_model import model_folder, random_model
from scripts.gpu_check.shapes import SHAPES
from shared.contracts.policy import BlobRef
from shared.modeling.weights import load_blob, state_dict_to_blob
from shared.store.directory_blobs import DirectoryBlobs

COPIES_IN_MEMORY = 4
"""Host copies of the weights at the worst moment: tensors, their bytes, the blob, and the file where it lies in
memory."""


def measure(section: Section, figures: Figures) -> None:
    """Publish the weights of one model, and load them into another."""
    shape, device = SHAPES[section.shape], torch.device(section.device)
    timer, dtype = Timer(device), getattr(torch, section.dtype)
    num_bytes = shape.num_parameters * dtype.itemsize
    if free_host_bytes() < COPIES_IN_MEMORY * num_bytes:
        figures.add(left_out=f"needs {COPIES_IN_MEMORY * num_bytes} bytes of free memory, has {free_host_bytes()}")
        return
    with model_folder(shape) as folder, tempfile.TemporaryDirectory(dir=roomy_folder(num_bytes)) as root:
        figures.add(folder_is_in_memory=Path(root).is_relative_to(SHARED_MEMORY))
        published, loaded = random_model(folder, dtype, device), random_model(folder, dtype, device, seed=1)
        store = DirectoryBlobs(Path(root))
        ref = publish(published, store, timer, figures)
        load(loaded, ref, store, timer, figures)
        differing = sum(
            not torch.equal(left, right)
            for left, right in zip(published.parameters(), loaded.parameters(), strict=True)
        )
        figures.check("parameters that differ after the round trip", differing, at_most=0)


def publish(model: PreTrainedModel, store: DirectoryBlobs, timer: Timer, figures: Figures) -> BlobRef:
    """Encode the weights and store them; the digest, which storing makes too, is also timed by itself."""
    encode_s, blob = timer.run(lambda: state_dict_to_blob(model))
    digest_s, _ = timer.run(lambda: hashlib.sha256(blob).hexdigest())
    put_s, ref = timer.run(lambda: asyncio.run(store.put("gpu-check", 0, "policy", blob)))
    num_gb = len(blob) / 1e9
    figures.add(num_bytes=len(blob), encode_s=encode_s, digest_s=digest_s, put_s=put_s, publish_s=encode_s + put_s)
    figures.add(digest_gb_per_s=num_gb / digest_s, publish_gb_per_s=num_gb / (encode_s + put_s))
    return ref


def load(model: PreTrainedModel, ref: BlobRef, store: DirectoryBlobs, timer: Timer, figures: Figures) -> None:
    """Read the blob, verify its digest and copy it into the model."""
    view_s, view = timer.run(lambda: asyncio.run(store.view(ref)))
    copy_s, _ = timer.run(lambda: load_blob(model, view))
    load_s = view_s + copy_s
    figures.add(view_s=view_s, copy_s=copy_s, load_s=load_s, load_gb_per_s=ref.num_bytes / 1e9 / load_s)


def roomy_folder(num_bytes: int) -> str | None:
    """Shared memory where twice the bytes fit, else the usual folder for temporary files."""
    has_room = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 2 * num_bytes
    return str(SHARED_MEMORY) if has_room else None
