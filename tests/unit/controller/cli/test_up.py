"""``rlhfless up`` in a process of its own, with a stand-in for the stack that it runs."""

import signal
import subprocess
import sys

import pytest

STAND_IN = """
import sys, types, asyncio, uvicorn
from controller.settings import SettingsInvalid

async def app(scope, receive, send): ...

async def serve(settings, *, on_ready):
    try:
        {body}
    finally:
        await asyncio.sleep(0.01)
        print("cleaned", flush=True)

stack = types.ModuleType("controller.main")
stack.serve = serve
sys.modules["controller.main"] = stack
from controller.cli.main import main
sys.argv = ["rlhfless", "up"]
main()
"""
SERVING = "on_ready('http://here:1'); await uvicorn.Server(uvicorn.Config(app, port=0, lifespan='off')).serve()"
STARTING = "on_ready('http://here:1'); await asyncio.sleep(60)"


def up(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STAND_IN.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("body", [SERVING, STARTING])
def test_a_signal_ends_the_stack_in_order(body: str, number: signal.Signals) -> None:
    with up(body) as process:
        said = process.stdout.readline()
        if body == SERVING:
            while "running on" not in process.stderr.readline():
                pass
        process.send_signal(number)
        rest, errors = process.communicate()
    assert "http://here:1" in said
    assert "cleaned" in rest
    assert "Traceback" not in errors
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("raise SettingsInvalid('the port 8765 is taken')", 2, "error: the port 8765 is taken"),
        ("raise RuntimeError('no redis-server')", 1, "error: no redis-server"),
        ("raise RuntimeError", 1, "error: RuntimeError"),
    ],
)
def test_what_keeps_the_stack_from_starting_is_one_line(body: str, code: int, said: str) -> None:
    with up(body) as process:
        _, errors = process.communicate()
    assert process.returncode == code
    assert errors.startswith(said)
    assert len(errors.splitlines()) == 1
