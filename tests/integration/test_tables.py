"""A pipeline whose output is a table, on a real broker, real Spark and a real PostgreSQL: what is in the table, and when."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.observed_state import observed_state
from fencepost.errors import (
    LedgerLost,
    NeedsOperator,
    RecordRefused,
    SettingsError,
    Superseded,
    TableRefused,
    TableRefusedData,
    TableUnavailable,
    TransitionRefused,
)
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.outputs.output import missing_of, output_of
from fencepost.outputs.postgres import commit
from fencepost.reading.validated import read_validated
from fencepost.steps.advance import advance_batch, begin_batch, skip_batch
from fencepost.steps.obstacle import give_up
from fencepost.steps.plan import plan_batch, withdraw_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, group_offsets, read_all
from makers import a_decision
from steps import announced, copied_and_not_recorded, kafka_of, latest, plan_and_write, replay, run
from tables import ROWS, ask, fill, numbers_in, of_revision, store_of, with_suite

Make = Callable[..., Pipeline]
DEEP = pytest.mark.deep

SETS_ASIDE = """
expectations:
  - {type: expect_column_values_to_be_between, kwargs: {column: n, max_value: 9}, severity: quarantine}
"""


def test_a_batch_is_in_the_table_once_it_is_published_and_a_revision_takes_its_place(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    plan_and_write(spark, pipeline, day(1))
    assert ask(pipeline, "select count(*) from numbers") == [(0,)], "made, and nothing in it"
    validate_batch(spark, pipeline, day(1))
    result = advance_batch(pipeline, day(1))
    assert (result.state, result.changed) == (State.PUBLISHED, True)
    assert result.message == "published revision 1, in one commit to table public.numbers"
    assert numbers_in(pipeline) == of_revision(1, range(6))
    assert advance_batch(pipeline, day(1)).message == "already published, revision 1"
    types = ask(pipeline, "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = "
                "'numbers'::regclass and attnum > 0 order by attnum")  # fmt: skip
    assert dict(types) == {
        "n": "integer",
        "doubled": "integer",
        "name": "text",
        "fencepost_interval": "timestamp with time zone",
        "fencepost_revision": "integer",
    }
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert run(spark, pipeline, day(1), reprocess=True).revision == 2
    assert numbers_in(pipeline) == [*of_revision(2, range(6)), *of_revision(1, range(10, 14))]
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == {0: 5, 1: 5}
    ((batch, revisions, rows, ledger, lease, closed, verdict, sources),) = ask(
        pipeline,
        "select batch, revisions, rows, ledger, lease, closed, verdict, sources from fencepost_batches where interval_start = %s",
        day(1).start,
    )
    now = latest(pipeline, day(1))
    assert (batch, revisions, rows, closed, verdict) == (
        str(now.id),
        {"2": {"rows": 6, "ledger": ledger, "lease": lease}},
        6,
        False,
        "passed",
    )
    assert (ledger, lease) == (now.plan.ledger_topic_id, now.require_publication.require_lease)
    assert [r["end"] for r in sources[0]["ranges"]] == [3, 3]
    read = read_validated(spark, announced(pipeline, day(1)), kafka=kafka_of(pipeline), postgres=store_of(pipeline))
    assert sorted(tuple(row) for row in read.collect()) == [(n, 2 * n, "ü") for n in range(6)]


@pytest.mark.deep
def test_a_revision_without_rows_removes_what_the_older_one_has(spark: Any, broker: Broker, make_table: Make) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    (pipeline.folder / "transform.py").write_text(ROWS.replace("n >= 0", "n > 100"))
    result = run(spark, pipeline, day(1), reprocess=True)
    assert (result.revision, result.state, result.details["rows"]) == (2, State.PUBLISHED, 0)
    assert numbers_in(pipeline) == []
    assert ask(pipeline, "select revisions->'2'->'rows', rows from fencepost_batches") == [(0, 0)]


@pytest.mark.deep
def test_an_interval_without_offsets_is_published_without_a_table_and_may_be_withdrawn(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    """Its transform did not run, so nobody knows the columns yet; the table that is made later is the same one."""
    pipeline = make_table()
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert ask(pipeline, "select to_regclass('numbers')") == [(None,)]
    fill(broker, pipeline, number=2)
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert numbers_in(pipeline, 2) == of_revision(1, range(6))
    assert missing_of(Deployment.of(pipeline)) == ""
    assert withdraw_batch(pipeline, day(1), a_decision("withdraw")).state is State.WITHDRAWN
    assert run(spark, pipeline, day(1)).revision == 2


@pytest.mark.deep
def test_what_a_replay_adds_stays_beside_its_batch_and_goes_with_it(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table(expectations=SETS_ASIDE, quality={"quarantine_limit": "none"})
    fill(broker, pipeline, range(6, 13))
    assert run(spark, pipeline, day(1)).details["quarantined"]
    assert numbers_in(pipeline) == of_revision(1, range(6, 10))
    pipeline = with_suite(pipeline, SETS_ASIDE.replace("max_value: 9", "max_value: 11"))
    added = replay(spark, pipeline, day(1))
    assert (added.revision, added.state) == (2, State.PUBLISHED)
    assert numbers_in(pipeline) == [*of_revision(1, range(6, 10)), *of_revision(2, (10, 11))]
    assert ask(pipeline, "select revisions->'1'->'rows', revisions->'2'->'rows', rows from fencepost_batches") == [
        (4, 2, 6)
    ]
    assert missing_of(Deployment.of(pipeline)) == ""
    assert run(spark, pipeline, day(1), reprocess=True).revision == 3
    assert numbers_in(pipeline) == of_revision(3, range(6, 12))


@DEEP
def test_an_addition_is_refused_unless_the_table_has_what_it_adds_to(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table(expectations=SETS_ASIDE, quality={"quarantine_limit": "none"})
    fill(broker, pipeline, range(6, 13))
    run(spark, pipeline, day(1))
    ask(pipeline, "update fencepost_batches set revisions = '{}'")
    pipeline = with_suite(pipeline, SETS_ASIDE.replace("max_value: 9", "max_value: 20"))
    with pytest.raises(TableRefused, match=r"adds to revision 1, and table public\.numbers lacks revisions 1"):
        replay(spark, pipeline, day(1))
    assert numbers_in(pipeline) == of_revision(1, range(6, 10))
    skip_batch(pipeline, day(1), a_decision("skip"))
    run(spark, pipeline, day(1), reprocess=True)
    assert numbers_in(pipeline) == of_revision(3, range(6, 13))


def test_a_crash_between_store_and_ledger_is_settled_by_asking_the_store(
    spark: Any, broker: Broker, make_table: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    copied_and_not_recorded(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.PUBLISHING
    assert numbers_in(pipeline) == of_revision(1, range(6)), "the store's commit is the truth"
    with pytest.raises(TransitionRefused, match="is being published and can be finished"):
        skip_batch(pipeline, day(1), a_decision("skip"))
    deployment, held = Deployment.of(pipeline), latest(pipeline, day(1))
    deployment.ledger.read()
    assert give_up(deployment, held, observed_state(deployment, held)) is None, "it is committed, so it is not given up"
    monkeypatch.setattr(commit, "_replace", lambda *_, **__: pytest.fail("it is not committed again"))
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED


@pytest.mark.deep
def test_a_publication_that_was_given_up_never_commits_late(spark: Any, broker: Broker, make_table: Make) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    begin_batch(pipeline, day(1))
    zombie, deployment = latest(pipeline, day(1)), Deployment.of(pipeline)
    deployment.ledger.read()
    given_up = give_up(deployment, zombie, observed_state(deployment, zombie))
    assert given_up is not None
    assert given_up.seen == 0
    with pytest.raises(Superseded, match="given up"):
        output_of(deployment, zombie).publish(zombie, None)
    assert ask(pipeline, "select closed, revisions from fencepost_batches") == [(True, {})]
    with pytest.raises(NeedsOperator, match="its publication was given up"):
        advance_batch(pipeline, day(1))
    run(spark, pipeline, day(1))
    assert numbers_in(pipeline) == of_revision(2, range(6))
    with pytest.raises(Superseded):
        output_of(deployment, zombie).publish(zombie, None)
    assert numbers_in(pipeline) == of_revision(2, range(6)), "an older lease never wins"


TYPED = """
from pyspark.sql import functions as F

