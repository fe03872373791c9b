"""From a sequence whose turn has ended to the tokens to insert before the next one.

Sampled tokens are never tokenised again: what is inserted is tokenised by itself and appended to their ids.
"""

from functions.rollout.engine import GeneratedTokens
from functions.rollout.turns.environment import Environment, Turn
from functions.rollout.turns.spans import insertions, last_turn, turn_starts
from functions.rollout.turns.tools import TOOLS
from shared.contracts.rollout import MultiTurn
from shared.modeling.tokenizer import Tokenizer


class TurnLoop:
    """A tool between the turns, up to a number of turns. Keeps nothing: all it needs is in the sequence."""

    def __init__(self, environment: Environment, tokenizer: Tokenizer, *, max_turns: int) -> None:
        self._environment = environment
        self._tokenizer = tokenizer
        self._max_turns = max_turns

    @classmethod
    def of(cls, multi_turn: MultiTurn, tokenizer: Tokenizer) -> "TurnLoop":
        """The loop that a call asks for."""
        return cls(TOOLS[multi_turn.tool](), tokenizer, max_turns=multi_turn.max_turns)

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end a turn."""
        return self._environment.stop

    def next_turn(self, sequence: GeneratedTokens, stop: str | None) -> tuple[int, ...]:
        """See `functions.rollout.engine.NextTurn`. The last turn that is allowed gets no answer."""
        if len(turn_starts(sequence.loss_mask)) >= self._max_turns:
            return ()
        token_ids = last_turn(sequence)
        text = self._tokenizer.decode(token_ids, skip_special_tokens=False)
        inserted = self._environment.answer(Turn(text=text, token_ids=token_ids, stop=stop))
        return tuple(self._tokenizer.fast.encode(inserted, add_special_tokens=False).ids) if inserted else ()

    def num_errors(self, sequence: GeneratedTokens) -> int:
        """Answers in the sequence that tell of a mistake."""
        texts = (self._tokenizer.decode(token_ids, skip_special_tokens=False) for token_ids in insertions(sequence))
        return sum(self._environment.is_error(text) for text in texts)
