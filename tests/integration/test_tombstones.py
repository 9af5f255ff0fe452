"""`source.tombstones`: a record without a value fails its batch, is left out and counted, or stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError, TombstonesRefused
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, State
from fencepost.preview.trace import location_of, trace_source
from fencepost.quality.quarantine import Accounts
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, group_offsets, produce, read_all
from steps import latest, plan_and_write, replay, run
from tables import ask

Make = Callable[..., Pipeline]
DEEP = pytest.mark.deep
SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]\n"
NAMED = "expectations: [{type: expect_column_values_to_not_be_null, severity: quarantine, kwargs: {column: name}}]\n"
REQUIRED: dict[str, Any] = {"schema": {"n": "int not null", "name": "string"}}
NO_LIMIT: dict[str, Any] = {"quarantine_limit": "none"}


def select(*columns: str) -> str:
    return f"def transform(frame):\n    return frame.selectExpr(*{columns})\n"


def fill(broker: Broker, pipeline: Pipeline) -> None:
    """Six records with a value on two partitions; partition 1 has tombstones at offsets 1 and 3."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    good = [(b"k%d" % n, {"n": n, "name": "x"}, n % 2, at(1, n)) for n in range(6)]
    produce(
        broker.bootstrap,
        pipeline.source.topic,
        [*good[:2], (b"k1", None, 1, at(1, 2)), *good[2:4], (b"k3", None, 1, at(1, 4)), *good[4:]],
    )


