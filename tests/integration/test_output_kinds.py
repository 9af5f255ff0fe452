"""A kind of output that only tests have (`tests/kinds/files`): one package and one line. The product knows nothing of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.examination import examine
from fencepost.errors import SettingsError, Superseded
from fencepost.findings import Level
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.output_kinds import OUTPUT_KINDS
from fencepost.outputs.output import missing_of, output_of
from fencepost.reading.validated import read_validated
from fencepost.steps.advance import advance_batch, begin_batch, skip_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, group_offsets, produce
from kinds.files.store import Files
from makers import a_decision
from steps import announced, kafka_of, latest, plan_and_write, run
from tables import ROWS

Make = Callable[..., Pipeline]


@pytest.fixture
def pipeline(make_pipeline: Make, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose output is a folder of files, with six records on the first day and four on the second."""
    monkeypatch.setitem(OUTPUT_KINDS, "files", "kinds.files")
    output = {"kind": "files", "folder": str(tmp_path / "numbers"), "partitions": 2}
    made = make_pipeline(ROWS, output=output)
    create_topic(broker.bootstrap, made.source.topic, 2)
    for number, values in ((1, range(6)), (2, range(10, 14))):
        records = [(b"k", {"n": n, "name": "ü"}, n % 2, at(number) + n) for n in values]
        produce(broker.bootstrap, made.source.topic, records)
    return made


def numbers_in(pipeline: Pipeline, number: int) -> dict[int, list[int]]:
    """The numbers in a day's file, by revision."""
    values = Files(pipeline.output.name).read(day(number).start).values
    return {revision: sorted(json.loads(row)["n"] for row in rows) for revision, rows in values.items()}


def test_a_kind_that_only_tests_have_goes_through_every_step_and_is_looked_at_and_read(
    spark: Any, broker: Broker, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_and_write(spark, pipeline, day(1))
    assert validate_batch(spark, pipeline, day(1)).state is State.WRITTEN
    assert numbers_in(pipeline, 1) == {}, "readers see nothing of it before it has passed"
    done = advance_batch(pipeline, day(1))
    assert done.message == f"published revision 1, as one file of folder {pipeline.output.name}"
    assert advance_batch(pipeline, day(1)).message == "already published, revision 1"
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert run(spark, pipeline, day(1), reprocess=True).revision == 2
    assert (numbers_in(pipeline, 1), numbers_in(pipeline, 2)) == ({2: [*range(6)]}, {1: [*range(10, 14)]})
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == {0: 5, 1: 5}
    assert group_offsets(broker.bootstrap, pipeline.validated_group, pipeline.source.topic, [0]) == {}

    event = announced(pipeline, day(1))
    assert (event["kind"], event["output"], event["topic_id"]) == ("files", pipeline.output.name, None)
    read = read_validated(spark, event, kafka=kafka_of(pipeline))
    assert sorted(tuple(row) for row in read.collect()) == [(n, 2 * n, "ü") for n in range(6)]

    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    shown = CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["status", pipeline.name, "--json"], catch_exceptions=False)
    assert json.loads(shown.stdout)["output_lacks"] is None
    found = {one.check: one for one in examine(pipeline)}
    assert (found["folder"].level, found["files"].level) == (Level.OK, Level.OK)
    assert [one.check for one in found.values() if one.level is Level.ERROR] == []
    shutil.rmtree(pipeline.output.name)
    assert "does not have what the ledger has published there in 2 intervals" in missing_of(Deployment.of(pipeline))
    found = {one.check: one for one in examine(pipeline)}
    assert (found["folder"].level, found["files"].level) == (Level.ERROR, Level.SKIPPED)


@pytest.mark.deep
def test_a_publication_that_was_given_up_never_commits_late_whatever_the_kind(spark: Any, pipeline: Pipeline) -> None:
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    begin_batch(pipeline, day(1))
    zombie = latest(pipeline, day(1))
    assert zombie.state is State.PUBLISHING
    assert skip_batch(pipeline, day(1), a_decision("skip")).state is State.SKIPPED
    with pytest.raises(Superseded):
        output_of(Deployment.of(pipeline), zombie).publish(zombie, None)
    assert numbers_in(pipeline, 1) == {}


def test_a_setting_of_another_kind_is_refused_with_those_that_the_kind_has(pipeline: Pipeline) -> None:
    file = pipeline.folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("partitions: 2", "partitions: 2\n  publish: direct"))
    with pytest.raises(SettingsError, match=r"output\.publish: unknown field; allowed here are kind, folder, "):
        load_pipeline(pipeline.folder)
    file.write_text(file.read_text().replace("kind: files", "kind: csv"))
    with pytest.raises(SettingsError, match=r"output: kind is topic or postgres or iceberg or files\."):
        load_pipeline(pipeline.folder)
