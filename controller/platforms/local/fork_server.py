"""Forks replicas from a process that has the slow imports behind it: ``python -m ...fork_server``.

One server per Python environment. It imports what it is told to, then answers lines of JSON on an inherited
socket. It has one thread, so that a fork copies a whole process. Needs the standard library only.

in:  {"spawn": ID, "argv": [...], "env": {...}, "log": PATH}    {"signal": ID, "number": 15, "group": false}
out: {"preloaded": [...], "failed": {MODULE: WHY}, "num_threads": 1}
     {"spawned": ID, "pid": 7}    {"refused": ID, "why": ...}    {"exited": ID, "status": -9}

The end of the control socket is the end of everything: each replica's process group is killed.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controller.platforms.local.settings import replace_process_environment

_PR_SET_PDEATHSIG = 1
_READ_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a forked child has to become."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    log: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the control socket ends. In a forked child it returns the program's own way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--preload", action="append", default=[])
    options = parser.parse_args(arguments)
    # Until the socket is listened to, only this tells that the controller is gone.
    end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=options.control_fd)
    control.set_inheritable(False)
    _send(control, preload(options.preload))
    end_with_parent(0)
    job = ForkServer(control).serve()
    if job is not None:
        become(job)


def preload(modules: Sequence[str]) -> dict[str, object]:
    """Import the modules that can be imported; say which, and why the others cannot."""
    preloaded, failed = [], {}
    for module in modules:
        try:
            importlib.import_module(module)
            preloaded.append(module)
        except (Exception, SystemExit) as error:  # what an import runs may raise anything
            failed[module] = f"{type(error).__name__}: {error}"
    gc.collect()
    # Objects that exist now are never looked at again, so that children share their pages.
    gc.freeze()
    return {"preloaded": preloaded, "failed": failed, "num_threads": len(os.listdir("/proc/self/task"))}


class ForkServer:
    """The loop between the control socket and the children."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._pids: dict[str, int] = {}
        self._unread = b""
        self._wakeup_read, self._wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_read, False)
        os.set_blocking(self._wakeup_write, False)

    def serve(self) -> Job | None:
        """None at the end of the control socket; in a forked child, its job."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wakeup_read, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._wakeup_read in ready:
                    os.read(self._wakeup_read, _READ_BYTES)
                    self._report_exits()
                if self._control in ready:
                    try:
                        received = self._control.recv(_READ_BYTES)
                    except ConnectionResetError:
                        received = b""
                    if not received:
                        self._kill_all()
                        return None
                    job = self._handle(received)
                    if job is not None:
                        return job

    def _handle(self, received: bytes) -> Job | None:
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "spawn" in message:
                job = Job(argv=tuple(message["argv"]), env=message["env"], log=message["log"])
                if self._spawn(message["spawn"], job):
                    return job
            elif message["signal"] in self._pids:
                pid = self._pids[message["signal"]]
                _kill(pid, message["number"], group=message["group"])
        return None

    def _spawn(self, replica: str, job: Job) -> bool:
        """Fork; True in the child."""
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._send({"refused": replica, "why": f"fork: {error}"})
            return False
        if pid == 0:
            self._become_child(parent)
            return True
        self._pids[replica] = pid
        self._send({"spawned": replica, "pid": pid})
        return False

    def _become_child(self, parent: int) -> None:
        os.setsid()
        end_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._control.close()
        os.close(self._wakeup_read)
        os.close(self._wakeup_write)

    def _report_exits(self) -> None:
        while True:
            try:
                # Look without reaping first: while the pid is taken, its group cannot be another's.
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            _kill(ended.si_pid, signal.SIGKILL, group=True)
            _, status = os.waitpid(ended.si_pid, 0)
            for replica in [name for name, pid in self._pids.items() if pid == ended.si_pid]:
                del self._pids[replica]
                self._send({"exited": replica, "status": os.waitstatus_to_exitcode(status)})

    def _kill_all(self) -> None:
        for pid in self._pids.values():
            _kill(pid, signal.SIGKILL, group=True)
        for pid in self._pids.values():
            os.waitpid(pid, 0)

    def _send(self, message: dict[str, object]) -> None:
        _send(self._control, message)


def become(job: Job) -> None:
    """Turn this forked child into the job: its log, environment and program.

    ``python -m MODULE`` runs in this process with what is imported already; anything else is executed anew.
    """
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(null)
    replace_process_environment(job.env)
    module = module_to_run(job.argv)
    if module is None:
        program = sys.executable if _is_python(job.argv[0]) else job.argv[0]
        os.execvpe(program, job.argv, job.env)
    sys.argv = list(job.argv[2:])
    # Its code runs again as __main__; that it is imported already would only raise a warning.
    sys.modules.pop(module, None)
    gc.unfreeze()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def module_to_run(argv: Sequence[str]) -> str | None:
    """MODULE of ``python -m MODULE ...``, None for any other program."""
    return argv[2] if len(argv) > 2 and _is_python(argv[0]) and argv[1] == "-m" else None


def end_with_parent(signal_number: int) -> None:
    """Ask the kernel for a signal when the parent dies (Linux); 0 asks for none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal_number) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def _is_python(program: str) -> bool:
    return Path(program).name in ("python", "python3")


def _kill(pid: int, number: int, *, group: bool) -> None:
    """Signal a child, and with it its group (which a child just forked does not lead yet)."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    if group:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)


def _send(control: socket.socket, message: dict[str, object]) -> None:
    # Where the controller is gone, the next read says so.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        control.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