def fill_without(broker: Broker, pipeline: Pipeline) -> None:
    """Six records on two partitions, each with a value."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records = [(b"k%d" % n, {"n": n, "name": "x"}, n % 2, at(1, n)) for n in range(6)]
    produce(broker.bootstrap, pipeline.source.topic, records)


def changed(make: Make, pipeline: Pipeline, transform: str, tombstones: str, **sections: Any) -> Pipeline:
    """The same pipeline with another transform and `source.tombstones`."""
    return make(transform, SUITE, name=pipeline.name, source={**REQUIRED, "tombstones": tombstones}, **sections)


def accounts_of(batch: Batch) -> Accounts:
    assert batch.written is not None
    found = Accounts.of(batch.plan, batch.written)
    assert found.differences() == []
    return found


def out(broker: Broker, pipeline: Pipeline) -> list[tuple[bytes | None, Any]]:
    return sorted((r.key or b"", r.value and r.json) for r in read_all(broker.bootstrap, pipeline.output.topic))


ROWS = [(b"k%d" % n, {"n": n, "name": "x"}) for n in range(6)]


@pytest.mark.parametrize("layout", ["source", pytest.param("output", marks=DEEP)])
def test_a_tombstone_fails_its_batch_by_name_until_the_settings_drop_or_pass_it(
    spark: Any, broker: Broker, make_pipeline: Make, layout: str
) -> None:
    """Each attempt says the same. Dropped ones are counted; passed ones need the column that says what they are."""
    plain, output = select("_key", "n", "name"), {"layout": layout}
    failing = make_pipeline(plain, SUITE, source=REQUIRED, output=output)
    fill(broker, failing)
    said = []
    for _ in range(2):
        with pytest.raises(TombstonesRefused, match=r"2 of 8 records .* source\.tombstones") as refused:
            plan_and_write(spark, failing, day(1))
        said.append(str(refused.value))
    assert said[0] == said[1]
    assert "partition:offset of the first: 1:1, 1:3. " in said[0]
    assert out(broker, failing) == []
    assert group_offsets(broker.bootstrap, failing.group, failing.source.topic, [0, 1]) == {}
    traced = trace_source(
        spark, Deployment.of(failing), Ledger(failing).peek(), location_of("--source", f"{failing.source.topic}:1:1")
    )
    assert traced.found == (f"Batch {latest(failing, day(1)).id} is planned: nothing is written yet.",)

    dropping = changed(make_pipeline, failing, plain, "drop", output=output)
    assert run(spark, dropping, day(1)).state is State.PUBLISHED
    assert out(broker, dropping) == ROWS
    found = accounts_of(latest(dropping, day(1)))
    assert (found.read, found.tombstones, found.written, found.left_out, found.malformed) == (8, 2, 6, 0, 0)
    traced = trace_source(
        spark, Deployment.of(dropping), Ledger(dropping).peek(), location_of("--source", f"{dropping.source.topic}:1:1")
    )
    if layout == "source":  # under output nothing is looked for
        assert traced.found == ("It is a tombstone, and source.tombstones: drop gives none to the transform.",)

    silent = changed(make_pipeline, failing, plain, "pass", output=output)
    with pytest.raises(SettingsError, match=r"no column _tombstone, and source\.tombstones is pass"):
        plan_and_write(spark, silent, day(1), reprocess=True)
    before = read_all(broker.bootstrap, failing.staging_topic)
    passing = changed(make_pipeline, failing, select("_key", "_tombstone", "n", "name"), "pass", output=output)
    assert run(spark, passing, day(1)).state is State.PUBLISHED
    staged = read_all(broker.bootstrap, failing.staging_topic)[len(before) :]
    assert len(staged) == 8, "nothing was staged for the transform that was refused"
    new = [r for r in read_all(broker.bootstrap, passing.output.topic) if r.batch == str(latest(passing, day(1)).id)]
    assert sorted(r.key for r in new if r.value is None) == [b"k1", b"k3"]
    assert accounts_of(latest(passing, day(1))).tombstones == 0


def test_no_row_of_nulls_comes_into_a_table(spark: Any, broker: Broker, make_table: Make) -> None:
    """Whatever the setting: a table has no place for a tombstone, and a column declared `not null` has a value in each row."""
    failing = make_table(select("n", "name"), SUITE, source=REQUIRED)
    fill(broker, failing)
    store = {"postgres": {name: value.get_secret_value() for name, value in failing.postgres.items()}}
    with pytest.raises(TombstonesRefused, match="1:1, 1:3"):
        plan_and_write(spark, failing, day(1))
    silent = changed(make_table, failing, select("n", "name"), "pass", **store)
    with pytest.raises(SettingsError, match="no column _tombstone"):
        plan_and_write(spark, silent, day(1))
    filtered = 'def transform(frame):\n    return frame.where("NOT _tombstone").selectExpr("n", "name", "_tombstone")\n'
    assert run(spark, changed(make_table, failing, filtered, "pass", **store), day(1)).state is State.PUBLISHED
    assert ask(failing, "select n from numbers order by n") == [(n,) for n in range(6)]
    dropping = changed(make_table, failing, select("n", "name"), "drop", **store)
    assert run(spark, dropping, day(1), reprocess=True).state is State.PUBLISHED
    assert ask(failing, "select n, name from numbers order by n") == [(n, "x") for n in range(6)]
    assert accounts_of(latest(dropping, day(1))).tombstones == 2


@DEEP
def test_of_bytes_a_null_value_is_a_tombstone_too(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    bytes_: dict[str, Any] = {"format": "bytes", "schema": {}}
    settings: dict[str, Any] = {"output": {"format": "bytes"}, "source": bytes_}
    failing = make_pipeline(select("_key", "value"), SUITE, **settings)
    fill(broker, failing)
    with pytest.raises(TombstonesRefused, match="1:1, 1:3"):
        plan_and_write(spark, failing, day(1))
    settings["source"] = {**bytes_, "tombstones": "pass"}
    with pytest.raises(SettingsError, match="no column _tombstone"):
        plan_and_write(spark, make_pipeline(select("_key", "value"), SUITE, name=failing.name, **settings), day(1))
    everything = make_pipeline("def transform(frame):\n    return frame\n", SUITE, name=failing.name, **settings)
    assert run(spark, everything, day(1)).state is State.PUBLISHED
    source, copied = (read_all(broker.bootstrap, topic) for topic in (failing.source.topic, failing.output.topic))
    assert sorted((r.key or b"", r.value or b"") for r in copied) == sorted(
        (r.key or b"", r.value or b"") for r in source
    )
    assert sum(r.value is None for r in copied) == 2


@DEEP
def test_a_tombstone_that_a_limit_would_leave_unread_fails_its_batch_too(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """No mark of a task-partition says that it was read to its end; the counts of the source do."""
    first = 'def transform(frame):\n    return frame.select("_key", "n", "name").limit(1)\n'
    pipeline = make_pipeline(first, SUITE, source=REQUIRED, output={"layout": "output"})
    fill(broker, pipeline)
    for _ in range(2):
        with pytest.raises(TombstonesRefused, match="1:1, 1:3"):
            plan_and_write(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.PLANNED


@DEEP
def test_a_quarantined_tombstone_is_dropped_by_a_replay_where_the_settings_say_so_now(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Beside a malformed record; and a retry that finds all committed counts them again."""
    keeping = select("_key", "_tombstone", "_record", "n", "name")
    source = {**REQUIRED, "on_malformed": "quarantine"}
    passing = make_pipeline(keeping, NAMED, source={**source, "tombstones": "pass"}, quality=NO_LIMIT)
    fill(broker, passing)
    produce(broker.bootstrap, passing.source.topic, [(b"bad", b"{", 0, at(1, 20))])
    run(spark, passing, day(1))
    first = latest(passing, day(1))
    assert first.written is not None
    assert first.written.quarantined == {"malformed": 1, "expect_column_values_to_not_be_null(name)": 2}
    keeping = select("_key", "_tombstone", "n", "name")
    strict = make_pipeline(keeping, SUITE, name=passing.name, source=source, quality=NO_LIMIT)
    with pytest.raises(TombstonesRefused, match=r"partition:offset of the first: 1:1, 1:3\. "):
        replay(spark, strict, day(1))
    source["tombstones"] = "drop"
    dropping = make_pipeline(keeping, SUITE, name=passing.name, source=source, quality=NO_LIMIT)
    replay(spark, dropping, day(1))
    found = accounts_of(latest(dropping, day(1)))
    assert (found.taken, found.read, found.tombstones, found.malformed_kept, found.written) == (3, 3, 2, 1, 0)
    assert len(out(broker, dropping)) == 6
    again = run(spark, dropping, day(1), reprocess=True)
    assert again.state is State.PUBLISHED
    found = accounts_of(latest(dropping, day(1)))
    assert (found.read, found.tombstones, found.malformed_kept, found.written) == (9, 2, 1, 6)


