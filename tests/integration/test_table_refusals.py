"""What a table's triggers, keys and parts do to a publication, and that nothing of its rows is shown.

On a real broker, real Spark and a real PostgreSQL. What a table is refused for before anything is staged: `test_table_checks.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from conftest import day
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.kafka import check_unfinished_batches
from fencepost.errors import TableRefused, TableRefusedData, TableUnavailable
from fencepost.findings import Level
from fencepost.model import State
from fencepost.outputs.postgres import commit
from fencepost.outputs.postgres.doctor import check_table
from fencepost.outputs.table.staged_rows import schema_of
from fencepost.steps.advance import advance_batch, begin_batch, skip_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from kafka_tools import read_all
from makers import a_decision
from rigs.postgres_server import PostgresServer
from steps import latest, plan_and_write, run
from tables import ROWS, ask, columns_of, fill, numbers_in, of_revision, store_of

Make = Callable[..., Pipeline]
SECRET = "someone@example.com"
TRIGGER = """
CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NEW; END $$;
CREATE OR REPLACE TRIGGER refuse {} ON numbers FOR EACH ROW EXECUTE FUNCTION refuse();
"""
BEFORE, AT_THE_END = "BEFORE INSERT", "AFTER INSERT"
ALL = "raise info 'of %', new.name; raise warning 'of %', new.name; "
RAISES = (
    ALL + "raise exception 'order of % refused', new.name using errcode = '{}', detail = new.name, hint = new.name, "
    "constraint = new.name, column = new.name, table = new.name, schema = new.name, datatype = new.name;"
)


def passed(spark: Any, broker: Broker, make_table: Make, **changes: Any) -> Pipeline:
    """A pipeline with a batch that has passed, whose rows have an address."""
    pipeline = make_table(**changes)
    fill(broker, pipeline, name=SECRET)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    return pipeline


def shown(broker: Broker, pipeline: Pipeline) -> str:
    """All that is kept of a refusal, and what the commands and the doctor show of it."""
    said = [str(one.message) for check in (check_table, check_unfinished_batches) for one in _findings(check, pipeline)]
    folder = {"FENCEPOST_PIPELINES": str(pipeline.folder.parent)}
    for command in ("status", "ledger"):
        for form in ([], ["--json"]):
            result = CliRunner().invoke(app, [command, pipeline.name, *form], env=folder)
            said.append(result.output)
            assert pipeline.name in result.output, result.output
    said += [str(record.value) for record in read_all(broker.bootstrap, pipeline.ledger_topic)]
    return "\n".join([*said, str(ask(pipeline, "select * from fencepost_batches"))])


def tried(pipeline: Pipeline) -> str:
    """What `fencepost try` says of the table, for rows such as those of the newest batch."""
    columns = schema_of(latest(pipeline, day(1)).require_written.value_schema)
    return columns_of(pipeline).would_take(None, columns)


def _findings(check: Callable[[Inspection], Any], pipeline: Pipeline) -> list[Any]:
    found = check(Inspection(pipeline))
    return list(found) if not hasattr(found, "message") else [found]


def test_whatever_a_trigger_raises_nothing_of_a_row_is_shown_and_the_batch_is_rejected(
    spark: Any,
    broker: Broker,
    make_table: Make,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Nothing that it says is shown: no text, no name that the catalogue does not have, no notice."""
    caplog.set_level(logging.DEBUG)
    pipeline, said = passed(spark, broker, make_table), list[str]()
    codes = ["23514", "23503", "UE001", "55000", "P0001", "22P02", "01000", "54000"]
    triggers = [*((RAISES.format(code), BEFORE, code) for code in codes)]
    triggers += [
        ("assert new.n < 2, 'order of ' || new.name;", BEFORE, "P0004"),
        ("perform new.name::integer;", BEFORE, "22P02"),
        (RAISES.format("UE002"), AT_THE_END, "UE002"),
    ]
    capfd.readouterr()
    for number, (body, when, code) in enumerate(triggers):
        ask(pipeline, TRIGGER.format(body, when))
        decision = a_decision("publish") if number else None
        with pytest.raises(TableRefusedData, match=rf"\(SQLSTATE {code}\)") as raised:
            advance_batch(pipeline, day(1), decision)
        assert latest(pipeline, day(1)).state is State.REJECTED
        said.append(str(raised.value))
    ask(pipeline, "drop trigger refuse on numbers; create or replace function refuse() returns trigger language plpgsql as "
        "$$ begin raise exception '%', new.name using errcode = 'UE003'; end $$; create constraint trigger refuse "
        "after insert on numbers deferrable initially deferred for each row execute function refuse()")  # fmt: skip
    with pytest.raises(TableRefusedData, match=r"\(SQLSTATE UE003\)") as deferred:
        advance_batch(pipeline, day(1), a_decision("publish"))
    said += [str(deferred.value), caplog.text, *capfd.readouterr(), shown(broker, pipeline)]
    assert SECRET not in "\n".join(said)
    ask(pipeline, "drop trigger refuse on numbers")
    assert advance_batch(pipeline, day(1), a_decision("publish")).state is State.PUBLISHED


