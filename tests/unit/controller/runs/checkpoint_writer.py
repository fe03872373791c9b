"""A process that writes one checkpoint after another until it is killed: ``checkpoint_writer ROOT FIRST_STEP``."""

import asyncio
import sys
from pathlib import Path

from controller.runs.checkpoints import SavedRun, write_checkpoint
from controller.runs.manifest import Manifest
from shared.contracts.policy import ModelRef, PolicyRef
from shared.store.memory_blobs import MemoryBlobs

BLOB_BYTES = 2**20
SAVED_RUN = SavedRun(run="the-run", config={}, digests={}, total_steps=1)


async def write_forever(root: Path, first: int) -> None:
    """Each step once new and once again; the step is the fence too, as if each had an owner of its own."""
    blobs, step = MemoryBlobs(), first
    model = root.parent / "model"
    while True:
        body = f"{step:07d} ".encode() * (BLOB_BYTES // 8)
        weights = await blobs.put("the-run", step, "weights", body)
        head = Manifest(
            step=step,
            data_cursor=step,
            policy=PolicyRef(version=step, model=ModelRef(path=str(model)), weights=weights),
            state=await blobs.put("the-run", step, "state", body[::-1]),
            run_seed=1,
        )
        for _ in range(2):
            await write_checkpoint(
                head, blobs, root=root, model_folder=model, saved_run=SAVED_RUN, history=body[:1000], fence=step
            )
            print(step, flush=True)
        step += 1


if __name__ == "__main__":
    asyncio.run(write_forever(Path(sys.argv[1]), int(sys.argv[2])))
