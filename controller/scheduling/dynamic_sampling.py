"""How many more prompts to sample when groups without a signal are left out: dynamic sampling. Pure.

DAPO (arXiv 2503.14476, section 3.2) samples whole batches until enough groups have rewards that differ. Here a further
round draws only as many prompts as the share of useful groups so far makes necessary, so that less is thrown away.
"""

import math


def rows_to_draw(*, num_wanted: int, num_useful: int, num_drawn: int) -> int:
    """Prompts of the next round: the missing groups over the share that was useful; a batch at the most.

    0 when there are enough. Before anything is known, and where nothing was useful, it is the whole batch.
    """
    missing = num_wanted - num_useful
    if missing <= 0:
        return 0
    if num_useful == 0:
        return num_wanted
    return min(num_wanted, math.ceil(missing * num_drawn / num_useful))