def test_a_column_of_the_result_says_which_keys_are_deleted(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """`output.tombstone`: of a deleted key the output gets the key alone, in the order of the source; null is not deleted."""
    deleted = "CASE n WHEN 1 THEN true WHEN 2 THEN false WHEN 4 THEN true END AS is_deleted"
    pipeline = make_pipeline(
        select("_key", "n", "name", deleted), SUITE, source=REQUIRED, output={"tombstone": "is_deleted"}
    )
    fill_without(broker, pipeline)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    flags = {0: None, 2: False, 3: None, 5: None}
    assert out(broker, pipeline) == [
        (b"k%d" % n, {"n": n, "name": "x", "is_deleted": flags[n]} if n in flags else None) for n in range(6)
    ]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (("_key", "n", "name"), "output.tombstone: transform.py gives no column 'is_deleted'"),
        (("_key", "n", "'no' AS is_deleted"), "column 'is_deleted', which output.tombstone names, is of type string"),
    ],
)
def test_a_column_that_cannot_say_deleted_is_refused_before_anything_is_staged(
    spark: Any, broker: Broker, make_pipeline: Make, columns: tuple[str, ...], why: str
) -> None:
    pipeline = make_pipeline(select(*columns), SUITE, source=REQUIRED, output={"tombstone": "is_deleted"})
    fill_without(broker, pipeline)
    with pytest.raises(SettingsError, match=why):
        plan_and_write(spark, pipeline, day(1))
