"""The PostgreSQL server of a side table: its settings, secrets and connection are treated as those of `postgres:`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fencepost.cli.app import app
from fencepost.config.connections import (
    is_worth_a_retry,
    message_with_connections,
    resolved,
    secrets_of,
    settings_of,
    with_settings,
)
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.public_settings import pipeline_of_public, public_settings
from fencepost.config.references import PAGES_ENVIRONMENT
from fencepost.config.services.connection import Connection
from fencepost.config.services.postgres import POSTGRES
from fencepost.errors import LoginRefused, SettingsError
from fencepost.postgres.connection import describe_server

SECRET = "hunter2"
SERVER = {"host": "rates-db", "dbname": "rates", "user": "reader", "password": SECRET}
OWN = {"host": "own-db", "dbname": "own", "user": "writer", "password": "hunter3"}
QUERY = {"query": "SELECT code, rate FROM rates", "key": "code"}
FOUND = Connection("rates_db", host="rates-db", schema="rates", login="reader", password=SECRET, port=5433)


def load(folder: Path, server: Any, *, at_parse: bool = False, **sections: Any) -> Pipeline:
    """Load a pipeline whose side table `rates` has this server; none for the pipeline's own."""
    settings = {
        "source": {"topic": "in", "schema": {"n": "int"}},
        "output": {"topic": "out"},
        "schedule": {"start": "2026-01-01"},
        "kafka": {"bootstrap.servers": "kafka:9092"},
        "tables": {"rates": QUERY | ({} if server is None else {"postgres": server})},
    }
    folder = folder / "orders"
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings | sections))
    (folder / "transform.py").write_text("def transform(source, rates):\n    return source\n")
    (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: n}}]")
    return load_pipeline(folder, at_parse=at_parse)


def of_rates(pipeline: Pipeline) -> dict[str, str]:
    return pipeline.server_of("rates").plain(POSTGRES)


def test_a_query_goes_to_the_tables_own_server_or_else_to_the_pipelines(tmp_path: Path) -> None:
    both = load(tmp_path, SERVER | {"port": 5433, "target_session_attrs": "standby"}, postgres=OWN)
    assert of_rates(both) == SERVER | {"port": "5433", "target_session_attrs": "standby"}
    assert describe_server(both.server_of("rates")) == "PostgreSQL at rates-db:5433, database rates"
    assert of_rates(load(tmp_path, None, postgres=OWN)) == OWN
    named = load(tmp_path, None, postgres={"connection": "rates_db"})
    assert of_rates(resolved(named, {"rates_db": FOUND}.__getitem__)[0])["host"] == "rates-db"
    with pytest.raises(
        SettingsError, match=r"tables\.rates\.query needs a server: give tables\.rates\.postgres, or postgres:"
    ):
        load(tmp_path, None)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (f"postgresql://reader:{SECRET}@db", "tables.rates.postgres: not a section of names and values."),
        ([SECRET], "tables.rates.postgres: not a section of names and values."),
        ({}, "tables.rates.postgres: it is empty; name a server, or leave it out for the pipeline's own."),
        ({"host": "db", "password": SECRET}, "tables.rates.postgres: dbname, user: required but missing."),
        (SERVER | {"passwrd": SECRET}, "tables.rates.postgres: passwrd: not a setting of libpq that Fencepost passes on; did you "
         "mean password?."),
        (SERVER | {"options": SECRET}, "tables.rates.postgres: options: not allowed: a pooler accepts no options; Fencepost sets "
         "the options of a transaction within the transaction."),
        (SERVER | {"password": [SECRET]}, "tables.rates.postgres.password: Input should be a valid string."),
        ({"connection": "rates_db", "host": SECRET}, "tables.rates.postgres: host cannot be set beside connection, because it "
         "decides which server gets the connection's secret. Set it in the connection, or leave connection out."),
        ({"connection": "rates db"}, "tables.rates.postgres.connection: the id of a connection has 1 to 200 letters, digits, _, "
         "- and .."),
    ],
)  # fmt: skip
def test_a_mistake_names_the_tables_section_and_no_secret(tmp_path: Path, server: Any, why: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, server)
    assert str(raised.value) == f"{tmp_path}/orders/pipeline.yaml: {why}"


def test_no_text_form_of_a_pipeline_and_no_digest_has_the_tables_login(tmp_path: Path) -> None:
    pipeline = load(tmp_path, SERVER)
    for text in (repr(pipeline), str(pipeline.within), pipeline.model_dump_json()):
        assert SECRET not in text
    others = load(tmp_path, SERVER | {"host": "elsewhere", "port": 5433, "password": "another"})
    assert pipeline.write_digests() == others.write_digests()
    (tmp_path / "orders" / "pipeline.yaml").write_text(
        (tmp_path / "orders" / "pipeline.yaml").read_text().replace("rate FROM", "2 * rate FROM")
    )
    assert load_pipeline(tmp_path / "orders").write_digests() != pipeline.write_digests()


def test_the_tables_server_takes_its_values_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATES_HOST", "rates-db")
    monkeypatch.setenv("RATES_PASSWORD", SECRET)
    server = SERVER | {"host": "${RATES_HOST}", "password": "${RATES_PASSWORD}", "sslmode": "${RATES_TLS:-}"}
    assert of_rates(load(tmp_path, server)) == SERVER
    with pytest.raises(
        SettingsError, match=r"tables\.rates\.postgres\.user: \$\{RATES_PASSWORD\} looks like a secret, but messages"
    ):
        load(tmp_path, server | {"user": "${RATES_PASSWORD}"})
    with pytest.raises(
        SettingsError, match=r"tables\.rates\.query: \$\{RATES_HOST\} is not allowed here; only values under .*postgres"
    ):
        load(tmp_path, SERVER, tables={"rates": QUERY | {"query": "SELECT '${RATES_HOST}'"}})
    monkeypatch.delenv("RATES_HOST")
    with pytest.raises(
        SettingsError, match=r"tables\.rates\.postgres\.host: \$\{RATES_HOST\} is not set in the environment"
    ):
        load(tmp_path, server)
    assert load(tmp_path, server, at_parse=True).tables == {}, "a DAG's parse needs no side table"