def test_a_publication_that_a_trigger_calls_transient_for_ever_can_be_given_up(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline, said = passed(spark, broker, make_table), list[str]()
    for code in ("40001", "53100", "57014", "XX000", "55P03"):
        ask(pipeline, TRIGGER.format(RAISES.format(code), BEFORE))
        with pytest.raises(TableUnavailable, match=r"fencepost skip .* can give it up") as raised:
            advance_batch(pipeline, day(1))
        said.append(str(raised.value))
    assert latest(pipeline, day(1)).state is State.PUBLISHING
    assert plan_batch(pipeline, day(1), reprocess=True).revision == 2
    run_to_the_end = (plan_and_write, validate_batch)
    for step in run_to_the_end:
        step(spark, pipeline, day(1))
    begin_batch(pipeline, day(1))
    assert skip_batch(pipeline, day(1), a_decision("skip")).state is State.SKIPPED
    assert SECRET not in "\n".join([*said, shown(broker, pipeline)])
    assert numbers_in(pipeline) == []


@pytest.mark.deep
def test_a_publication_is_given_up_in_another_database_where_its_server_is_gone(
    spark: Any, broker: Broker, make_table: Make, postgres: PostgresServer
) -> None:
    pipeline = passed(spark, broker, make_table)
    begin_batch(pipeline, day(1))

    def with_store(**changes: str) -> Pipeline:
        return make_table(name=pipeline.name, postgres=store_of(pipeline) | changes)

    with pytest.raises(TableUnavailable, match=r"cannot be given up .* name another one in postgres:") as raised:
        skip_batch(with_store(port="1"), day(1), a_decision("skip"))
    assert "Run again" in str(raised.value)
    assert latest(pipeline, day(1)).state is State.PUBLISHING
    elsewhere = make_table(name=pipeline.name, postgres=postgres.database())
    assert skip_batch(elsewhere, day(1), a_decision("skip")).state is State.SKIPPED


def test_rows_that_others_refer_to_are_not_lost_and_no_batch_is_rejected_for_them(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    """Case by case of one table: a key that is checked at once, one that is put off, and one with an action."""
    pipeline = passed(spark, broker, make_table)
    ask(pipeline, "alter table numbers add primary key (n)")
    ask(pipeline, "create table notes (n integer constraint refers references numbers, note text)")
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    ask(pipeline, "insert into notes values (1, 'call back')")
    (warned,) = [one for one in _findings(check_table, pipeline) if "refer to its rows" in one.found]
    assert warned.level is Level.WARNING
    assert f"{warned.found.rstrip('.')}: {warned.command}." == tried(pipeline)
    with pytest.raises(
        TableRefused, match=r"rows of table public.notes refer to rows that the batch replaces"
    ) as raised:
        run(spark, pipeline, day(1), reprocess=True)
    assert "(SQLSTATE 23503, constraint refers): ALTER TABLE public.notes" in str(raised.value)
    assert latest(pipeline, day(1)).state is State.PUBLISHING
    assert numbers_in(pipeline) == of_revision(1, range(6))
    ask(pipeline, warned.command)
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    assert numbers_in(pipeline) == of_revision(2, range(6))
    assert ask(pipeline, "select * from notes") == [(1, "call back")]
    (pipeline.folder / "transform.py").write_text(ROWS.replace("n >= 0", "n > 1"))
    with pytest.raises(
        TableRefusedData, match=r"rows of table public.notes refer to a value that the batch does not have"
    ):
        run(spark, pipeline, day(1), reprocess=True)
    assert latest(pipeline, day(1)).state is State.REJECTED
    assert skip_batch(pipeline, day(1), a_decision("skip")).state is State.SKIPPED
    ask(pipeline, "alter table notes drop constraint refers, add constraint refers foreign key (n) references numbers "
        "on delete cascade")  # fmt: skip
    with pytest.raises(
        TableRefused, match=r"ON DELETE CASCADE.*or accept this change with output.allow_referential_actions: true"
    ):
        plan_batch(pipeline, day(1), reprocess=True)
    with pytest.raises(TableRefused, match=r"ON DELETE CASCADE"):
        tried(pipeline)
    assert ask(pipeline, "select * from notes") == [(1, "call back")]
    allowing = make_table(
        ROWS.replace("n >= 0", "n > 1"),
        name=pipeline.name,
        postgres=store_of(pipeline),
        output={"allow_referential_actions": True},
    )
    assert run(spark, allowing, day(1), reprocess=True).state is State.PUBLISHED
    assert ask(pipeline, "select * from notes") == []


OWN = "n integer, doubled integer, name text, fencepost_interval timestamptz, fencepost_revision integer"


def test_what_becomes_of_a_table_while_it_is_published_to_is_found_before_the_commit(
    spark: Any, broker: Broker, make_table: Make, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = postgres.database()
    pipeline = make_table(postgres=store)
    ask(pipeline, f"create table numbers ({OWN}) partition by range (n)")
    ask(pipeline, "create table few partition of numbers for values from (0) to (3)")
    ask(pipeline, "create table more partition of numbers for values from (3) to (9)")
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    begin_batch(pipeline, day(1))
    ask(pipeline, "alter table more set unlogged")
    with pytest.raises(TableRefused, match=r"its part public\.more is unlogged"):
        advance_batch(pipeline, day(1))
    ask(pipeline, "alter table more set logged")
    postgres.run("create publication everything for all tables", dbname=store["dbname"])
    with pytest.raises(TableRefused, match=r"ALTER TABLE public\.few REPLICA IDENTITY FULL"):
        advance_batch(pipeline, day(1))
    (found,) = _findings(check_table, pipeline)
    assert (found.level, "REPLICA IDENTITY FULL" in found.found) == (Level.ERROR, True)
    postgres.run("drop publication everything", dbname=store["dbname"])
    read = commit.read_staged

    def attached(*arguments: Any) -> Iterator[Any]:
        """A part is attached after the publication has looked at the table's."""
        ask(pipeline, f"create unlogged table late ({OWN})")
        ask(pipeline, "alter table numbers attach partition late for values from (9) to (19)")
        yield from read(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "read_staged", attached)
        with pytest.raises(TableRefused, match=r"its part public\.late is unlogged"):
            advance_batch(pipeline, day(1))
    assert numbers_in(pipeline) == []
    ask(pipeline, "alter table numbers detach partition late")
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    assert numbers_in(pipeline) == of_revision(1, range(6))


@pytest.mark.deep
def test_a_trigger_that_forbids_a_removal_is_the_tables_fault(spark: Any, broker: Broker, make_table: Make) -> None:
    pipeline = passed(spark, broker, make_table)
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    ask(pipeline, TRIGGER.format("raise exception 'keep %', old.name;", "BEFORE DELETE"))
    with pytest.raises(TableRefused, match=r"does not let the batch remove the rows that it replaces") as raised:
        run(spark, pipeline, day(1), reprocess=True)
    assert latest(pipeline, day(1)).state is State.PUBLISHING
    assert SECRET not in str(raised.value) + shown(broker, pipeline)
    assert skip_batch(pipeline, day(1), a_decision("skip")).state is State.SKIPPED
    assert numbers_in(pipeline) == of_revision(1, range(6)), "what was published stays"
