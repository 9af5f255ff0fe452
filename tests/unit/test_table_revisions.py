"""What a table's row of an interval means to a publication, and what a comparison of table and ledger finds; pure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError
from pyspark.sql import types as T
from pyspark.sql.types import StructType

from fencepost.errors import Superseded, TableRefused, TransitionRefused
from fencepost.ledger.codec import parse, write_record
from fencepost.model import Batch, Outcome, State
from fencepost.outputs.postgres.columns import column_differences, definition, holds, kind_for, unsupported_columns
from fencepost.outputs.postgres.conversions import TableColumn
from fencepost.outputs.postgres.rights import grants
from fencepost.outputs.postgres.values import PostgresOutput, PostgresPublication
from fencepost.outputs.table.pipeline_table import CommitBeginning, PipelineTable
from fencepost.outputs.table.revisions import (
    Committed,
    IntervalRow,
    TableStanding,
    TableState,
    differing,
    missing_for,
    record_stored,
    revisions_after,
    rows_of,
    standing_of,
    takes_over,
    unknown_to,
)
from fencepost.outputs.topic.publication import validated_ends
from fencepost.postgres.connection import StatementFailed, meaning
from fencepost.protocol.advice import what_next
from fencepost.protocol.awaiting import Awaiting, AwaitingReason, awaiting_reason
from fencepost.protocol.decisions import decide_skip, decide_withdraw, record_verdict
from fencepost.protocol.obstacle import AbandonedPublication, ObservedState, is_unseen, obstacle
from fencepost.protocol.publication import record_rejected
from fencepost.protocol.view import View
from makers import NOW, a_batch, a_day, a_decision, a_plan, a_receipt, a_topic, a_verdict, a_written, publish_prepared

TABLE = PostgresOutput(table="public.t")
LEDGER = "ledger-1"


def publication(lease: int | None = 7, **changes: Any) -> PostgresPublication:
    values = {"table": "public.t", "ledger": LEDGER, "lease": lease, "begun_at": NOW}
    return PostgresPublication(**{**values, **changes})


BEGINNING = CommitBeginning(PostgresPublication, "public.t", LEDGER)


def a_row(**changes: Any) -> IntervalRow:
    values = {"start": a_day(0).start, "end": a_day(0).end, "ledger": LEDGER, "lease": 7}
    return IntervalRow(**{**values, **changes})


def committed(**rows: int) -> dict[int, Committed]:
    """Revisions with so many rows each, `r1=3`, by the publication with lease 7."""
    return {int(name[1:]): Committed(count, LEDGER, 7) for name, count in rows.items()}


def of_table(state: State, rows: int = 3, **changes: Any) -> Batch:
    """A batch for the table in that state, written with so many rows, and judged."""
    plan = a_plan((0, 9), output=TABLE, staging=a_topic(0, topic="staging"), ledger_topic_id=LEDGER)
    written = a_written(a_receipt(rows=rows, topic="staging"), output=a_topic(rows, topic="staging"))
    made = a_batch(state, plan=plan, written=written, verdict=a_verdict(Outcome.PASSED), lease=5)
    if state in {State.PUBLISHING, State.PUBLISHED}:
        made = made.model_copy(update={"publication": publication()})
    return made.model_copy(update=changes)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"ledger": "", "lease": -1}, TableStanding.OPEN),
        ({"lease": 6}, TableStanding.OPEN),
        ({"lease": 6, "closed": True}, TableStanding.OPEN),
        ({}, TableStanding.DONE),
        ({"closed": True}, TableStanding.CLOSED),
        ({"lease": 8}, TableStanding.OVERTAKEN),
        ({"lease": 8, "closed": True}, TableStanding.OVERTAKEN),
        ({"ledger": "ledger-0", "lease": 99}, TableStanding.FOREIGN),
    ],
)
def test_a_publication_stands_by_lease_and_ledger(row: dict[str, Any], expected: TableStanding) -> None:
    assert standing_of(a_row(**row), publication()) is expected


def test_of_two_ledgers_only_the_one_that_exists_now_takes_over() -> None:
    assert takes_over(TableStanding.OPEN, publication(), "anything")
    assert takes_over(TableStanding.FOREIGN, publication(), LEDGER)
    assert not takes_over(TableStanding.FOREIGN, publication(), "ledger-2")
    assert not any(
        takes_over(s, publication(), LEDGER)
        for s in (TableStanding.DONE, TableStanding.CLOSED, TableStanding.OVERTAKEN)
    )


def test_a_revision_leaves_itself_alone_in_the_interval_and_an_addition_adds_itself() -> None:
    row, own = a_row(revisions=committed(r1=5, r2=0)), Committed(3, LEDGER, 8)
    under_way = {"revision": 3, "publication": publication(8)}
    assert revisions_after(row, of_table(State.PUBLISHING, **under_way)) == {3: own}
    addition = of_table(State.PUBLISHING, adds_to=1, **under_way)
    assert revisions_after(row, addition) == {**committed(r1=5, r2=0), 3: own}
    again = a_row(revisions={**committed(r1=5, r2=0), 3: Committed(9, LEDGER, 6)})
    assert revisions_after(again, addition) == {**committed(r1=5, r2=0), 3: own}, "again, and the same"
    assert rows_of(revisions_after(row, addition)) == {1: 5, 3: 3}, "the table counts no revision without rows"


def test_an_addition_needs_its_batch_and_the_additions_before_it_in_the_table() -> None:
    base, first = of_table(State.PUBLISHED), of_table(State.PUBLISHED, revision=2, adds_to=1)
    second = of_table(State.PUBLISHING, revision=3, adds_to=1)
    view = View.of([base, first, second])
    both = a_row(revisions=committed(r1=3, r2=4))
    assert missing_for(view, second, both, {1: 3, 2: 4}) == ()
    assert missing_for(view, second, a_row(revisions=committed(r1=3)), {1: 3, 2: 4}) == (2,)
    assert missing_for(view, second, both, {1: 3, 2: 3}) == (2,), "some of its rows were removed"
    assert missing_for(view, second, both, {}) == (1, 2), "the table was emptied, or created again"
    assert missing_for(view, second, a_row(revisions=committed(r1=0, r2=4)), {2: 4}) == (), "it has no rows"
    assert missing_for(view, base, a_row(), {}) == (), "a revision replaces whatever is there"


def test_where_the_table_differs_is_found_by_publication_and_by_rows() -> None:
    view, start = View.of([of_table(State.PUBLISHED)]), a_day(0).start

    def found(row: IntervalRow | None, filled: set[Any], table: str = "public.t") -> int:
        return len(differing(view, table, {start: row} if row else {}, filled))

    assert found(a_row(revisions=committed(r1=3)), {start}) == 0
    assert found(a_row(revisions=committed(r1=0)), set()) == 0
    assert found(a_row(revisions=committed(r1=3)), set()) == 1, "emptied"
    assert found(a_row(revisions={}), {start}) == 1, "an older copy"
    assert found(None, set()) == 1
    assert found(a_row(revisions={1: Committed(3, "ledger-2", 7)}), {start}) == 1, "another cluster's"
    assert found(a_row(revisions={1: Committed(3, LEDGER, 6)}), {start}) == 1, "another publication"
    assert found(a_row(revisions=committed(r1=3), lease=9, closed=True), {start}) == 0, "a later one was given up"
    assert found(None, set(), "public.other") == 0, "it was never published there"
    assert found(a_row(revisions=committed(r1=3)), {start}, "public.renamed") == 0
    assert found(a_row(revisions=committed(r1=3)), set(), "public.renamed") == 1, "renamed, and emptied"
    for state in (State.SUPERSEDED, State.SKIPPED, State.WRITTEN, State.REJECTED):
        other = View.of([of_table(state)])
        row = {start: a_row(revisions=committed(r1=3))}
        assert len(differing(other, "public.t", row, {start})) == 1, "it has what is not published"
        assert differing(other, "public.t", {start: a_row(revisions={})}, set()) == ()
    withdrawn = View.of([of_table(State.WITHDRAWN, rows=0)])
    row = {start: a_row(revisions=committed(r1=3))}
    assert len(differing(withdrawn, "public.t", row, {start})) == 1, "it has rows of an interval that is none"
    assert differing(withdrawn, "public.t", row, set()) == (), "they were removed"
    assert differing(withdrawn, "public.t", {}, {start}) == (), "somebody else's, which the count of all rows finds"
    under_way = View.of([of_table(State.PUBLISHED), of_table(State.PUBLISHING, revision=2)])
    assert differing(under_way, "public.t", {}, set()) == (), "its commit may be ahead of the ledger"


def test_nobody_is_told_that_readers_may_see_what_is_not_committed_to_a_table() -> None:
    """Of a topic they may. A table shows nothing before its commit, so such a publication is given up, unless it is committed."""
    under_way = View.of([of_table(State.PUBLISHING)])
    for decide in (decide_skip, decide_withdraw):
        with pytest.raises(TransitionRefused, match=r"table public\.t may have committed it") as raised:
            decide(under_way, a_day(0), a_decision(decide.__name__.removeprefix("decide_")))
        assert "readers may see" not in str(raised.value)


def test_rows_are_not_counted_for_an_addition_whose_publication_has_ended() -> None:
    """Counting may take long, and may fail where the ledger's answer says what to do."""
    batch = of_table(State.PUBLISHING, revision=2, adds_to=1)
    ledger = SimpleNamespace(read=lambda: View.of([batch.model_copy(update={"state": State.SKIPPED})]))
    deployment: Any = SimpleNamespace(ledger=ledger)
    counted = list[str]()

    def count() -> dict[int, int]:
        counted.append("counted")
        return {}

    with pytest.raises(Superseded, match="its publication has ended"):
        PipelineTable(deployment, "public.t").check_ledger(a_row(), batch, count)
    assert counted == []


