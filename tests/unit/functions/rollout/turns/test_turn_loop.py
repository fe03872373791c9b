"""From the end of a turn to the tokens of its answer: nothing sampled is tokenised again."""

from dataclasses import dataclass, field, replace

from functions.rollout.engine import GeneratedTokens, SamplingParams
from functions.rollout.torch_engine.engine import TorchEngine
from functions.rollout.turns.environment import Turn
from functions.rollout.turns.spans import insertions, turn_starts
from functions.rollout.turns.turn_loop import TurnLoop
from shared.contracts.rollout import MultiTurn
from tests.unit.functions.rollout.engine_runs import EOS, build, drain, in_order, make_requests
from tests.unit.functions.rollout.toy_tokenizers import byte_tokenizer, letter_tokenizer

LETTERS = letter_tokenizer()


@dataclass
class Scripted:
    """The ``Environment`` port: the same answer each time."""

    text: str | None
    stop: tuple[str, ...] = ("b",)
    turns: list[Turn] = field(default_factory=list)

    def answer(self, turn: Turn) -> str | None:
        self.turns.append(turn)
        return self.text

    def is_error(self, inserted: str) -> bool:
        return "0" in inserted


def sequence_of(text: str, mask: str) -> GeneratedTokens:
    """One token per character, however the tokenizer would merge them."""
    return GeneratedTokens(
        token_ids=tuple(LETTERS.fast.token_to_id(character) for character in text),
        loss_mask=tuple(character == "x" for character in mask),
    )


def test_the_environment_sees_the_last_turn_only_as_it_was_sampled() -> None:
    environment = Scripted("cd")
    loop = TurnLoop(environment, LETTERS, max_turns=3)
    sequence = sequence_of("hbcdab", "xx..xx")
    assert loop.next_turn(sequence, "b") == tuple(LETTERS.encode("cd"))
    assert environment.turns == [Turn(text="ab", token_ids=sequence.token_ids[4:], stop="b")]
    assert loop.stop == ("b",)


def test_the_last_turn_is_not_answered() -> None:
    environment = Scripted("cd")
    assert TurnLoop(environment, LETTERS, max_turns=2).next_turn(sequence_of("hbcdab", "xx..xx"), "b") == ()
    assert environment.turns == []


def test_no_answer_ends_the_completion() -> None:
    for text in (None, ""):
        assert TurnLoop(Scripted(text), LETTERS, max_turns=9).next_turn(sequence_of("ab", "xx"), "b") == ()


def test_answers_that_tell_of_a_mistake_are_counted() -> None:
    loop = TurnLoop(Scripted(None), LETTERS, max_turns=9)
    assert loop.num_errors(sequence_of("ab", "xx")) == 0
    assert loop.num_errors(sequence_of("0b00ab12h0b", "xx..xx..x.x")) == 2


def test_a_calculator_by_name() -> None:
    tokenizer = byte_tokenizer()
    loop = TurnLoop.of(MultiTurn(tool="calculator", max_turns=2), tokenizer)
    text = "<calc>12*7</calc>"
    question = GeneratedTokens(token_ids=tuple(tokenizer.encode(text)), loss_mask=(True,) * len(text))
    assert tokenizer.decode(loop.next_turn(question, "</calc>")) == "<result>84</result>"
    assert loop.stop == ("</calc>",)


def test_token_ids_in_are_token_ids_out_over_three_turns_of_pairs_that_merge() -> None:
    # The model samples "a", "b" apart, which the tokenizer would join; and "b" before an answer that begins with "c".
    loop = TurnLoop(Scripted("cd"), LETTERS, max_turns=3)
    params = SamplingParams(temperature=1.0, max_tokens=90, eos_token_ids=(EOS,), stop=loop.stop)
    requests = make_requests(num_prompts=6, group_size=8)
    engine = TorchEngine(build(), lambda: LETTERS)
    engine.add(requests, replace(params, stop=()))
    alone = in_order(drain(engine))
    engine.add(requests, params, loop.next_turn)
    answer = tuple(LETTERS.encode("cd"))
    redrawn = 0
    for sequence, single in zip(in_order(drain(engine)), alone, strict=True):
        assert all(inserted == answer for inserted in insertions(sequence))
        first = turn_starts(sequence.loss_mask)[1:2] or (len(sequence.token_ids) + len(answer),)
        # What the first turn sampled is what it samples without a tool, token for token.
        sampled = sequence.token_ids[: first[0] - len(answer)]
        assert sampled == single.token_ids[: len(sampled)]
        if len(turn_starts(sequence.loss_mask)) == 3:
            text = LETTERS.decode(sequence.token_ids, skip_special_tokens=False)
            redrawn += LETTERS.encode(text) != list(sequence.token_ids)
    assert redrawn > 5
