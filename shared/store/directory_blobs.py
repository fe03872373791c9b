"""Blobs as files in a directory: the local platform's default, or a volume that all functions share.

They outlive every process. A power cut may take the last seconds, as it does from Redis; the digest then tells.
"""

import asyncio
import contextlib
import mmap
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from shared.contracts.errors import StoreRefused, StoreUnavailable
from shared.contracts.ids import is_identifier
from shared.contracts.policy import BlobRef
from shared.store.blobs import make_ref, step_of, verified


class DirectoryBlobs:
    """``BlobStore`` in a directory. A file appears under its name only when it is complete."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        """See ``BlobStore.put``."""
        return await asyncio.to_thread(self._put, run, step, kind, data)

    def _put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        ref = make_ref(run, step, kind, data)
        path = self._root / ref.id
        partial = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        with _refused(f"keep {len(data)} bytes under"):
            if path.exists() and path.stat().st_size == len(data):
                return ref
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(data)
                partial.rename(path)
            except OSError:
                with contextlib.suppress(OSError):
                    partial.unlink()
                raise
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """See ``BlobStore.get``. Raises ``StoreUnavailable`` where the folder cannot be read."""
        return await asyncio.to_thread(self._get, ref)

    def _get(self, ref: BlobRef) -> bytes:
        with _readable(ref):
            return verified(ref, (self._root / ref.id).read_bytes())

    async def view(self, ref: BlobRef) -> memoryview:
        """See ``BlobStore.view``. Raises ``StoreUnavailable`` where the folder cannot be read."""
        return await asyncio.to_thread(self._view, ref)

    def _view(self, ref: BlobRef) -> memoryview:
        with _readable(ref), (self._root / ref.id).open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:  # which cannot be mapped
                return memoryview(bytearray(verified(ref, b"")))
            # Files are written once and only ever unlinked, so what was verified stays what it is.
            return memoryview(verified(ref, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)))

    async def purge(self, run: str, *, before_step: int, keep: Collection[str]) -> int:
        """See ``BlobStore.purge``. Raises ``StoreRefused`` where files cannot be deleted."""
        return await asyncio.to_thread(self._purge, run, before_step, frozenset(keep))

    def _purge(self, run: str, before_step: int, keep: frozenset[str]) -> int:
        num_deleted = 0
        with _refused("delete blobs under"):
            for folder in sorted(self._run_folder(run).glob("[0-9]*")):
                if step_of(f"{run}/{folder.name}") >= before_step:
                    continue
                for path in sorted(folder.iterdir()):
                    if f"{run}/{folder.name}/{path.name}" not in keep:
                        path.unlink(missing_ok=True)
                        num_deleted += not path.name.startswith(".")
                with contextlib.suppress(OSError):  # what is kept keeps its folder
                    folder.rmdir()
        return num_deleted

    async def delete_run(self, run: str) -> None:
        """See ``BlobStore.delete_run``. Raises ``StoreRefused`` where files cannot be deleted."""
        await asyncio.to_thread(self._delete_run, run)

    def _delete_run(self, run: str) -> None:
        with _refused("delete blobs under"), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._run_folder(run))

    def _run_folder(self, run: str) -> Path:
        if not is_identifier(run):
            raise ValueError(f"{run!r} is no run")
        return self._root / run


@contextlib.contextmanager
def _readable(ref: BlobRef) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        verified(ref, None)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot read blob {ref.id}: {error.strerror}. Check the folder that RLHFLESS_BLOB_URL names"
        ) from error


@contextlib.contextmanager
def _refused(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreRefused(
            f"cannot {doing} the blob folder: {error.strerror}. Free some space or set "
            "RLHFLESS_BLOB_URL to a folder that can be written"
        ) from error
