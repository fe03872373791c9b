"""A calculator: `<calc>12*7</calc>` in a turn is answered by `<result>84</result>`."""

from functions.rollout.turns.arithmetic import NoArithmetic, evaluate, shown
from functions.rollout.turns.environment import Turn

OPEN, CLOSE = "<calc>", "</calc>"
ERROR = "<result>error</result>"


class Calculator:
    """The `Environment` port. What is no arithmetic is answered by `<result>error</result>`."""

    stop = (CLOSE,)

    def answer(self, turn: Turn) -> str | None:
        """See `Environment`. A turn that another stop string or an EOS ended is no question."""
        if turn.stop != CLOSE:
            return None
        asked, _, _ = turn.text.rpartition(CLOSE)
        _, opened, expression = asked.rpartition(OPEN)
        if not opened:
            return ERROR
        try:
            return f"<result>{shown(evaluate(expression))}</result>"
        except NoArithmetic:
            return ERROR

    def is_error(self, inserted: str) -> bool:
        """See `Environment`."""
        return inserted == ERROR
