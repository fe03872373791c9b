"""The only place where a Redis key is spelled.

All keys of a run share the hash tag ``{run}``, so one script may touch them on a Redis cluster, and deletion of a run
finds them by prefix.
"""

from shared.contracts.call import BatchKey, CallKey

ROOT = "rlhfless"

RUNS = f"{ROOT}:runs"
"""Sorted set: run id by creation time."""


def idempotency(key: str) -> str:
    """String: the run that an idempotency key stands for."""
    return f"{ROOT}:idempotency:{key}"


def prefix(run: str) -> str:
    """Beginning of every key of the run."""
    return f"{ROOT}:{{{run}}}"


def record(run: str) -> str:
    """Hash: the run's record."""
    return f"{prefix(run)}:record"


def owner(run: str) -> str:
    """String with expiry: who owns the run."""
    return f"{prefix(run)}:owner"


def fence(run: str) -> str:
    """Integer: rises with each owner."""
    return f"{prefix(run)}:fence"


def fenced(run: str) -> str:
    """String: the owner that was given the current fence."""
    return f"{prefix(run)}:fenced"


def head(run: str) -> str:
    """String: the current manifest."""
    return f"{prefix(run)}:head"


def history(run: str) -> str:
    """List: one JSON line per finished step."""
    return f"{prefix(run)}:history"


def lengths(run: str) -> str:
    """Hash: length history by row."""
    return f"{prefix(run)}:lengths"


def plans(run: str) -> str:
    """Hash: plan by step."""
    return f"{prefix(run)}:plans"


def traces(run: str) -> str:
    """Hash: trace by step."""
    return f"{prefix(run)}:traces"


def trace_sizes(run: str) -> str:
    """List: step and bytes of each trace, oldest first."""
    return f"{prefix(run)}:trace-sizes"


def trace_bytes(run: str) -> str:
    """Integer: bytes of all traces."""
    return f"{prefix(run)}:trace-bytes"


def profile(name: str) -> str:
    """String with expiry: a profile that all runs share."""
    return f"{ROOT}:profile:{name}"


def events(run: str) -> str:
    """Stream: the event log."""
    return f"{prefix(run)}:events"


def blob_sizes(run: str) -> str:
    """Hash: size of each blob that the run keeps in Redis."""
    return f"{prefix(run)}:blobs"


def blob_chunk(run: str, name: str, index: int) -> str:
    """String: one chunk of a blob."""
    return f"{prefix(run)}:blob:{name}:{index}"


def batch(key: BatchKey) -> str:
    """Beginning of the keys of one batch."""
    return f"{prefix(key.run)}:{key.purpose}:{key.step}:{key.round}"


def batch_index(key: BatchKey) -> str:
    """Set: every key that was written for the batch, so that one call can sweep them."""
    return f"{batch(key)}:index"


def call(key: CallKey) -> str:
    """Hash: claim and result of one stage call."""
    return f"{batch(key)}:call:{key.stage}:{key.operation}:{key.shard}:{key.segment}"


def queue(key: BatchKey, shard: int) -> str:
    """List: items assigned to one actor."""
    return f"{batch(key)}:queue:{shard}"


def offered(key: BatchKey) -> str:
    """List: items that any actor may take."""
    return f"{batch(key)}:offered"


def plan(key: BatchKey) -> str:
    """Hash: number of actors' queues, and the fence that last put items; present once there are items."""
    return f"{batch(key)}:plan"


def leases(key: BatchKey) -> str:
    """Sorted set: item by the time its lease ends, in milliseconds."""
    return f"{batch(key)}:leases"


def holders(key: BatchKey) -> str:
    """Hash: who holds an item's lease."""
    return f"{batch(key)}:holders"


def deliveries(key: BatchKey) -> str:
    """Hash: how often an item was handed out."""
    return f"{batch(key)}:deliveries"


def lease_replies(key: BatchKey) -> str:
    """Hash: what each worker's last request for items was answered."""
    return f"{batch(key)}:lease-replies"


def samples(key: BatchKey) -> str:
    """Hash: finished completions by sample."""
    return f"{batch(key)}:samples"


def partials(key: BatchKey) -> str:
    """Hash: unfinished completions by sample."""
    return f"{batch(key)}:partials"


def mail(key: BatchKey) -> str:
    """List: messages to workers, oldest first, each after the shard that it is meant for (``*``: all)."""
    return f"{batch(key)}:mail"


def progress(key: BatchKey) -> str:
    """Hash: what each worker last said of its work, by shard."""
    return f"{batch(key)}:progress"


def prefix_kv(run: str) -> str:
    """Beginning of the keys of the run's prefix KV."""
    return f"{prefix(run)}:prefix-kv:"


def prefix_kv_versions(run: str) -> str:
    """Sorted set: weights digests that KV is kept of, by the time something was last stored, in milliseconds."""
    return f"{prefix_kv(run)}versions"


def prefix_kv_handles(run: str, weights_digest: str) -> str:
    """Hash: handle by scope and block."""
    return f"{prefix_kv(run)}{weights_digest}:handles"


def prefix_kv_sizes(run: str, weights_digest: str) -> str:
    """Hash: size of each blob of one policy version."""
    return f"{prefix_kv(run)}{weights_digest}:sizes"


def prefix_kv_bytes(blob_id: str) -> str:
    """String with expiry: one blob of prefix KV."""
    return f"{prefix_kv(blob_id.partition('/')[0])}bytes:{blob_id}"
