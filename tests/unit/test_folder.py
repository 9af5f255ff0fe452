"""What is wrong with a transform or a suite is known before anything is planned, and without Spark."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from fencepost.cli.app import app
from fencepost.config.loading import load_pipeline
from fencepost.doctor.folder import check_pipeline, check_schedule
from fencepost.errors import NoFreeLane, SettingsError, TopicRecreated
from fencepost.findings import Level
from fencepost.kafka.cluster import Topic
from fencepost.model import Interval, State, utc_now
from fencepost.protocol.view import View
from fencepost.rows.transform import load_transform
from fencepost.steps.plan import plan_batch
from unit.pages.ledgers import batch, hour

SETTINGS = """
source: {topic: in, schema: {n: int}}
output: {topic: out}
schedule: {start: 2026-01-01}
kafka: {bootstrap.servers: "127.0.0.1:1"}
"""
GOOD = "def transform(frame):\n    return frame\n"
SUITE = "expectations:\n  - {type: expect_column_values_to_not_be_null, kwargs: {column: n}}\n"


def folder(root: Path, files: dict[str, str]) -> Path:
    made = root / "p"
    made.mkdir()
    for name, text in ({"expectations.yaml": SUITE, "pipeline.yaml": SETTINGS} | files).items():
        (made / name).write_bytes(text.encode("latin-1"))
    return made


@pytest.mark.parametrize(
    "files",
    [
        {"transform.py": GOOD},
        {"transform.py": "\xef\xbb\xbf" + GOOD},
        {"transform.py": "# coding: latin-1\nX = '\xff'\n" + GOOD},
        {"transform.sql": "SELECT n -- all\nFROM {source}"},
    ],
)
def test_a_good_pipeline_passes_and_no_spark_is_started(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", lambda self: asked.append("session"))
    monkeypatch.setattr("pyspark.SparkContext.__init__", lambda *_, **__: asked.append("context"))
    check_pipeline(load_pipeline(folder(tmp_path, files)))
    assert asked == []


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("transform.py", "def transform(frame:\n", "SyntaxError.*line 1"),
        ("transform.py", "import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("transform.py", "import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("transform.py", "class Stop(BaseException): ...\nraise Stop('x')\n", "Stop: x"),
        ("transform.py", "transform = 5\n", r"expected a function transform\(DataFrame\)"),
        ("transform.py", "x = '\xff'\n", "cannot be imported: SyntaxError.*utf-8"),
        ("transform.py", "x = 1\0\n", "cannot be imported"),
        ("transform.sql", " -- SELECT 1\n/* nothing */ \n", "empty; expected a SELECT"),
        ("transform.sql", "SELECT '\xff'", "not UTF-8 at byte 8"),
    ],
)
def test_a_transform_that_cannot_be_loaded_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}: .*{words}"):
        check_pipeline(load_pipeline(folder(tmp_path, {name: text})))


@pytest.mark.parametrize(
    ("one", "words"),
    [
        ("{type: expect_column_values_to_be_betwixt}", "unknown.*did you mean"),
        ("{type: expect_column_values_to_match_like_pattern}", "SQL only"),
        (
            "{type: expect_column_to_exist, kwargs: {column: n, row_condition: n > 1}}",
            "row_condition: unknown argument",
        ),
        ("{type: expect_column_to_exist, kwargs: {column: 5}}", "kwargs.column: Input should be a valid string"),
        (
            "{type: expect_column_values_to_match_regex, kwargs: {column: n, regex: 5}}",
            "kwargs.regex: Input should be a",
        ),
        ("{type: expect_batch_volume_like_history, kwargs: {at_least: 1}}", "at_least"),
    ],
)
def test_an_expectation_that_can_never_be_evaluated_is_named(tmp_path: Path, one: str, words: str) -> None:
    made = folder(tmp_path, {"transform.py": GOOD, "expectations.yaml": f"expectations:\n  - {one}\n"})
    with pytest.raises(SettingsError, match=rf"expectations.yaml: expectations\.0.*{words}"):
        check_pipeline(load_pipeline(made))


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (
            "quality: {quarantine_limit: 0.5}",
            r"quality\.quarantine_limit: not a section; its fields are rows, share \(found 0\.5\)",
        ),
        ("lineage: [x]", r"lineage: not a section; its fields are kafka, postgres"),
        ("output: 5", r"output: not a section \(found 5\)"),
        (
            "output: {kind: postgres, table: t, current: robots}",
            r"output\.current: not a section; its fields are table, key, order_by, deleted \(found 'robots'\)",
        ),
        (
            "output: {kind: postgres, table: t, current: {tabel: robots}}",
            r"output\.current\.tabel: unknown field; allowed here are table, key, order_by, deleted",
        ),
        ("output: {topic: out, fields: 3}", r"output\.fields: not a section of names and values \(found 3\)"),
        ("notify: 3", r"notify: not a list \(found 3\)"),
    ],
)
def test_a_value_in_the_place_of_a_section_is_told_the_fields_of_the_section(
    tmp_path: Path, section: str, words: str
) -> None:
    name = section.partition(":")[0]
    kept = [line for line in SETTINGS.strip().splitlines() if not line.startswith(f"{name}:")]
    with pytest.raises(SettingsError, match=f"pipeline.yaml: {words}"):
        load_pipeline(folder(tmp_path, {"pipeline.yaml": "\n".join([*kept, section]), "transform.py": GOOD}))


AIRLINES = "tables: {airlines: {file: lists/airlines.csv, key: carrier}}\n"
WITH_AIRLINES = "def transform(source, airlines):\n    return source\n"


def test_the_file_of_a_side_table_is_missed_before_anything_is_planned(tmp_path: Path) -> None:
    made = folder(tmp_path, {"transform.py": WITH_AIRLINES, "pipeline.yaml": SETTINGS + AIRLINES})
    pipeline, file = load_pipeline(made), made / "lists" / "airlines.csv"
    with pytest.raises(SettingsError) as raised:
        check_pipeline(pipeline)
    assert str(raised.value) == (
        f"pipeline p: side table airlines: {file}: does not exist. Put it there, or correct tables.airlines.file in "
        "pipeline.yaml."
    )
    file.mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"side table airlines: .* cannot be read: it is not a regular file"):
        check_pipeline(pipeline)
    file.rmdir()
    file.write_text("carrier,name\n")
    check_pipeline(pipeline)


def test_a_transform_without_the_side_table_is_refused_before_anything_is_planned(tmp_path: Path) -> None:
    made = folder(tmp_path, {"transform.py": GOOD, "pipeline.yaml": SETTINGS + AIRLINES})
    with pytest.raises(SettingsError, match=r"transform\.py: transform has no argument airlines"):
        check_pipeline(load_pipeline(made))


def test_a_transform_mended_within_the_same_second_is_the_one_that_runs(tmp_path: Path) -> None:
    """Python's own cache of compiled modules knows a text by second and size."""
    pipeline = load_pipeline(folder(tmp_path, {"transform.py": "X = 1\n" + GOOD}))
    first = load_transform(pipeline)
    pipeline.transform_file.write_text("X = 2\n" + GOOD)
    second = load_transform(pipeline)
    assert first is not None
    assert second is not None
    assert (first.X, second.X) == (1, 2)
    assert not (pipeline.folder / "__pycache__").exists()
    assert sys.modules[second.__name__] is second


