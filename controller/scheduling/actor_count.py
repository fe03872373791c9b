"""How many actors sample a batch: one per compute thread.

On cores that all actors share, two actors of one thread each outrun one actor of two threads, since small matrices
do not split well over threads; more actors than threads only wait for each other.
"""


def choose_num_actors(num_items: int, num_threads: int, max_actors: int) -> int:
    """Number of actors, at least 1, for so many work items."""
    return max(1, min(num_items, num_threads, max_actors))
