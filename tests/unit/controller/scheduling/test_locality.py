"""Which actor runs where."""

import pytest

from controller.scheduling.locality import NO_ABILITY, PlacementAbility, Placements, TransferFigures, place_actors

FREE = TransferFigures()
SECONDS = (3.0, 9.0, 5.0, 1.0)


def place(
    ability: PlacementAbility, transfers: TransferFigures = FREE, *, apart: bool = False, enabled: bool = True
) -> Placements:
    return place_actors(SECONDS, ability, transfers, prefills_apart=apart, is_enabled=enabled)


def test_the_longest_runs_beside_the_learner_heavy_ones_near_light_ones_far() -> None:
    found = place(PlacementAbility(shares_learner=True, places_near=True, num_near=2))
    assert found.actors == ("near", "learner", "near", "far")
    assert found.prefill == "learner"
    assert found.unhonoured == ()


def test_what_the_platform_does_not_grant_is_named() -> None:
    found = place(NO_ABILITY, apart=True)
    assert set(found.actors) == {"anywhere"}
    assert [text.partition(":")[0] for text in found.unhonoured] == ["locality"] * 3
    assert "no rollout stage" in found.unhonoured[0]
    assert "no prefill stage" in found.unhonoured[1]
    assert "nodes" in found.unhonoured[2]


def test_a_learner_that_shares_its_process_still_leaves_the_nodes_to_the_platform() -> None:
    found = place(PlacementAbility(shares_learner=True))
    assert found.actors == ("anywhere", "learner", "anywhere", "anywhere")
    assert len(found.unhonoured) == 1


@pytest.mark.parametrize(("model_s", "num_late"), [(3.9, 0), (4.0, 0), (4.5, 1), (7.0, 2), (9.0, 3)])
def test_transfers_are_hidden_behind_the_longest(model_s: float, num_late: int) -> None:
    """L_model + L_KV + L_decode(i) <= L_prefill + L_decode(1): 5 s and 3 s and 1 s against 9 s."""
    ability = PlacementAbility(shares_learner=True, places_near=True, num_near=9)
    found = place(ability, TransferFigures(model_s=model_s))
    overlap = [text for text in found.unhonoured if text.startswith("overlap")]
    assert len(overlap) == (num_late > 0)
    if num_late:
        assert f"{num_late} of 3 actors" in overlap[0]


def test_a_long_prefill_hides_more() -> None:
    transfers = TransferFigures(prefill_s=10.0, model_s=9.0, kv_s=1.0)
    assert transfers.head_start_s == 0.0
    assert place(PlacementAbility(shares_learner=True, places_near=True), transfers).unhonoured == ()


def test_switched_off_nothing_is_placed_and_nothing_is_missed() -> None:
    found = place(NO_ABILITY, enabled=False)
    assert (set(found.actors), found.unhonoured) == ({"anywhere"}, ())


def test_a_single_actor_has_no_others() -> None:
    found = place_actors((2.0,), PlacementAbility(shares_learner=True), FREE, prefills_apart=False, is_enabled=True)
    assert (found.actors, found.unhonoured) == (("learner",), ())
