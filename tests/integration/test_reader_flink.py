"""`examples/readers/published_batches.sql` in Flink: what counts after each decision, whole, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.flink import Flink, install
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.steps.advance import skip_batch
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.state_folder import StateFolder
from integration.test_announcements import ABSOLUTE, KEEPING, RULE, TOLERANT, announced
from integration.test_readers import EXAMPLES, fill, in_force
from kafka_tools import create_topic, produce
from makers import a_decision
from steps import replay, run

pytestmark = pytest.mark.deep

Make = Callable[..., Pipeline]
SET = "SET 'execution.runtime-mode' = 'batch'"  # for the SQL client; here the session's settings say so


@pytest.fixture
def flink(tmp_path: Path) -> Flink:
    """Flink's environment beside this one, which benchmarks have too: installed once."""
    return Flink(install(StateFolder.default()), tmp_path / "flink", 2)


def statements(bootstrap: str, pipeline: str, output: str, folder: Path) -> list[str]:
    """The example with a reader's own names."""
    text = (EXAMPLES / "published_batches.sql").read_text()
    own = {
        "'kafka:9092'": f"'{bootstrap}'",
        "'fencepost.orders.published'": f"'fencepost.{pipeline}.published'",
        "'orders'": f"'{output}'",
        "'/var/lib/reports/": f"'{folder}/",
    }
    for name, value in own.items():
        assert name in text
        text = text.replace(name, value)
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    found = [one.strip() for one in lines.split(";\n") if one.strip()]
    assert found[0] == SET
    return [one.removesuffix(";") for one in found[1:]]


def rows(folder: Path) -> list[Any]:
    """What Flink's sink wrote."""
    return [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]


def test_flink_has_what_counts_and_says_what_is_incomplete(
    spark: Any, broker: Broker, make_pipeline: Make, flink: Flink, tmp_path: Path
) -> None:
    """Replayed, reprocessed after newer ones, skipped; then an announcement with a record more than there is."""
    made = make_pipeline(KEEPING, RULE, quality=TOLERANT)
    fill(broker, made)
    for number in (1, 2):
        run(spark, made, day(number))
    fixed = make_pipeline(ABSOLUTE, RULE, name=made.name, quality=TOLERANT)
    run(spark, fixed, day(1), reprocess=True)
    replay(spark, fixed, day(2))
    plan_batch(fixed, day(3))
    skip_batch(fixed, day(3), a_decision("skip"))
    flink.run_once(statements(broker.bootstrap, made.name, made.output.name, tmp_path))
    found = rows(tmp_path / "result")
    assert Counter((row["n"], row["doubled"]) for row in found) == in_force(fixed)
    assert {
        row["revision"] for row in found if row["interval"] == str(day(1).start.strftime("%Y-%m-%dT%H:%M:%SZ"))
    } == {2}
    assert rows(tmp_path / "incomplete") == []

    wrong = {**announced(fixed)[2].json, "rows": 100}
    create_topic(broker.bootstrap, f"fencepost.{made.name}x.published", 1)
    produce(broker.bootstrap, f"fencepost.{made.name}x.published", [(b"k", wrong, 0, at(1))])
    flink.run_once(statements(broker.bootstrap, f"{made.name}x", made.output.name, tmp_path))
    assert rows(tmp_path / "result") == []
    (missing,) = rows(tmp_path / "incomplete")
    assert (missing["batch"], missing["rows"]) == (wrong["batch"], 100)
    assert 0 < missing["found"] < 100
