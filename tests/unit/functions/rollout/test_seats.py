"""What runs in an engine, as the loop knows it."""

from functions.rollout.engine import GeneratedTokens, SequenceRequest
from functions.rollout.seats import Seats, Waiting
from shared.contracts.completion import SampleId, Stay
from tests.unit.functions.rollout.batch_world import stay


def waiting(sample: int, *, num_tokens: int = 0, stays: tuple[Stay, ...] = ()) -> Waiting:
    request = SequenceRequest(
        row_uid="row",
        sample=sample,
        prompt_token_ids=(5, 6, 7),
        seed=0,
        generated=GeneratedTokens(token_ids=(9,) * num_tokens),
    )
    return Waiting(request=request, stays=stays)


class Counted:
    """Seats, and the steps of the engine."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.seats = Seats(2, "here", lambda: self.num_steps)

    def tokens(self) -> dict[int, int]:
        return {sequence.sample: sequence.num_tokens for sequence in self.seats.progress()}


def test_each_step_is_a_token_of_each_sequence_from_when_it_came() -> None:
    counted = Counted()
    counted.seats.enter([waiting(0), waiting(1, num_tokens=4)], 1.0)
    counted.num_steps = 3
    counted.seats.enter([waiting(2)], 2.0)
    counted.num_steps = 5
    assert counted.tokens() == {0: 5, 1: 9, 2: 2}
    assert counted.seats.context_tokens(counted.seats.progress()) == 3 * 3 + 5 + 9 + 2
    counted.seats.leave(SampleId("row", 1), num_tokens=9, now=3.0)
    assert counted.seats.ids() == [SampleId("row", 0), SampleId("row", 2)]
    counted.seats.clear()
    assert counted.tokens() == {}


def test_a_stay_begins_with_the_place_and_its_first_token_is_that_of_the_first_step_after() -> None:
    counted, before = Counted(), stay("there", num_tokens=4)
    counted.seats.enter([waiting(0, num_tokens=4, stays=(before,))], 10.0)
    counted.seats.note_tokens(11.0)
    counted.seats.enter([waiting(1)], 12.0)
    counted.seats.note_tokens(13.0)
    assert counted.seats.leave(SampleId("row", 0), num_tokens=20, now=14.0) == (
        before,
        Stay(shard=2, instance="here", started_at=10.0, first_token_at=11.0, ended_at=14.0, num_tokens=20),
    )
    [only] = counted.seats.leave(SampleId("row", 1), num_tokens=2, now=15.0)
    assert only.first_token_at == 13.0


def test_who_leaves_before_the_first_step_has_no_first_token() -> None:
    counted = Counted()
    counted.seats.enter([waiting(0)], 10.0)
    assert counted.seats.leave(SampleId("row", 0), num_tokens=0, now=11.0)[0].first_token_at is None


def test_coming_from_another_replica_counts_as_a_migration() -> None:
    counted = Counted()
    assert counted.seats.most_migrations == 0
    counted.seats.enter([waiting(0, stays=(stay("here"),))], 1.0)
    assert counted.seats.most_migrations == 0
    counted.seats.enter([waiting(1, stays=(stay("here"), stay("there")))], 1.0)
    assert counted.seats.most_migrations == 2