def test_the_owner_is_looked_up_only_if_the_row_allows_the_commit() -> None:
    """The look-up locks the owner's row, and a publication that has ended waits for nobody."""
    table, asked = PipelineTable(cast("Any", None), "public.t"), list[str]()

    def owner() -> None:
        asked.append("asked")

    batch = of_table(State.PUBLISHING)
    assert not table.has_to_commit(a_row(), batch, owner)
    for ended in (a_row(closed=True), a_row(lease=8)):
        with pytest.raises(Superseded, match="was given up, or a later publication was committed"):
            table.has_to_commit(ended, batch, owner)
    assert asked == []
    with pytest.raises(TableRefused, match=r"public\.t"):
        table.has_to_commit(a_row(lease=6), batch, owner)
    assert asked == ["asked"]


def test_a_revision_that_the_ledger_lacks_is_named() -> None:
    view = View.of([of_table(State.PUBLISHED)])
    assert unknown_to(view, "p", [a_row(revisions=committed(r1=3))]) == []
    assert unknown_to(view, "p", [a_row(revisions=committed(r1=3, r4=1))]) == [f"p/{a_day(0)}/4"]
    other = a_row(start=a_day(1).start, end=a_day(1).end, revisions=committed(r1=3))
    assert unknown_to(view, "p", [other]) == [f"p/{a_day(1)}/1"]


