"""What `make compose` says without an engine, and that it takes everything down when it is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import compose

# Says what it is asked for, and builds until it is interrupted.
FAKE = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # one that comes before it is waited for counts too
print(sys.argv[5], flush=True)
if sys.argv[5] == "build":
    print("building", flush=True)
    signal.sigwait({signal.SIGINT})
    print("built", flush=True)
"""


@pytest.mark.parametrize("command", ["false", "there-is-no-such-command"])
def test_without_an_engine_it_says_what_it_needs(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compose, "COMMAND", [command])
    assert compose.main() == 3
    assert "needs a Docker engine" in capsys.readouterr().out


def test_interrupted_it_waits_for_what_it_began_and_takes_everything_down(tmp_path: Path) -> None:
    fake = tmp_path / "fake.py"
    fake.write_text(FAKE)
    seen = []
    with subprocess.Popen(
        [sys.executable, compose.__file__],
        env={**os.environ, "DOCKER_COMPOSE": f"{sys.executable} {fake}"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line.strip())
            if seen[-1] == "building":
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert [line for line in seen if " " not in line] == ["down", "build", "building", "built", "down"]
