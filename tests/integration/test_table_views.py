"""What a person sees of a pipeline with a table, and what its role needs: rights, the doctor, status, and no secret anywhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import psycopg2
import pytest
import yaml
from typer.testing import CliRunner

from conftest import day
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.examination import examine
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check
from fencepost.errors import AccessDenied, LoginRefused
from fencepost.findings import Level
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.outputs.asset import extra_of
from fencepost.outputs.output import missing_or_why_not, output_of
from fencepost.outputs.postgres.doctor import check_table_rights
from fencepost.outputs.postgres.rights import grants
from fencepost.outputs.postgres.settings import PostgresSettings
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from rigs.postgres_server import PASSWORD, PostgresServer, query
from steps import latest, run
from tables import ask as ask_table
from tables import fill, numbers_in, of_revision, store_of

Make = Callable[..., Pipeline]
OWN_TABLE = (
    "create table numbers (n integer, doubled integer, name text, fencepost_interval timestamptz not null, "
    "fencepost_revision integer not null)"
)


def logged_in_as(pipeline: Pipeline, user: str) -> Pipeline:
    """The pipeline with another user of the same database."""
    file = pipeline.folder / "pipeline.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["postgres"]["user"] = user
    file.write_text(yaml.safe_dump(settings))
    return load_pipeline(pipeline.folder)


@pytest.fixture
def least(make_table: Make, postgres: PostgresServer, broker: Broker) -> Pipeline:
    """A pipeline whose user has what `fencepost acls` prints as needed, and whose tables somebody else made."""
    pipeline = make_table()
    ask_table(pipeline, OWN_TABLE)
    output_of(Deployment.of(pipeline)).prepare()
    user = f"{pipeline.name}_etl"
    postgres.run(f"create role {user} login password %s", values=(PASSWORD,))
    (needed, *_) = grants("public.numbers", user, store_of(pipeline)["dbname"])
    for statement in needed[1]:
        ask_table(pipeline, statement)
    fill(broker, pipeline)
    return logged_in_as(pipeline, user)


@pytest.mark.deep
def test_a_role_with_the_printed_rights_publishes_and_one_without_is_told(
    spark: Any, least: Pipeline, postgres: PostgresServer
) -> None:
    assert run(spark, least, day(1)).state is State.PUBLISHED
    assert run(spark, least, day(1), reprocess=True).revision == 2
    assert numbers_in(least) == of_revision(2, range(6))
    assert [one.level for one in run_check(check_table_rights, Inspection(least))] == [Level.OK]
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        ask_table(least, "truncate numbers")
    user = store_of(least)["user"]
    postgres.run(f"revoke delete on numbers from {user}", dbname=store_of(least)["dbname"])
    (found,) = run_check(check_table_rights, Inspection(least))
    assert (found.level, "DELETE on table" in found.found) == (Level.ERROR, True)
    with pytest.raises(AccessDenied, match="`fencepost acls` prints the rights"):
        run(spark, least, day(1), reprocess=True)
    batch = latest(least, day(1))
    assert batch.state is State.PUBLISHING
    assert batch.require_publication.refused, "the ledger says why, so it can be given up"


@pytest.mark.deep
def test_a_reader_sees_published_rows_and_changes_nothing(
    spark: Any, least: Pipeline, postgres: PostgresServer
) -> None:
    run(spark, least, day(1))
    reader = f"{least.name}_reader"
    postgres.run(f"create role {reader} login password %s", values=(PASSWORD,))
    *_, (_, statements) = grants("public.numbers", "unused", "unused")
    dbname = store_of(least)["dbname"]
    for statement in statements:
        postgres.run(statement.replace("READER", reader), dbname=dbname)
    settings = store_of(least) | {"user": reader}
    assert query(settings, "select count(*) from numbers") == [(6,)]
    assert query(settings, "select rows from fencepost_batches") == [(6,)]
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        query(settings, "delete from numbers")


@pytest.mark.deep
def test_the_doctor_finds_a_sound_table_sound_and_names_what_is_not(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    found = {one.check: one for one in examine(pipeline)}
    ours = ("postgres", "postgres limits", "table rights", "table", "table bloat", "table contents", "table rows")
    assert {name: found[name].level for name in ours} == dict.fromkeys(ours, Level.OK), found
    ask_table(
        pipeline, "drop index numbers_fencepost_interval_idx; alter table numbers alter n type bigint; truncate numbers"
    )
    ask_table(pipeline, "alter table numbers alter name type char(3)")
    found = {f"{one.check} {n}": one for n, one in enumerate(examine(pipeline))}
    said = " ".join(one.found for name, one in found.items() if name.startswith("table"))
    assert "has no index on its intervals" in said
    assert "column name is character(3)" in said
    assert "column n is" not in said, "a bigint holds an int"
    assert "in 1 interval:" in said


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"password": "another"}, "password authentication failed"), ({"user": "nobody_here"}, "authentication failed")],
)
def test_the_doctor_finds_a_login_that_a_run_would_be_refused_with(
    broker: Broker, make_table: Make, postgres: PostgresServer, wrong: dict[str, str], words: str
) -> None:
    pipeline = make_table(postgres=postgres.database() | wrong)
    fill(broker, pipeline)
    (found,) = (one for one in examine(pipeline) if one.level is Level.ERROR)
    assert (words in found.found, found.kind) == (True, LoginRefused)
    assert not any(secret in found.message for secret in (PASSWORD, "another"))
    with pytest.raises(LoginRefused):
        plan_batch(pipeline, day(1))


def test_the_doctor_finds_a_user_who_may_not_make_the_missing_tables(
    broker: Broker, make_table: Make, postgres: PostgresServer
) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    postgres.run("revoke create on schema public from public", dbname=store_of(pipeline)["dbname"])
    postgres.run("alter schema public owner to postgres", dbname=store_of(pipeline)["dbname"])
    (found,) = (one for one in examine(pipeline) if one.level is Level.ERROR)
    assert (found.check, "may not create tables in schema public" in found.found) == ("table", True)
    with pytest.raises(AccessDenied):
        plan_batch(pipeline, day(1))


@pytest.mark.deep
def test_status_and_acls_tell_of_the_table_and_nothing_of_the_password(
    spark: Any, broker: Broker, make_table: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from fencepost.cli.app import app

    caplog.set_level(logging.DEBUG, "fencepost")
    pipeline = make_table()
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    fill(broker, pipeline)
    result = run(spark, pipeline, day(1))
    extra = extra_of(result)
    assert (extra["output"], extra["ranges"], extra["rows"]) == ("public.numbers", {}, 6)

    def says(*arguments: str) -> str:
        return CliRunner().invoke(app, list(arguments), catch_exceptions=False).output

    told = [
        says("status", pipeline.name, "--json"),
        says("acls", pipeline.name, "--principal", "User:etl"),
        says("ledger", pipeline.name, "--json"),
    ]
    assert '"output_lacks": null' in told[0]
    assert '# GRANT SELECT, INSERT, DELETE ON TABLE "public"."numbers"' in told[1]
    assert all(pipeline.output.name not in line for line in told[1].splitlines() if line.startswith("kafka-acls"))
    assert '"table": "public.numbers"' in told[2]
    ask_table(pipeline, "truncate numbers")
    status = says("status", pipeline.name, "--json")
    assert "table public.numbers does not have what the ledger" in status
    assert day(1).command("run", pipeline.name, "--reprocess").strip("`") in status
    ask_table(pipeline, "drop table fencepost_batches")
    records = "".join(batch.model_dump_json() for batch in Ledger(pipeline).peek().all())
    assert all(PASSWORD not in text for text in (*told, status, caplog.text, records, str(result), repr(pipeline)))


@pytest.mark.deep
def test_a_store_that_is_away_does_not_hide_the_ledger(broker: Broker, make_table: Make) -> None:
    pipeline = make_table(postgres={"host": "127.0.0.1", "port": "1", "dbname": "d", "user": "u", "password": PASSWORD})
    told = missing_or_why_not(Deployment.of(pipeline))
    assert told.startswith("table public.numbers could not be compared with the ledger: ")
    assert isinstance(pipeline.output, PostgresSettings)
    assert PASSWORD not in told