@pytest.mark.parametrize("rows", [3, 0])
def test_a_batch_for_a_table_begins_to_be_published_even_without_rows(rows: int) -> None:
    view = View.of([of_table(State.WRITTEN, rows)])
    begun = publish_prepared(view, a_day(0), NOW, None, BEGINNING)
    (batch,) = begun
    assert (batch.state, batch.publication) == (State.PUBLISHING, publication(lease=None))
    read = parse(write_record(batch), "here")
    assert read == batch, "the ledger says which kind of publication it is"


def test_what_the_store_has_committed_is_recorded_once_and_supersedes_what_counted() -> None:
    older, newer = of_table(State.PUBLISHED), of_table(State.PUBLISHING, revision=2)
    view = View.of([older, newer])
    done = record_stored(view, a_day(0), 2, 7, 1.5, NOW)
    assert [(b.revision, b.state) for b in done] == [(2, State.PUBLISHED), (1, State.SUPERSEDED)]
    assert done[0].require_publication.ended_at == NOW
    assert validated_ends(view.updated(done)) == {}, "a table has no offsets"
    assert record_stored(view.updated(done), a_day(0), 2, 7, 1.5, NOW) == ()
    with pytest.raises(Superseded, match="has been given up"):
        record_stored(View.of([of_table(State.PUBLISHING, publication=publication(8))]), a_day(0), 1, 7, 1.5, NOW)


def test_what_the_table_refuses_is_rejected_and_judged_anew() -> None:
    view = View.of([of_table(State.PUBLISHING)])
    (rejected,) = record_rejected(view, a_day(0), 1, 7, "a null (SQLSTATE 23502, column n)", NOW)
    assert (rejected.state, awaiting_reason(rejected)) == (State.REJECTED, AwaitingReason.REJECTED)
    assert Awaiting(rejected, AwaitingReason.REJECTED).description == "table public.t refused the data of revision 1"
    told = what_next(rejected)
    assert "table public.t refused its data: a null (SQLSTATE 23502, column n)." in told
    assert all(word in told for word in ("`fencepost publish", "`fencepost run", "`fencepost skip"))
    after = view.updated([rejected])
    assert record_rejected(after, a_day(0), 1, 7, "again", NOW) == ()
    (again,) = publish_prepared(
        after,
        a_day(0),
        NOW,
        a_decision("publish"),
        BEGINNING,
    )
    assert again.publication == publication(lease=None), "with a lease of its own"
    (judged,) = record_verdict(after, a_day(0), 1, a_verdict(Outcome.REJECTED, 2))
    assert judged.publication is None
    assert "refused" not in what_next(judged), "from now on the suite rejects it"
    with pytest.raises(TransitionRefused):
        publish_prepared(after, a_day(0), NOW)
    assert decide_skip(after, a_day(0), a_decision("skip"))[0].state is State.SKIPPED


