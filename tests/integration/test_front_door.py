"""README's own pipeline, followed to the letter on a bare clone: set-up, Kafka, a topic, `new`, `try`, `run`, and the result.

Only Kafka's port is another, because 9092 may be somebody's. Set-up downloads what the machine's caches do not have.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fencepost_stack.ports import LOOPBACK, any_free_port

pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_a_clone_has_a_published_batch_of_a_topic_of_its_own(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    port = any_free_port()
    ours = ("KAFKA_", "FENCEPOST_", "SCHEMA_REGISTRY", "VIRTUAL_ENV", "PYTHONPATH", "AIRFLOW_", "PYSPARK_", "SPARK_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment |= {"FENCEPOST_KAFKA_PORT": str(port), "COLUMNS": "80"}

    def follow(commands: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-euc", commands.replace("127.0.0.1:9092", f"{LOOPBACK}:{port}")],
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    try:
        set_up, drafted, result = map(follow, COMMANDS.findall((clone / "README.md").read_text()))
    finally:
        fencepost = clone / ".venv" / "bin" / "fencepost"
        if fencepost.exists():
            subprocess.run([str(fencepost), "down"], cwd=clone, env=environment, check=True, capture_output=True)
    assert "Created topic orders." in set_up
    run = next(line for line in drafted if line.startswith("fencepost run "))
    assert f".venv/bin/{run}" in (clone / "README.md").read_text()
    assert any(line.startswith("would pass") for line in drafted)
    orders = [json.loads(line) for line in result if line.startswith("{")]
    wanted = [n for n in range(200, 400) if n != 300]
    assert sorted(int(order["order_id"][1:]) for order in orders) == wanted
    assert orders[0].keys() == {"order_id", "country", "cents"}
