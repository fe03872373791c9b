"""The other ranks' processes, as the serving process has them: started, joined, ended together."""

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import functions
from functions.learner.ranks.channel import Channel, ChannelClosed, Message
from functions.learner.ranks.process_group import ProcessRanks, join
from functions.learner.ranks.worker import DONE, FAILED, READY

log = logging.getLogger(__name__)

START_TIMEOUT_S = 300.0
"""For its imports, on a machine that is busy with its own."""
END_TIMEOUT_S = 5.0
LOST_WAIT_S = 2.0
"""How long an exchange's failure may be ahead of the end of the process that caused it."""
POLL_S = 0.05
SECRET_PREFIXES = ("REDIS_", "RLHFLESS_")
"""Variables that ranks are not given: they reach no store and serve nobody."""


class CrewBroken(Exception):
    """A rank ended, or failed."""


@dataclass(frozen=True, slots=True)
class _Hand:
    """One other rank."""

    rank: int
    process: subprocess.Popen[bytes]
    channel: Channel


class Crew:
    """Ranks 1 to size − 1. Their processes start here; ``join`` makes them a group together with this one."""

    def __init__(self, size: int, *, instance: str, environment: Mapping[str, str], deterministic: bool) -> None:
        self.ranks: ProcessRanks | None = None
        """The group, once joined."""
        self._size = size
        self._folder = Path(tempfile.mkdtemp(prefix="rlhfless-ranks-"))
        self._hands: list[_Hand] = []
        self._lost: str | None = None
        try:
            for rank in range(1, size):
                arguments = ["--rank", str(rank), "--size", str(size), "--instance", instance]
                arguments += ["--deterministic"] if deterministic else []
                self._hands.append(_start(rank, [*arguments, "--rendezvous", str(self._folder)], environment))
        except BaseException:
            self.kill()
            raise

    def join(self) -> ProcessRanks:
        """The group of all ranks; waits for the others. On the compute thread. Raises ``CrewBroken``."""
        if self.ranks is None:
            self._expect(READY, START_TIMEOUT_S)
            self.ranks = join(self._folder, 0, self._size)
        return self.ranks

    def order(self, message: Message) -> None:
        """Tell every other rank. Raises ``CrewBroken``."""
        try:
            for hand in self._hands:
                hand.channel.send(message)
        except ChannelClosed as error:
            raise CrewBroken(self.why_lost() or "a rank does not listen") from error

    def expect_done(self) -> None:
        """Wait until every other rank has made what it was told. Raises ``CrewBroken``."""
        self._expect(DONE, None)

    def is_whole(self) -> bool:
        """Whether all processes are alive."""
        return all(hand.process.poll() is None for hand in self._hands)

    def why_lost(self) -> str | None:
        """Which rank ended and how, in words; ``None`` where none did, soon after an exchange failed."""
        until = time.monotonic() + LOST_WAIT_S
        while self._lost is None and time.monotonic() < until:
            self.note_lost()
            time.sleep(POLL_S)
        return self._lost

    def note_lost(self) -> None:
        """Remember the first rank that ended: those after it will be ended for its sake."""
        for hand in self._hands:
            status = hand.process.poll()
            if status is not None and self._lost is None:
                how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
                self._lost = f"rank {hand.rank} {how}{_last_words(hand)}"

    def kill(self) -> None:
        """End the processes at once. From any thread."""
        for hand in self._hands:
            hand.process.kill()
        for hand in self._hands:
            hand.process.wait()

    def leave(self, *, broken: bool) -> None:
        """End the group and all that belongs to it. On the compute thread."""
        for hand in self._hands:
            hand.channel.close()
        for hand in self._hands:
            with contextlib.suppress(subprocess.TimeoutExpired):
                hand.process.wait(0 if broken else END_TIMEOUT_S)
        self.kill()
        if self.ranks is not None:
            if broken:
                self.ranks.abort()
            self.ranks.leave()
            self.ranks = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _expect(self, kind: str, timeout_s: float | None) -> None:
        for hand in self._hands:
            try:
                message = hand.channel.receive(timeout_s)
            except (ChannelClosed, TimeoutError) as error:
                raise CrewBroken(self.why_lost() or f"rank {hand.rank} is silent: {error}") from error
            if message.body["kind"] != kind:
                raise CrewBroken(f"rank {hand.rank}: {message.body.get('error', message.body['kind'])}")


def _start(rank: int, arguments: Sequence[str], environment: Mapping[str, str]) -> _Hand:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "functions.learner.ranks.worker", *arguments),
                *("--channel-fd", str(theirs.fileno()), "--parent", str(os.getpid())),
            ],
            env=rank_environment(environment),
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
    log.info("started rank %d as process %d", rank, process.pid)
    return _Hand(rank, process, Channel(ours))


def rank_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without its secrets, and with the place that it imports from."""
    kept = {name: value for name, value in environment.items() if not name.startswith(SECRET_PREFIXES)}
    root = str(Path(functions.__file__).resolve().parents[1])
    return kept | {"PYTHONPATH": os.pathsep.join([root, *filter(None, [kept.get("PYTHONPATH")])])}


def _last_words(hand: _Hand) -> str:
    """What it said of its failure, if it had the time."""
    with contextlib.suppress(ChannelClosed, TimeoutError):
        while True:
            message = hand.channel.receive(POLL_S)
            if message.body["kind"] == FAILED:
                return f": {message.body['error']}"
    return ""
