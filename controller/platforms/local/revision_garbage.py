"""Which old revisions are forgotten. Pure.

Source: Knative's ConfigMap ``config-gc``: ``min-non-active-revisions`` 20. Its ages (24 h and more) mean nothing here,
where revisions live no longer than the platform.
"""

from collections.abc import Collection, Sequence

NUM_KEPT = 20


def outdated(revisions: Sequence[str], referenced: Collection[str], *, num_kept: int = NUM_KEPT) -> list[str]:
    """Of the names, oldest first, those that nothing refers to and that are older than the ``num_kept`` newest such."""
    unreferenced = [name for name in revisions if name not in referenced]
    return unreferenced[: max(0, len(unreferenced) - num_kept)]