def test_the_list_of_pipelines_names_what_a_run_would_stumble_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("FENCEPOST_STATE", str(tmp_path / ".state"))
    folder(tmp_path, {"transform.py": "def transform(frame:\n"})
    shown = CliRunner().invoke(app, ["pipelines"])
    assert shown.exit_code == 2
    assert "transform.py: cannot be imported: SyntaxError" in shown.stderr
    assert shown.stdout == ""


HOUR = hour(2)
HELD = [batch(0, State.PLANNED)]  # in lane 0, the only one


def test_a_plan_that_waits_for_a_lane_loads_neither_transform_nor_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks again every second; what is wrong with the pipeline is said when its turn has come."""
    (planned,) = HELD[0].plan.inputs
    files = {
        "transform.py": "def transform(frame:\n",
        "pipeline.yaml": SETTINGS.replace("topic: in", f"topic: {planned.topic}"),
    }
    broken = load_pipeline(folder(tmp_path, files))
    source = Topic(planned.topic, planned.topic_id, len(planned.ranges))
    monkeypatch.setattr("fencepost.steps.plan.ready", lambda *_, **__: Mock())
    monkeypatch.setattr("fencepost.steps.plan.check_complete", lambda *_: None)

    def plan(view: View, interval: Interval = HOUR) -> None:
        ledger = SimpleNamespace(decide=lambda gather, decide: decide(view, gather(view)), read=lambda: view)
        cluster = SimpleNamespace(describe=lambda _: source)
        deployment: Any = SimpleNamespace(pipeline=broken, cluster=cluster, ledger=ledger)
        plan_batch(broken, interval, deployment=deployment)

    with pytest.raises(NoFreeLane, match="all 1 lanes are held"):
        plan(View.of(HELD))
    with pytest.raises(SettingsError, match="SyntaxError"):
        plan(View.of([batch(0)]))
    with pytest.raises(SettingsError, match="ends in the future"):  # no lane will fix that
        plan(View.of(HELD), Interval.of(utc_now(), utc_now() + timedelta(days=1)))
    source = Topic(planned.topic, "another", 1)
    with pytest.raises(TopicRecreated, match="deleted and created again"):  # nor that
        plan(View.of(HELD))


def test_a_schedule_that_is_cut_where_clocks_change_is_named_by_doctor_and_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lord_howe = "schedule: {start: 2026-01-01T00:30, cron: '30 * * * *', timezone: Australia/Lord_Howe}"
    settings = SETTINGS.replace("schedule: {start: 2026-01-01}", lord_howe)
    made = folder(tmp_path, {"transform.py": GOOD, "pipeline.yaml": settings})
    (found,) = check_schedule(load_pipeline(made))
    assert (found.level, "Clocks in Australia/Lord_Howe do not change by whole hours" in found.found) == (
        Level.WARNING,
        True,
    )
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    listed = CliRunner().invoke(app, ["pipelines"])
    assert "p: Clocks in Australia/Lord_Howe do not change by whole hours" in listed.stderr
    as_json = json.loads(CliRunner().invoke(app, ["pipelines", "--json"]).stdout)
    assert as_json["pipelines"][0]["warnings"] == [found.found]
    (made / "pipeline.yaml").write_text(settings.replace("30 *", "15,45 *").replace("T00:30", "T00:45"))
    (found,) = check_schedule(load_pipeline(made))
    assert found.level is Level.OK


@pytest.mark.parametrize(
    ("schedule", "first", "before"),
    [
        ("start: 2026-01-01T01:00, cron: '0 */6 * * *'", "2026-01-01T06:00+00:00", "2026-01-01T00:00+00:00"),
        ("start: 2026-01-01, timezone: Europe/Vienna", "2026-01-02T00:00+01:00", "2026-01-01T00:00+01:00"),
        (
            "start: 2026-07-01T00:30+05:00, timezone: America/New_York",
            "2026-07-01T00:00-04:00",
            "2026-06-30T00:00-04:00",
        ),
        ("start: 2026-01-01T00:00:00.5", "2026-01-02T00:00+00:00", "2026-01-01T00:00+00:00"),
        ("start: 2026-01-01", "", ""),
        ("start: 2026-03-29T02:30+01:00, cron: '30 2 * * *', timezone: Europe/Vienna", "", ""),  # clocks skip 02:30
        ("start: 0001-01-01", "", ""),  # no cron knows the year
    ],
)
def test_a_start_that_is_no_moment_of_the_cron_is_named_by_doctor_and_the_list_with_the_moments_around_it(
    schedule: str, first: str, before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS.replace("schedule: {start: 2026-01-01}", f"schedule: {{{schedule}}}")
    made = folder(tmp_path, {"transform.py": GOOD, "pipeline.yaml": settings})
    (found,) = check_schedule(load_pipeline(made))
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    listed = CliRunner().invoke(app, ["pipelines"])
    if not first:
        assert (found.level, listed.stderr) == (Level.OK, "")
        return
    assert found.level is Level.WARNING
    assert f"The first scheduled interval begins at the next one, {first}, so no scheduled run reads" in found.found
    assert found.do == f"Set schedule.start to {before} to include the interval before it, or to {first}."
    assert found.found in listed.stderr
