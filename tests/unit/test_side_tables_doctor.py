"""The doctor reads files of side tables as a run does, without Spark, and names what a run would refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.examination import OF_FOLDER
from fencepost.doctor.run_check import run_check
from fencepost.doctor.side_tables import check_side_tables
from fencepost.errors import SettingsError, SideTableRefused
from fencepost.findings import Level

TABLE = {"file": "airlines.csv", "key": "carrier", "schema": {"carrier": "string", "name": "string"}}
GOOD = "carrier,name\nUA,United\nAA,American\n"


def pipeline_with(folder: Path, content: str | None, **settings: object) -> Pipeline:
    made = folder / "orders"
    made.mkdir()
    section = {
        "source": {"topic": "in", "schema": {"n": "int"}},
        "output": {"topic": "out"},
        "schedule": {"start": "2026-01-01"},
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "tables": {"airlines": {**TABLE, **settings}},
    }
    (made / "pipeline.yaml").write_text(yaml.safe_dump(section))
    (made / "transform.py").write_text("def transform(source, airlines):\n    return source\n")
    (made / "expectations.yaml").write_text("expectations: [{type: expect_table_row_count_to_be_between}]")
    if content is not None:
        (made / "airlines.csv").write_text(content)
    return load_pipeline(made)


def test_a_file_is_read_and_its_size_told_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext.__init__", lambda *_, **__: pytest.fail("a context"))
    assert check_side_tables in OF_FOLDER
    (found,) = run_check(check_side_tables, pipeline_with(tmp_path, GOOD))
    assert (found.level, found.check) == (Level.OK, "side tables")
    assert found.found == "side table airlines, file airlines.csv: 2 rows, 0.0 MB"


@pytest.mark.parametrize(
    ("content", "settings", "kind", "words"),
    [
        (None, {}, SettingsError, "airlines.csv: does not exist"),
        ("carrier,name\n", {}, SideTableRefused, "it has no rows. Fill it, or set not_empty: false"),
        (GOOD + "UA,Again\n", {}, SideTableRefused, "the key (carrier) is not unique"),
        ("code,name\nUA,United\n", {}, SideTableRefused, "it has no column carrier, which the schema declares"),
        ("carrier,name\nUA," + "x" * 2_000_000, {"max_megabytes": 1}, SideTableRefused, "max_megabytes is 1"),
    ],
)
def test_what_a_run_would_refuse_is_an_error_with_the_next_step(
    tmp_path: Path, content: str | None, settings: dict[str, object], kind: type, words: str
) -> None:
    (found,) = run_check(check_side_tables, pipeline_with(tmp_path, content, **settings))
    assert (found.level, found.kind) == (Level.ERROR, kind)
    assert words in found.found