@pytest.mark.parametrize(
    ("store", "ledger", "why", "lasting"),
    [
        (TableState(TableStanding.OPEN), LEDGER, "", False),
        (TableState(TableStanding.DONE), "ledger-9", "", False),
        (
            TableState(TableStanding.OPEN, lost="now belongs to p"),
            LEDGER,
            "table public.t now belongs to p",
            True,
        ),
        (TableState(TableStanding.DONE, lost="now belongs to p"), LEDGER, "", False),
        (TableState(TableStanding.OPEN), "ledger-9", "its ledger was restored from a copy", True),
        (TableState(TableStanding.CLOSED), LEDGER, "its publication was given up", True),
        (TableState(TableStanding.CLOSED, "a null"), LEDGER, "table public.t refused its data: a null", True),
        (TableState(TableStanding.OVERTAKEN), LEDGER, "has a later publication", True),
    ],
)
def test_a_publication_to_a_table_goes_on_unless_the_store_says_otherwise(
    store: TableState, ledger: str, why: str, lasting: bool
) -> None:
    batch = of_table(State.PUBLISHING)
    found = obstacle(batch, ObservedState(ledger_topic_id=ledger, staging_topic_id="staging-1", output=store))
    assert (found is None) == (not why)
    if found is not None:
        assert why in found.why
        assert found.lasting == lasting
        assert str(batch.id) in str(found.error(batch))


def test_a_refusal_of_the_table_does_not_last_and_may_be_given_up() -> None:
    batch = of_table(State.PUBLISHING, publication=publication(refused="it lacks a column"))
    store = TableState(TableStanding.OPEN)
    found = obstacle(batch, ObservedState(ledger_topic_id=LEDGER, staging_topic_id="staging-1", output=store))
    assert found is not None
    assert (found.why, found.lasting) == ("table public.t refused its copy: it lacks a column", False)
    gone = AbandonedPublication(lease=7, seen=0)
    (skipped,) = decide_skip(View.of([batch]), a_day(0), a_decision("skip"), gone)
    assert skipped.state is State.SKIPPED


def test_a_publication_to_a_table_may_be_given_up_although_nothing_is_known_against_it() -> None:
    batch = of_table(State.PUBLISHING)
    assert is_unseen(batch)
    assert f"`{batch.command('skip').strip('`')}" in what_next(batch)
    assert "--reprocess" in what_next(batch)
    assert not is_unseen(of_table(State.WRITTEN))


def test_a_batch_for_a_table_is_staged() -> None:
    with pytest.raises(ValidationError, match=r"a batch for table public\.t has to be staged"):
        a_plan((0, 1), output=TABLE)


def schema(text: str) -> StructType:
    """A schema from text needs no session as long as it is JSON."""
    return StructType.fromJson({"type": "struct", "fields": [_field(one) for one in text.split("; ")]})


def _field(text: str) -> dict[str, Any]:
    name, kind = text.split(" ", 1)
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


@pytest.mark.parametrize(
    ("spark", "column", "takes"),
    [
        ("byte", "smallint", True),
        ("integer", "bigint", True),
        ("long", "integer", False),
        ("integer", "double precision", False),
        ("float", "double precision", True),
        ("double", "real", False),
        ("decimal(5,2)", "numeric", True),
        ("decimal(5,2)", "numeric(9,3)", True),
        ("decimal(5,2)", "numeric(9,1)", False),
        ("decimal(5,2)", "numeric(3,-1)", False),
        ("string", "character varying", True),
        ("string", "character varying(9)", False),
        ("string", "character(9)", False),
        ("timestamp", "timestamp with time zone", True),
        ("timestamp", "timestamp(0) with time zone", False),
        ("timestamp", "timestamp without time zone", False),
        ("timestamp_ntz", "timestamp without time zone", True),
        ("binary", "bytea", True),
        ("string", "jsonb", False),
    ],
)
def test_a_column_takes_what_it_holds_exactly(spark: str, column: str, takes: bool) -> None:
    kind = schema(f"a {spark}").fields[0].dataType
    assert holds(column, kind) is takes
    assert holds(kind_for(kind) or "", kind), "a new column takes it in any case"


