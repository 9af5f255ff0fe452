"""README's own pipeline, followed to the letter: its files, its commands, and what they give."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost_stack.broker import Broker
from fencepost_stack.state_folder import StateFolder

pytestmark = pytest.mark.deep

README = (Path(__file__).parents[2] / "README.md").read_text()
FILES = re.compile(r"^`(include/pipelines/[\w./]+)`[^\n]*\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_pipeline_of_the_front_door_publishes_what_its_commands_produce(tmp_path: Path, broker: Broker) -> None:
    """Only Kafka's address is another, and the folder that all is in."""
    for name, content in FILES.findall(README):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / ".fencepost").mkdir()
    (tmp_path / ".fencepost" / "jars").symlink_to(StateFolder.default().jars)
    place = {
        "KAFKA_BOOTSTRAP": broker.bootstrap,
        "FENCEPOST_PIPELINES": str(tmp_path / "include" / "pipelines"),
        "FENCEPOST_STATE": str(tmp_path / ".fencepost"),
        "FENCEPOST_SPARK_MASTER": "local[2]",
    }
    said = []
    for commands in COMMANDS.findall(README):
        done = subprocess.run(
            ["bash", "-euc", commands.replace("127.0.0.1:9092", broker.bootstrap)],
            cwd=tmp_path,
            env={**os.environ, **place},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said += done.stdout.splitlines()
    assert "Created topic orders." in said
    orders = sorted(
        (json.loads(line) for line in said if line.startswith("{")), key=lambda order: str(order["order_id"])
    )
    assert orders == [
        {"order_id": f"A{n}", "country": "AT", "paid_at": f"2025-12-31T23:{n + 1}0:00.000000Z", "euros": 12.5}
        for n in (0, 1)
    ]
