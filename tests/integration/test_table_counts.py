"""A table that does not do what it is told: it keeps what is deleted, adds, moves or hides rows. Nothing is committed then."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import TableRefused
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.outputs.table.staged_rows import schema_of
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from steps import latest, plan_and_write, run
from tables import ask, columns_of, fill, numbers_in, of_revision, store_of

Make = Callable[..., Pipeline]


def trigger(body: str, when: str, deferred: bool = False) -> tuple[str, str]:
    """Statements that make a trigger of the table, and remove it."""
    kind = "constraint trigger acts {} on numbers initially deferred" if deferred else "trigger acts {} on numbers"
    each = "statement" if "statement" in when else "row"
    made = (
        f"create function acts() returns trigger language plpgsql as $$ begin {body} end $$; "
        f"create {kind.format(when.removesuffix(' statement'))} for each {each} execute function acts()"
    )
    return made, "drop trigger acts on numbers; drop function acts()"


ADD = "insert into numbers select -1, 0, 'x', fencepost_interval, {} from numbers where n = 0"
ACTS = {
    "keeps what is deleted": trigger("return null;", "before delete"),
    "keeps some of it": trigger("if old.n = 3 then return null; end if; return old;", "before delete"),
    "has a rule for deletes": (
        "create rule acts as on delete to numbers do instead nothing",
        "drop rule acts on numbers",
    ),
    "leaves rows out": trigger("if new.n = 3 then return null; end if; return new;", "before insert"),
    "moves rows to another interval": trigger(
        "if new.n = 3 then new.fencepost_interval = '2020-01-01Z'; end if; return new;", "before insert"
    ),
    "gives rows another revision": trigger("if new.n = 3 then new.fencepost_revision = 7; end if; return new;", "before insert"),
    "adds rows": trigger(
        "if new.n = 3 then insert into numbers values (-1, 0, 'x', new.fencepost_interval, new.fencepost_revision); end if; "
        "return null;",
        "after insert",
    ),
    "adds rows of another revision, once for all": trigger(
        f"if pg_trigger_depth() = 1 then {ADD.format(1)}; end if; return null;", "after insert statement"
    ),
    "copies rows to another interval": trigger(
        "if new.n = 3 then insert into numbers values (-1, 0, 'x', '2020-01-01Z', 1); end if; return null;", "after insert"
    ),
    "removes rows in the end": trigger("delete from numbers where n = 3; return null;", "after insert", deferred=True),
    "adds rows in the end": trigger(
        "if new.n = 3 then insert into numbers values (-1, 0, 'x', new.fencepost_interval, 2); end if; return null;",
        "after insert",
        deferred=True,
    ),
}  # fmt: skip


def test_what_an_interval_holds_is_counted_before_the_commit_and_a_table_that_differs_is_refused(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    """Each kind of trigger or rule in turn; then hidden rows, and locks without their key. Once all is fixed it is published."""
    pipeline = make_table()
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    plan_and_write(spark, pipeline, day(1), reprocess=True)
    validate_batch(spark, pipeline, day(1))
    for name, (made, removed) in ACTS.items():
        ask(pipeline, made)
        with pytest.raises(
            TableRefused, match=r"table public\.numbers would hold .* The table has (trigger|rule) acts:"
        ) as raised:
            advance_batch(pipeline, day(1))
        says = "1 more row in other intervals" if name.startswith("copies") else "instead of 6 rows of revision 2."
        assert says in str(raised.value), name
        ask(pipeline, removed)
        assert numbers_in(pipeline) == of_revision(1, range(6)), name
        assert latest(pipeline, day(1)).state is State.PUBLISHING, name
    user = store_of(pipeline)["user"]
    ask(pipeline, f"alter table numbers enable row level security, force row level security; "
        f"create policy three on numbers to {user} using (n < 3)")  # fmt: skip
    with pytest.raises(TableRefused, match=r"row level security of .*numbers.* NO FORCE ROW LEVEL SECURITY"):
        advance_batch(pipeline, day(1))
    with pytest.raises(TableRefused, match="row level security"):
        columns_of(pipeline).would_take(None, schema_of(latest(pipeline, day(1)).require_written.value_schema))
    ask(pipeline, "alter table numbers no force row level security")
    ask(pipeline, "alter table fencepost_batches drop constraint fencepost_batches_pkey; "
        "insert into fencepost_batches select * from fencepost_batches")  # fmt: skip
    with pytest.raises(TableRefused, match="has no unique key on table_name, interval_start"):
        advance_batch(pipeline, day(1))
    with pytest.raises(TableRefused, match="has no unique key") as raised:
        plan_batch(pipeline, day(2))
    statements = re.search(r"at once: (DELETE .*\))\.", str(raised.value))
    assert statements is not None
    ask(pipeline, statements[1])
    assert ask(pipeline, "select count(*) from fencepost_batches") == [(1,)]
    ask(pipeline, "create table audit (n integer); alter table audit enable row level security, force row level security; "
        "create policy adds on audit for insert with check (true)")  # fmt: skip
    ask(pipeline, trigger("insert into audit values (new.n); return new;", "before insert")[0])
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED, "a trigger may write to a table with policies"
    assert numbers_in(pipeline) == of_revision(2, range(6))


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["date", "timestamptz(0)", "moment"])
def test_an_interval_in_another_type_and_hidden_rows_are_refused_before_anything_is_staged(
    spark: Any, broker: Broker, make_table: Make, kind: str
) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    hidden = "alter table numbers enable row level security, force row level security"
    ask(pipeline, "create domain moment as timestamptz; create table numbers (n integer, doubled integer, name text, "
        f"fencepost_interval {kind}, fencepost_revision integer); {hidden}")  # fmt: skip
    for message in ("row level security", "column fencepost_interval is"):
        with pytest.raises(TableRefused, match=message):
            plan_and_write(spark, pipeline, day(1))
        assert all(batch.written is None for batch in Ledger(pipeline).read().all())
        ask(pipeline, "alter table numbers no force row level security")