def transform(frame):
    return frame.selectExpr(
        "cast(n as tinyint) tiny", "cast(n as smallint) small", "n", "cast(n as bigint) + 9223372036854775802 big",
        "cast(n / 3 as float) real", "n / 3 dbl", "cast(n as decimal(38, 10)) / 7 dec", "cast(n / 8 as decimal(5, 3)) few",
        "n > 2 yes", "name", "cast(name as binary) raw", "date'0001-01-01' first_day", "date'9999-12-31' last_day",
        "timestamp'9999-12-31 23:59:59.999999' moment", "timestamp_ntz'0001-01-01 00:00:00.000001' local",
        "array(n, null) list", "map('a', n, 'ü', null) pairs",
        "struct(n a, array(struct(name b, cast(1.50 as decimal(5, 2)) c)) d) nested",
        "cast(null as int) nothing",
    )
"""


def test_every_type_is_in_the_table_exactly(spark: Any, broker: Broker, make_table: Make) -> None:
    pipeline = make_table(TYPED)
    fill(broker, pipeline, range(6), name='q"\\\n\t☃')
    run(spark, pipeline, day(1))
    rows = ask(pipeline, "select * from numbers order by n")
    for n, row in enumerate(rows):
        tiny, small, number, big, real, double, dec, few, yes, name, raw, *rest = row
        assert (tiny, small, number, big) == (n, n, n, n + 9223372036854775802)
        assert double == n / 3
        assert real == pytest.approx(n / 3, rel=1e-6)
        assert few == (Decimal(n) / 8).quantize(Decimal("0.001"))
        assert abs(dec - Decimal(n) / 7) < Decimal("1e-9")
        assert (yes, name, bytes(raw)) == (n > 2, 'q"\\\n\t☃', 'q"\\\n\t☃'.encode())
        first, last, moment, local, items, pairs, nested, nothing, *_ = rest
        assert (first, last) == (date(1, 1, 1), date(9999, 12, 31))
        assert moment == datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
        assert local == datetime(1, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
        assert items == [n, None]
        assert pairs == {"a": n, "ü": None}
        assert nested == {"a": n, "d": [{"b": 'q"\\\n\t☃', "c": 1.5}]}
        assert nothing is None
    kinds = ask(pipeline, "select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'numbers'::regclass "
                "and attname in ('dec', 'few', 'list', 'pairs', 'nested', 'raw', 'local') order by attnum")  # fmt: skip
    assert [kind for (kind,) in kinds][1:] == ["numeric(5,3)", "bytea", "timestamp without time zone", *["jsonb"] * 3]
    assert ask(pipeline, "select nested->'d'->0->>'c' from numbers limit 1") == [("1.50",)], (
        "the number as it was written"
    )
    read = read_validated(spark, announced(pipeline, day(1)), kafka=kafka_of(pipeline), postgres=store_of(pipeline))
    found = read.where("n = 3").selectExpr("tiny", "dec", "few", "list", "pairs", "nested.d[0].c c", "raw").first()
    assert (found.tiny, found.few, found.list, found.pairs) == (3, Decimal("0.375"), [3, None], {"a": 3, "ü": None})
    assert (found.c, bytes(found.raw)) == (Decimal("1.50"), 'q"\\\n\t☃'.encode())


@pytest.mark.deep
@pytest.mark.parametrize(
    ("statements", "select", "why", "refused"),
    [
        (
            "",
            ["n", "if(n = 3, concat(name, chr(0)), name) name"],
            r"a NUL character, or that is not UTF-8 \(SQLSTATE 22021, column name\)",
            {3},
        ),
        pytest.param(
            "alter table numbers alter n set not null",
            ["nullif(n, 3) n", "name"],
            r"SQLSTATE 23502, column n\)",
            {None},
            marks=DEEP,
        ),
        pytest.param(
            "alter table numbers add constraint small check (n < 4)",
            ["n", "name"],
            r"SQLSTATE 23514, constraint small\)",
            {4, 5},
            marks=DEEP,
        ),
        ("create unique index one on numbers ((n % 5))", ["n", "name"], r"SQLSTATE 23505, constraint one\)", {0, 5}),
    ],
)
def test_what_the_table_refuses_is_rejected_by_name_and_a_person_decides(
    spark: Any,
    broker: Broker,
    make_table: Make,
    statements: str,
    select: list[str],
    why: str,
    refused: set[int | None],
) -> None:
    """The row that it refuses is named by the staged record: its topic, partition and offset."""
    pipeline = make_table(f"def transform(frame):\n    return frame.selectExpr(*{select})")
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    validate = validate_batch(spark, pipeline, day(1))
    assert validate.state is State.WRITTEN
    if statements:
        ask(pipeline, statements)
    with pytest.raises(TableRefusedData, match=why) as raised:
        advance_batch(pipeline, day(1))
    assert "Failing row" not in str(raised.value)
    named = re.search(
        rf", of the record in topic {pipeline.staging_topic}, partition (\d), offset (\d+)\.", str(raised.value)
    )
    assert named is not None, raised.value
    staged = {(one.partition, one.offset): one.value for one in read_all(broker.bootstrap, pipeline.staging_topic)}
    assert json.loads(staged[int(named[1]), int(named[2])] or b"").get("n") in refused
    batch = latest(pipeline, day(1))
    assert batch.state is State.REJECTED
    assert "refused its data" in batch.history[-1].note
    assert numbers_in(pipeline) == [], "nothing of it is there"
    assert ask(pipeline, "select closed from fencepost_batches") == [(True,)]
    if "unique" in statements:
        ask(pipeline, "drop index one")
        result = advance_batch(pipeline, day(1), a_decision("publish"))
        assert (result.state, numbers_in(pipeline)) == (State.PUBLISHED, of_revision(1, range(6)))
    else:
        assert skip_batch(pipeline, day(1), a_decision("skip")).state is State.SKIPPED


@pytest.mark.deep
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (
            "create table numbers (n integer, name text)",
            r"no column doubled: ALTER TABLE .* ADD COLUMN \"doubled\" integer",
        ),
        (
            "create table numbers (n smallint, doubled integer, name text, {own})",
            r"column n is smallint, and the transform gives int: ALTER TABLE .* TYPE integer",
        ),
        pytest.param(
            "create table numbers (n integer, doubled integer, name char(9), {own})",
            r"column name is character\(9\)",
            marks=DEEP,
        ),
        pytest.param(
            "create table numbers (n integer, doubled integer, name text, more int not null, {own})",
            r"column more may not be null and has no default",
            marks=DEEP,
        ),
        pytest.param(
            "create unlogged table numbers (n integer, doubled integer, name text, {own})", "it is unlogged", marks=DEEP
        ),
        pytest.param(
            "create table numbers (n integer, doubled integer, name text, {own}) partition by range (fencepost_interval)",
            "it has no partition for fencepost_interval 2026-01-01 00:00 UTC",
            marks=DEEP,
        ),
        pytest.param(
            "create table numbers (n integer); insert into numbers values (1)",
            "has rows that the pipeline did not publish",
            marks=DEEP,
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_the_first_record_is_staged(
    spark: Any, broker: Broker, make_table: Make, statement: str, why: str
) -> None:
    pipeline = make_table()
    ask(pipeline, statement.format(own="fencepost_interval timestamptz, fencepost_revision integer"))
    fill(broker, pipeline)
    with pytest.raises(TableRefused, match=why):
        plan_and_write(spark, pipeline, day(1))
    view = Ledger(pipeline).peek()
    assert all(batch.written is None for batch in view.all())


@DEEP
def test_a_partitioned_table_takes_an_interval_that_has_a_partition(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table()
    ask(
        pipeline,
        "create table numbers (n integer, doubled integer, name text, fencepost_interval timestamptz, fencepost_revision integer)"
        "partition by range (fencepost_interval)",
    )
    ask(pipeline, "create table first partition of numbers for values from ('2026-01-01Z') to ('2026-01-02Z')")
    fill(broker, pipeline)
    fill(broker, pipeline, number=2)
    run(spark, pipeline, day(1))
    assert ask(pipeline, "select count(*) from first") == [(6,)]
    with pytest.raises(TableRefused, match="it has no partition for fencepost_interval 2026-01-02 00:00 UTC"):
        run(spark, pipeline, day(2))
    ask(pipeline, "create table others partition of numbers default")
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert run(spark, pipeline, day(1), reprocess=True).revision == 2
    assert numbers_in(pipeline, 1) == of_revision(2, range(6))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("n AS Fencepost_Revision", "a name that Fencepost uses in every table"),
        pytest.param("n AS `" + "ü" * 32 + "`", "more than 63 bytes", marks=DEEP),
        pytest.param("n, interval 1 day AS d", "interval day.*no counterpart in PostgreSQL|cannot express", marks=DEEP),
    ],
)
def test_a_column_that_no_table_can_have_is_refused(
    spark: Any, broker: Broker, make_table: Make, select: str, why: str
) -> None:
    pipeline = make_table(f'def transform(frame):\n    return frame.selectExpr(*"{select}".split(", "))')
    fill(broker, pipeline)
    with pytest.raises((TableRefused, SettingsError), match=why):
        plan_and_write(spark, pipeline, day(1))


@pytest.mark.deep
def test_a_tombstone_is_refused_at_the_write(spark: Any, broker: Broker, make_table: Make) -> None:
    pipeline = make_table('def transform(frame):\n    return frame.selectExpr("n", "n > 3 as _tombstone")')
    fill(broker, pipeline)
    with pytest.raises(RecordRefused, match="it is a tombstone, which a table cannot store"):
        plan_and_write(spark, pipeline, day(1))


@DEEP
def test_new_columns_are_added_where_the_settings_say_so(spark: Any, broker: Broker, make_table: Make) -> None:
    pipeline = make_table(output={"add_columns": True})
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    ask(pipeline, "alter table numbers add column theirs text default 'x', add primary key (n)")
    ask(pipeline, "create table notes as select 3 as n; "
        "alter table notes add foreign key (n) references numbers deferrable initially deferred")  # fmt: skip
    (pipeline.folder / "transform.py").write_text(ROWS.replace('"name"', '"name", "n + 1 AS more"'))
    run(spark, pipeline, day(1), reprocess=True)
    assert ask(pipeline, "select n, more, theirs from numbers order by n") == [(n, n + 1, "x") for n in range(6)]


@pytest.mark.deep
def test_a_table_has_one_owner(spark: Any, broker: Broker, make_table: Make) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    other = make_table(postgres=store_of(pipeline))
    fill(broker, other)
    with pytest.raises(
        TableRefused, match=rf"belongs to pipeline {pipeline.name}, and a table has one owner.*Nothing was planned"
    ):
        plan_batch(other, day(1))


@pytest.mark.deep
@pytest.mark.parametrize("made_anew", [False, True])
def test_what_the_table_lacks_is_named_with_the_commands_that_bring_it_back(
    spark: Any, broker: Broker, make_table: Make, made_anew: bool
) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    run(spark, pipeline, day(1))
    ask(pipeline, "drop table numbers" if made_anew else "truncate numbers")
    result = run(spark, pipeline, day(2))
    command = day(1).command("run", pipeline.name, "--reprocess")
    assert "table public.numbers does not have what the ledger has published there in 1 interval:" in result.message
    assert command in result.message
    assert numbers_in(pipeline) == of_revision(1, range(10, 14)), "other intervals go on"
    assert latest(pipeline, day(1)).state is State.PUBLISHED
    run(spark, pipeline, day(1), reprocess=True)
    assert numbers_in(pipeline, 1) == of_revision(2, range(6))
    assert missing_of(Deployment.of(pipeline)) == ""


@pytest.mark.deep
def test_a_revision_that_the_ledger_does_not_know_is_a_lost_ledger(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    ask(pipeline, "update fencepost_batches set revisions = revisions || jsonb_build_object('7', revisions->'1')")
    with pytest.raises(LedgerLost, match=rf"table public\.numbers has batch {pipeline.name}/{day(1)}/7"):
        missing_of(Deployment.of(pipeline))


@DEEP
@pytest.mark.parametrize("made_anew", [False, True])
def test_a_table_dropped_while_its_publication_is_under_way_is_made_again_or_taken_as_it_is(
    spark: Any, broker: Broker, make_table: Make, made_anew: bool
) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    run(spark, pipeline, day(2))
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    begin_batch(pipeline, day(1))
    ask(pipeline, "drop table numbers")
    if made_anew:
        ask(pipeline, "create table numbers (n integer, doubled integer, name text, fencepost_interval timestamptz, "
            "fencepost_revision integer)")  # fmt: skip
    result = advance_batch(pipeline, day(1))
    assert result.state is State.PUBLISHED
    assert numbers_in(pipeline) == of_revision(1, range(6))
    assert day(2).command("run", pipeline.name, "--reprocess") in result.message, "what the other one had is told"


def test_settings_of_topics_and_of_connections_are_refused_by_name(make_table: Make, make_pipeline: Make) -> None:
    with pytest.raises(SettingsError, match=r"output\.publish: unknown field; allowed here are .*add_columns"):
        make_table(output={"publish": "direct"})
    with pytest.raises(SettingsError, match="output: kind is topic or postgres or iceberg"):
        make_table(output={"kind": "mysql"})
    with pytest.raises(SettingsError, match=r"output\.table: longer than 63 bytes"):
        make_table(output={"table": "ü" * 40})
    with pytest.raises(SettingsError, match=r"postgres.*application_name: not allowed") as raised:
        make_table(postgres={"host": "h", "dbname": "d", "user": "u", "password": "hunter2", "application_name": "x"})
    assert "hunter2" not in str(raised.value)


@pytest.mark.deep
def test_a_store_that_is_away_is_told_without_its_password(spark: Any, broker: Broker, make_table: Make) -> None:
    pipeline = make_table(
        postgres={"host": "127.0.0.1", "port": "1", "dbname": "d", "user": "u", "password": "hunter2"}
    )
    fill(broker, pipeline)
    with pytest.raises(TableUnavailable, match=r"PostgreSQL at 127\.0\.0\.1:1, database d: .*Run again") as raised:
        plan_batch(pipeline, day(1))
    assert "hunter2" not in str(raised.value)