def test_the_topic_of_a_table_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTOMERS", "customers-test")
    topic = {"topic": "${CUSTOMERS}", "key": "id", "schema": {"id": "int"}}
    assert load(tmp_path, None, tables={"customers": topic}).topic_tables["customers"].topic == "customers-test"
    with pytest.raises(SettingsError, match=r"tables\.customers\.format: \$\{CUSTOMERS\} is not allowed here"):
        load(tmp_path, None, tables={"customers": topic | {"format": "${CUSTOMERS}"}})


def test_a_connection_gives_the_tables_settings_which_are_masked_and_handed_to_the_job(tmp_path: Path) -> None:
    pipeline = load(tmp_path, {"connection": "rates_db", "user": "another"}, postgres=OWN)
    assert pipeline.all_connections == {"tables.rates.postgres": "rates_db"}
    with pytest.raises(
        SettingsError, match=r"pipeline orders, tables\.rates: its postgres settings .* connection rates_db, which"
    ):
        of_rates(pipeline)
    whole, given = resolved(pipeline, {"rates_db": FOUND}.__getitem__)
    assert of_rates(whole) == SERVER | {"user": "another", "port": "5433"}
    assert whole.plain(POSTGRES) == OWN
    assert list(given) == ["tables.rates.postgres"]
    assert secrets_of(whole) == [SECRET]
    handed = json.loads(json.dumps(settings_of(whole)))
    assert of_rates(with_settings(pipeline, handed)) == of_rates(whole)
    refused = LoginRefused("no login.")
    assert is_worth_a_retry(refused, pipeline)
    assert message_with_connections(refused, pipeline).startswith(
        "no login. Settings come from Airflow's connection rates_db;"
    )


def test_a_connection_without_a_database_is_refused_with_its_place(tmp_path: Path) -> None:
    pipeline = load(tmp_path, {"connection": "rates_db"})
    with pytest.raises(SettingsError) as raised:
        resolved(pipeline, lambda name: Connection(name, host="rates-db", login="reader", password=SECRET))
    assert str(raised.value) == (
        f"{tmp_path}/orders/pipeline.yaml: tables.rates.postgres.connection rates_db, with the settings beside it: dbname: "
        "required but missing."
    )


def test_a_replica_will_do_for_a_table_also_from_a_connection(tmp_path: Path) -> None:
    pipeline = load(tmp_path, {"connection": "rates_db", "target_session_attrs": "prefer-standby"})
    whole, _ = resolved(pipeline, {"rates_db": FOUND}.__getitem__)
    assert of_rates(whole)["target_session_attrs"] == "prefer-standby"
    with pytest.raises(SettingsError, match="target_session_attrs: allowed is read-write or primary"):
        load(tmp_path, None, postgres=OWN | {"target_session_attrs": "prefer-standby"})


def test_a_dag_carries_the_tables_without_their_secrets_which_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = public_settings(load(tmp_path, SERVER))
    assert carried["settings"]["tables"] == {
        "rates": QUERY | {"postgres": {"host": "rates-db", "dbname": "rates", "user": "reader"}}
    }
    assert carried["left_out"] == ["tables.rates.postgres.password"]
    with pytest.raises(
        SettingsError,
        match=r"tables\.rates\.postgres\.password: required here, .* missing here: tables\.rates\.postgres\.password",
    ):
        pipeline_of_public(json.loads(json.dumps(carried)), "orders")
    monkeypatch.setenv("RATES_PASSWORD", SECRET)
    carried = public_settings(load(tmp_path, SERVER | {"password": "${RATES_PASSWORD}"}))
    with pytest.raises(SettingsError, match="does not list it"):
        pipeline_of_public(carried, "orders")
    monkeypatch.setenv(PAGES_ENVIRONMENT, "RATES_PASSWORD")
    assert of_rates(pipeline_of_public(carried, "orders")) == SERVER | {
        "gssencmode": "disable",
        "sslcertmode": "disable",
        "require_auth": "!gss,!sspi",
    }
    carried = public_settings(load(tmp_path, {"connection": "rates_db"}))
    assert pipeline_of_public(carried, "orders").all_connections == {"tables.rates.postgres": "rates_db"}


def test_a_dag_may_not_name_a_login_file_of_this_machine_for_a_table(tmp_path: Path) -> None:
    carried = public_settings(load(tmp_path, {"connection": "rates_db", "sslkey": "/etc/ssl/private/api-server.key"}))
    with pytest.raises(
        SettingsError, match=r"tables\.rates\.postgres\.sslkey: a file of this machine, which is not used"
    ):
        pipeline_of_public(carried, "orders")


def test_acls_says_what_the_user_of_a_query_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(tmp_path, SERVER | {"user": 'the "reader"'})
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    command = ["acls", "orders", "--principal", "User:etl"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.stdout.splitlines()[-3:] == [
        "# needed for side table rates, in database rates at rates-db, in the place of SCHEMA and TABLE for each table that its "
        "query reads",
        '# GRANT USAGE ON SCHEMA SCHEMA TO "the ""reader""";',
        '# GRANT SELECT ON TABLE SCHEMA.TABLE TO "the ""reader""";',
    ]
    assert "GRANT" not in CliRunner().invoke(app, [*command, "--reader"], catch_exceptions=False).stdout
    assert SECRET not in done.output
