"""Finds where a stop string is complete, however tokens cut it."""

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"
"""What bytes decode to that are no whole character, or not yet."""


class StopSearch:
    """Follows the text of one turn, token by token.

    A token's text depends on the tokens around it (leading spaces, characters cut into bytes), so that tokens are
    decoded together with the ones before them, from a place where all characters are whole; only what that adds is new.
    """

    def __init__(self, stop: Sequence[str], decode: Callable[[Sequence[int]], str]) -> None:
        self._stop = stop
        self._decode = decode
        self._num_kept = max(len(string) for string in stop) - 1
        self.restart()

    def restart(self) -> None:
        """Another turn begins."""
        self._before = ""
        """End of the text before the new tokens: as much of it as a stop string may have begun in."""
        self._window: list[int] = []
        """Tokens that were decoded before, for their effect on the new ones, then the new ones."""
        self._num_old = 0
        self._old_text = ""
        self._num_seen = 0
        """Characters of the new tokens' text that an earlier look has seen whole."""

    def follow(self, token_ids: Sequence[int]) -> None:
        """The turn's first tokens, which an earlier search has gone through."""
        for token_id in token_ids:
            self.add(token_id)

    def add(self, token_id: int) -> str | None:
        """The stop string that this token completes, if any."""
        self._window.append(token_id)
        new = self._decode(self._window)[len(self._old_text) :]
        text = self._before + new
        num_searched = len(self._before) + self._num_seen
        found = next((s for s in self._stop if text.find(s, max(0, num_searched - len(s) + 1)) >= 0), None)
        if new.endswith(UNFINISHED):
            self._num_seen = len(new.rstrip(UNFINISHED))
        else:
            self._before = text[max(0, len(text) - self._num_kept) :]
            self._window = self._window[self._num_old :]
            self._num_old = len(self._window)
            self._old_text = self._decode(self._window)
            self._num_seen = 0
        return found
