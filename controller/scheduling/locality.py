"""Which actor runs where, and what cannot be had.

RLHFless (arXiv 2602.22718, section on locality-aware placement): the prefill runs on the learner's GPUs, so no weights
move and nothing is sharded anew; the actor with the longest prompts runs there too and starts at once; the others come
in the order of their weight, heavy ones near (on the same node), light ones far. The transfers to the others are hidden
if for every actor i but the first

    L_model + L_KV + L_decode(i) <= L_prefill + L_decode(1),

which is a constraint of scaling (``actor_count``). Plain Knative can place nothing: node selection and affinity need
feature flags, and two Services share no process. What the platform does not grant is named in the plan, never assumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Place = Literal["learner", "near", "far", "anywhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementAbility:
    """What the platform can do about places."""

    shares_learner: bool = False
    """Whether the learner's process also has the stages rollout and prefill."""
    places_near: bool = False
    """Whether replicas can be put on the learner's node."""
    num_near: int = 0
    """Actors that fit there."""


NO_ABILITY = PlacementAbility()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFigures:
    """What the overlap constraint is made of, in seconds."""

    prefill_s: float = 0.0
    """L_prefill."""
    model_s: float = 0.0
    """L_model: fetch and load of the weights by another replica."""
    kv_s: float = 0.0
    """L_KV: fetch of prefix keys and values by another replica; 0 where actors prefill."""

    @property
    def head_start_s(self) -> float:
        """How much longer the first actor may decode than each of the others, at least, for all to be hidden."""
        return self.prefill_s - self.model_s - self.kv_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Where every actor runs, and what of it the platform does not grant."""

    actors: tuple[Place, ...]
    prefill: Place
    unhonoured: tuple[str, ...]


def place_actors(
    actor_seconds: Sequence[float],
    ability: PlacementAbility,
    transfers: TransferFigures,
    *,
    prefills_apart: bool,
    is_enabled: bool,
) -> Placements:
    """Places by expected seconds, the longest beside the learner. Disabled, everything runs anywhere."""
    places: list[Place] = ["anywhere" for _ in actor_seconds]
    if not is_enabled:
        return Placements(actors=tuple(places), prefill="anywhere", unhonoured=())
    by_weight = sorted(range(len(actor_seconds)), key=lambda actor: -actor_seconds[actor])
    unhonoured = []
    rest = by_weight
    if ability.shares_learner:
        places[by_weight[0]] = "learner"
        rest = by_weight[1:]
        hidden_s = transfers.prefill_s + actor_seconds[by_weight[0]] - transfers.model_s - transfers.kv_s
        late = [actor for actor in rest if actor_seconds[actor] > hidden_s + 1e-9]
        if late:
            most = max(actor_seconds[actor] for actor in late) - hidden_s
            unhonoured.append(
                f"overlap: {len(late)} of {len(rest)} actors end up to {most:.3g} s after the one beside the learner"
            )
    else:
        unhonoured.append("locality: the learner's process has no rollout stage, so every actor loads the weights")
        if prefills_apart:
            unhonoured.append("locality: the learner's process has no prefill stage, so prefill loads the weights")
    if not rest:
        pass
    elif ability.places_near:
        for rank, actor in enumerate(rest):
            places[actor] = "near" if rank < ability.num_near else "far"
    else:
        unhonoured.append("locality: the platform chooses the nodes, so heavy actors may run far from the learner")
    prefill: Place = "learner" if ability.shares_learner else "anywhere"
    return Placements(actors=tuple(places), prefill=prefill, unhonoured=tuple(unhonoured))
