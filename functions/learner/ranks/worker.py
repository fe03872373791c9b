"""A rank other than 0: ``python -m functions.learner.ranks.worker``, started by the process that serves.

It takes orders from its channel and ends with it, or with the process that started it. Signals to end are that
process's to act on: it finishes its calls first, and this one has a part in them.
"""

import argparse
import ctypes
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import torch

from functions.learner.ranks.channel import Channel, ChannelClosed, Message
from functions.learner.ranks.member import Member
from functions.learner.ranks.order import ORDER, Order
from functions.learner.ranks.process_group import join
from shared.observability.logging import log_to_stderr

log = logging.getLogger(__name__)

READY, DONE, FAILED = "ready", "done", "failed"
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve orders until the channel ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--channel-fd", type=int, required=True)
    parser.add_argument("--rendezvous", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--instance", required=True)
    parser.add_argument("--deterministic", action="store_true")
    arguments = parser.parse_args()
    end_with(arguments.parent)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    log_to_stderr(instance=f"{arguments.instance}/rank-{arguments.rank}")
    channel = Channel(socket.socket(fileno=arguments.channel_fd))
    torch.use_deterministic_algorithms(arguments.deterministic)
    try:
        serve(channel, arguments.rank, arguments.size, arguments.rendezvous)
    except ChannelClosed:
        log.info("the serving process is gone or has ended its ranks")
    except Exception as error:
        log.exception("rank %d failed", arguments.rank)
        channel.send(Message({"kind": FAILED, "error": f"{type(error).__name__}: {error}"}))
        sys.exit(1)


def serve(channel: Channel, rank: int, size: int, rendezvous: Path) -> None:
    """Join the group, then follow order after order. Raises ``ChannelClosed`` at the end."""
    channel.send(Message({"kind": READY}))
    member = Member(join(rendezvous, rank, size))
    while True:
        message = channel.receive()
        assert message.body["kind"] == ORDER
        member.follow(Order.from_message(message))
        channel.send(Message({"kind": DONE}))


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, in whatever way."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit("the serving process ended before its rank began")


if __name__ == "__main__":
    main()
