"""A side table that changes between a batch, its replay and a reprocess: what each says of it, and what it was written with."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import steps
from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, State, StepResult
from fencepost.quality.report import Report
from fencepost.steps.plan import plan_batch
from fencepost.steps.replay import plan_replay
from fencepost.steps.run_interval import run_interval
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all

SETTINGS: dict[str, Any] = {
    "source": {"schema": {"n": "int", "carrier": "string"}},
    "tables": {"airlines": {"file": "airlines.csv", "key": "carrier"}},
    "output": {"key": "_key"},
    "schedule": {"start": "2026-01-01"},
    "quality": {"quarantine_limit": "none"},
}
TRANSFORM = """
SELECT s._key, s._record, s.n, a.name FROM {source} AS s LEFT JOIN airlines AS a ON a.carrier = s.carrier
"""
SUITE = """
expectations:
  - {type: expect_column_values_to_not_be_null, severity: quarantine, kwargs: {column: name}}
"""
NUMBERS = count(1)  # of pipelines, which share a broker
FIRST = "carrier,name\nAA,American\nUA,United\n"
SECOND = f"{FIRST}WN,Southwest\n"
THIRD = SECOND.replace("American", "American Airlines")
CHANGED_ROWS = "side table airlines has changed since revision 1 (2 rows, now 3)"
SPAN = ("--start", "2026-01-01", "--end", "2026-01-02")


def write_of(spark: Any, pipeline: Pipeline, planned: StepResult) -> StepResult:
    """All four steps; what the write said."""
    results = [*run_interval(pipeline, day(1), lambda: spark, planned=planned)]
    return next(result for result in results if result.step == "write")


def report_of(batch: Batch) -> tuple[Report, str]:
    """The report of the batch's verdict, as programs and as people read it."""
    assert batch.verdict is not None
    file = Path(batch.verdict.report)
    return Report.model_validate_json(file.with_suffix(".json").read_text()), file.read_text()


@pytest.fixture
def pipeline(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Three records, of which the table does not know the carrier of one."""
    name = f"looked_up_{next(NUMBERS)}"
    folder = tmp_path / "pipelines" / name
    folder.mkdir(parents=True)
    own = {"source": {"topic": f"{name}-in"}, "output": {"topic": f"{name}-out"}}
    settings = {section: {**values, **own.get(section, {})} for section, values in SETTINGS.items()}
    settings["kafka"] = {"bootstrap.servers": broker.bootstrap}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    (folder / "transform.sql").write_text(TRANSFORM)
    (folder / "expectations.yaml").write_text(SUITE)
    (folder / "airlines.csv").write_text(FIRST)
    monkeypatch.setenv("FENCEPOST_REPORTS", str(tmp_path / "reports"))
    create_topic(broker.bootstrap, f"{name}-in", 1)
    records = [(b"k%d" % n, {"n": n, "carrier": c}, 0, at(1)) for n, c in enumerate(("AA", "UA", "WN"))]
    produce(broker.bootstrap, f"{name}-in", [*records, (b"late", {"n": 9, "carrier": "AA"}, 0, at(2))])
    return load_pipeline(folder)


def test_a_replay_and_a_reprocess_say_which_table_changed_and_the_reports_with_which_each_was_made(
    spark: Any, broker: Broker, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_of(spark, pipeline, plan_batch(pipeline, day(1)))
    assert first.message == "wrote revision 1: 3 records in, 2 out, 1 to quarantine"
    assert first.details["tables"] == {"airlines": 2}

    (pipeline.folder / "airlines.csv").write_text(SECOND)
    replayed = write_of(spark, pipeline, plan_replay(pipeline, day(1)))
    assert replayed.message == f"wrote revision 2: 1 record from quarantine, 1 out; {CHANGED_ROWS}"

    (pipeline.folder / "airlines.csv").write_text(THIRD)
    again = write_of(spark, pipeline, plan_batch(pipeline, day(1), reprocess=True))
    assert again.message == f"wrote revision 3: 3 records in, 3 out; {CHANGED_ROWS}"

    same = write_of(spark, pipeline, plan_batch(pipeline, day(1), reprocess=True))
    assert same.message == "wrote revision 4: 3 records in, 3 out", "the table is as it was"

    names = {(r.batch[-1], r.json["n"]): r.json["name"] for r in read_all(broker.bootstrap, pipeline.output.name)}
    assert names == {("1", 0): "American", ("1", 1): "United", ("2", 2): "Southwest"} | {
        (revision, n): name for revision in "34" for n, name in enumerate(("American Airlines", "United", "Southwest"))
    }

    batches = Ledger(pipeline).read().known(day(1)).all
    prints = [batch.plan.tables[0].fingerprint for batch in batches]
    assert len(set(prints[:3])) == 3
    assert prints[2] == prints[3]
    for batch, rows in zip(batches, (2, 3, 3, 3), strict=True):
        report, html = report_of(batch)
        (state,) = report.batch.plan.tables
        assert (state.name, state.rows, state.fingerprint) == ("airlines", rows, prints[batch.revision - 1])
        assert [one[:12] in html for one in prints] == [one == state.fingerprint for one in prints]

    steps.on_session(monkeypatch, spark, pipeline)
    diff = ["diff", pipeline.name, *SPAN, "--revisions", "1", "3", "--key", "n"]
    told = json.loads(CliRunner().invoke(app, [*diff, "--json"], catch_exceptions=False).stdout)
    changes = [(one["name"], one["revisions"], one["before"]["rows"], one["after"]["rows"]) for one in told["tables"]]
    assert changes == [("airlines", [1, 3], 2, 3)]
    assert (told["changed"], told["columns"], told["added"]) == (1, {"name": 1}, 1)
    shown = CliRunner().invoke(app, diff, catch_exceptions=False, env={"COLUMNS": "80"}).stdout.splitlines()
    at_line = shown.index(f"  {CHANGED_ROWS}:")
    assert [line.partition(" bytes, ")[2][:24] for line in shown[at_line + 1 : at_line + 3]] == [
        f"fingerprint {one[:12]}" for one in (prints[0], prints[2])
    ]
    unchanged = CliRunner().invoke(app, [*diff[:-4], "3", "4", *diff[-2:]], catch_exceptions=False).stdout
    assert "rows" in unchanged
    assert "side table" not in unchanged


def test_a_rejected_batch_is_written_again_once_its_table_is_corrected(spark: Any, pipeline: Pipeline) -> None:
    """The file is in no digest, so only a look at the table shows that the cure is there."""
    (pipeline.folder / "expectations.yaml").write_text(SUITE.replace("severity: quarantine, ", ""))
    (pipeline.folder / "transform.sql").write_text(TRANSFORM.replace("s._record, ", ""))
    rejected = load_pipeline(pipeline.folder)
    for _ in range(2):  # the same content is no reason
        with pytest.raises(BatchRejected):
            [*run_interval(rejected, day(1), lambda: spark, planned=plan_batch(rejected, day(1)))]
    (pipeline.folder / "airlines.csv").write_text(SECOND)
    write_of(spark, rejected, plan_batch(rejected, day(1)))
    first, second = Ledger(rejected).read().known(day(1)).batches
    assert (first.revision, first.state, second.revision, second.state) == (1, State.SUPERSEDED, 2, State.PUBLISHED)
    assert second.history[0].note == "side table changed since an earlier attempt read it: airlines"