def test_a_difference_is_told_with_the_statement_that_would_do() -> None:
    wanted = schema("n integer; name string")
    own = [TableColumn("fencepost_interval", "timestamp with time zone"), TableColumn("fencepost_revision", "integer")]
    columns = [TableColumn("n", "integer"), TableColumn("name", "text"), *own]
    assert column_differences("t", wanted, columns, add=False) == []
    assert column_differences("t", wanted, columns[1:], add=False) == [
        'it has no column n: ALTER TABLE t ADD COLUMN "n" integer'
    ]
    assert column_differences("t", wanted, columns[1:], add=True) == []
    needed = [*columns, TableColumn("more", "text", filled=False)]
    assert 'ALTER COLUMN "more" DROP NOT NULL' in column_differences("t", wanted, needed, add=True)[0]
    computed = [TableColumn("n", "integer", computed=True), *columns[1:]]
    assert "computed by the table" in column_differences("t", wanted, computed, add=True)[0]
    assert definition(wanted).startswith('"n" integer, "name" text, "fencepost_interval" timestamp with time zone NOT')


def test_a_name_that_no_table_of_ours_can_have_is_told() -> None:
    assert unsupported_columns(schema("n integer")) == []
    for name in ("FENCEPOST_INTERVAL", "ü" * 32, 'a"b', "a\0b"):
        assert len(unsupported_columns(schema(f"{name} integer"))) == 1, name
    assert "void" in unsupported_columns(schema("n void"))[0]


ODD = {
    "variant": T.VariantType(),
    "variants": T.ArrayType(T.VariantType()),
    "variants by name in a struct": T.StructType().add("a", T.MapType(T.StringType(), T.VariantType())),
    "numbers by number": T.MapType(T.IntegerType(), T.IntegerType()),
    "times": T.ArrayType(T.TimeType()),
}


@pytest.mark.parametrize("kind", ODD.values(), ids=ODD)
def test_a_type_that_json_cannot_say_is_told_before_a_table_is_made(kind: T.DataType) -> None:
    (why,) = unsupported_columns(T.StructType().add("n", T.IntegerType()).add("odd", kind))
    assert why.startswith("column odd ")


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        *((sqlstate, "TableUnavailable") for sqlstate in "08006 25006 25P03 40001 40P01 53100 53200 53300".split()),
        *((sqlstate, "TableUnavailable") for sqlstate in "55006 55P03 57014 57P01 57P03 58030 XX000".split()),
        *((sqlstate, "AccessDenied") for sqlstate in ("28000", "42501")),
        *((sqlstate, "TableRefused") for sqlstate in "0A000 25P02 3D000 3F000 42P01 42P10 55000 58P01 XX001".split()),
    ],
)
def test_an_error_of_the_server_is_retried_where_waiting_helps_and_only_there(sqlstate: str, kind: str) -> None:
    error = meaning(StatementFailed(sqlstate, column="secret", constraint="secret", table="secret"), "here")
    assert type(error).__name__ == kind
    assert "secret" not in str(error)
    assert not StatementFailed(sqlstate).is_of_rows or sqlstate == "55000"


@pytest.mark.parametrize(
    "sqlstate", "UE001 12345 00001 01000 02000 P0001 P0004 21000 22P02 23514 44000 54000 55000".split()
)
def test_any_error_that_is_not_known_to_be_the_servers_own_is_about_the_rows_that_are_copied(sqlstate: str) -> None:
    assert StatementFailed(sqlstate).is_of_rows


def test_the_grants_name_the_tables_and_quote_what_a_name_may_hold() -> None:
    text = "\n".join(statement for _, some in grants("re porting.de'lays", 'o"ne', 'd"b') for statement in some)
    assert 'GRANT SELECT, INSERT, DELETE ON TABLE "re porting"."de\'lays" TO "o""ne";' in text
    assert 'GRANT SELECT, INSERT, UPDATE ON TABLE "re porting"."fencepost_batches" TO "o""ne";' in text
    assert 'GRANT TEMPORARY ON DATABASE "d""b" TO "o""ne";' in text
    assert "DROP" not in text
    assert "TRUNCATE" not in text
