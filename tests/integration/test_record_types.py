"""`source.only` in JSON: records of other types are counted, and are in no row, no limit and no quarantine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Outcome, State
from fencepost.preview.trace import location_of, trace_source
from fencepost.preview.trial import try_pipeline
from fencepost.preview.trial_input import of_interval
from fencepost.quality.quarantine import Accounts
from fencepost.testing.trial import Trials
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import latest, replay, run

Make = Callable[..., Pipeline]
DEEP = pytest.mark.deep
ROWS = 'def transform(frame):\n    return frame.select("_key", "n")\n'
SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]\n"
SCHEMA = {"n": "int not null"}


def source(*types: str, **more: Any) -> dict[str, Any]:
    values = {"schema": SCHEMA, "on_malformed": "quarantine", **more}
    return {**values, "only": {"field": "type", "values": list(types)}}


def fill(broker: Broker, pipeline: Pipeline) -> None:
    """Of type A five rows and one malformed record, of type C one malformed record, and fifty of others; one of no type."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    values: list[Any] = [{"type": "A", "n": n} for n in range(5)]
    values += [{"type": "A", "n": "text"}, {"type": "C", "n": "text"}, {"n": 1}]
    values += [{"type": "B", "n": ["anything"], "more": {}} for _ in range(50)]
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", value, n % 2, at(1)) for n, value in enumerate(values)])


def accounts_of(batch: Batch) -> Accounts:
    assert batch.written is not None
    found = Accounts.of(batch.plan, batch.written)
    assert found.differences() == []
    return found


@pytest.mark.parametrize("layout", ["source", pytest.param("output", marks=DEEP)])
def test_others_are_counted_and_share_no_limit_and_a_replay_counts_them_by_the_settings_of_its_day(
    spark: Any, broker: Broker, make_pipeline: Make, layout: str
) -> None:
    """Three malformed records of eight are 37.5%, however many there are of other types."""
    output = {"layout": layout}
    strict = make_pipeline(
        ROWS, SUITE, source=source("A", "C"), quality={"quarantine_limit": {"share": 0.37}}, output=output
    )
    fill(broker, strict)
    deployment = Deployment.of(strict)
    trial = try_pipeline(spark, deployment, of_interval(deployment, day(1)))
    assert (trial.read, trial.malformed, trial.excluded, trial.written) == (58, 3, 50, 5)
    assert [(one.name, one.reason, one.rows) for one in trial.unpublished if one.name == "excluded"] == [
        ("excluded", "records of other types", 50)
    ]
    assert trial.evaluation.outcome is Outcome.REJECTED
    assert "3 of 8 records read and not excluded are malformed (37.50%), above" in trial.evaluation.reason
    with pytest.raises(BatchRejected, match=r"3 of 8 records read and not excluded are malformed \(37\.50%\)"):
        run(spark, strict, day(1))

    loose = {"quarantine_limit": {"share": 0.375}}
    pipeline = make_pipeline(ROWS, SUITE, name=strict.name, source=source("A", "C"), quality=loose, output=output)
    assert run(spark, pipeline, day(1), reprocess=True).state is State.PUBLISHED
    batch = latest(pipeline, day(1))
    assert batch.written is not None
    assert batch.written.excluded == {"other_types": 50}
    found = accounts_of(batch)
    assert (found.read, found.included, found.malformed_kept, found.written, found.left_out) == (58, 8, 3, 5, 0)
    published = [r.json for r in read_all(broker.bootstrap, pipeline.output.topic) if r.batch == str(batch.id)]
    assert sorted(row["n"] for row in published) == [0, 1, 2, 3, 4]
    traced = trace_source(
        spark, Deployment.of(pipeline), Ledger(pipeline).peek(), location_of("--source", f"{pipeline.source.topic}:0:5")
    )
    if layout == "source":  # under output nothing is looked for
        assert traced.found == ("It is excluded: the source reads no records of other types.",)

    fewer = make_pipeline(ROWS, SUITE, name=strict.name, source=source("A"), quality=loose, output=output)
    replay(spark, fewer, day(1))
    batch = latest(fewer, day(1))
    assert batch.written is not None
    assert batch.written.excluded == {"other_types": 1}
    found = accounts_of(batch)
    assert (found.taken, found.read, found.malformed_kept, found.written, found.left_out) == (3, 3, 2, 0, 0)


def test_a_batch_of_others_alone_is_an_empty_one(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    rejecting = make_pipeline(ROWS, SUITE, source=source("Z"), quality={"empty": "reject"})
    create_topic(broker.bootstrap, rejecting.source.topic, 1)
    produce(broker.bootstrap, rejecting.source.topic, [(b"k", {"type": "B"}, 0, at(1))] * 3)
    with pytest.raises(BatchRejected, match=r"The batch has no records, and quality\.empty is 'reject'"):
        run(spark, rejecting, day(1))
    batch = latest(rejecting, day(1))
    assert batch.written is not None
    included = batch.written.sources[rejecting.source.topic].included
    assert (batch.written.rows_in, included, batch.written.rows, batch.written.newest) == (3, 0, 0, None)


def test_a_test_of_the_transform_counts_the_others(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(ROWS, SUITE, source=source("A"))
    with Trials() as trials:
        outcome = trials(
            pipeline.folder, [b'{"type":"A","n":1}', b'{"type":"B"}', b'{"type":"C"}', b'{"n":2}', {"n": 3}]
        )
    assert outcome.rows == [{"n": 1}, {"n": 3}]
    assert outcome.excluded == {"other_types": 2}
    assert [(one.given, one.reason) for one in outcome.quarantined] == [
        (3, "type: null or missing, and source.only reads the record's type there")
    ]
