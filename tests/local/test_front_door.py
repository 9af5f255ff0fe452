"""README's own pipeline, followed to the letter: Kafka, a topic, `new`, `try`, `run`, and the result.

Only Kafka's port is another, because 9092 may be somebody's, and `make setup` stays away: `make test` and
`make test-all` begin with the same two steps, and .ci/run calls it in a bare clone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fencepost_stack.ports import LOOPBACK, any_free_port
from local.local_stack import SHARED_JARS

pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETUP = "make setup\n"


def test_a_reader_of_the_readme_has_a_published_batch_of_a_topic_of_their_own(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / ".fencepost").mkdir(parents=True)
    (checkout / ".fencepost" / "jars").symlink_to(SHARED_JARS)
    (checkout / ".venv").symlink_to(ROOT / ".venv")
    port = any_free_port()
    ours = ("KAFKA_", "FENCEPOST_", "SCHEMA_REGISTRY", "VIRTUAL_ENV", "PYTHONPATH", "AIRFLOW_", "PYSPARK_", "SPARK_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment |= {
        "FENCEPOST_KAFKA_PORT": str(port),
        "FENCEPOST_STATE": str(checkout / ".fencepost"),
        "FENCEPOST_PIPELINES": str(checkout / "include" / "pipelines"),
        "COLUMNS": "80",
    }

    def follow(commands: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-euc", commands.replace("127.0.0.1:9092", f"{LOOPBACK}:{port}")],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    first, *then = COMMANDS.findall(README)
    assert first.startswith(SETUP)
    try:
        started, drafted, result = map(follow, [first.removeprefix(SETUP), *then])
    finally:
        subprocess.run([".venv/bin/fencepost", "down"], cwd=checkout, env=environment, check=True, capture_output=True)
    assert "Created topic orders." in started
    run = next(line for line in drafted if line.startswith("fencepost run "))
    assert f".venv/bin/{run}" in README
    assert any(line.startswith("would pass") for line in drafted)
    orders = [json.loads(line) for line in result if line.startswith("{")]
    wanted = [n for n in range(200, 400) if n != 300]
    assert sorted(int(order["order_id"][1:]) for order in orders) == wanted
    assert orders[0].keys() == {"order_id", "country", "cents", "user_id"}
