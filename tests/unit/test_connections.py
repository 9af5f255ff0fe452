"""A pipeline's settings from a connection of Airflow's: what it means, what wins, and what it must not hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

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
from fencepost.config.services.connection import Connection, ConnectionSettings
from fencepost.config.services.iceberg import check_iceberg, iceberg_of
from fencepost.config.services.kafka import kafka_of
from fencepost.config.services.postgres import postgres_of
from fencepost.config.services.schema_registry import registry_of
from fencepost.errors import AccessDenied, KafkaUnavailable, LoginRefused, SettingsError
from fencepost.kafka.client_settings import client_settings

Load = Callable[..., Pipeline]
SCRAM = {
    "bootstrap.servers": "kafka-1:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "etl",
    "sasl.password": "hunter2-of-kafka",
}


def without(name: str) -> dict[str, str]:
    return {k: v for k, v in SCRAM.items() if k != name}


def kafka(extra: Any) -> Connection:
    return Connection("kafka_prod", extra=extra if isinstance(extra, str) else json.dumps(extra))


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a pipeline whose sections of settings are these."""

    def make(**sections: Any) -> Pipeline:
        folder = tmp_path / "orders"
        folder.mkdir(exist_ok=True)
        settings = {
            "source": {"topic": "in", "schema": {"n": "int"}},
            "output": {"topic": "out"},
            "schedule": {"start": "2026-01-01"},
        } | sections
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
        (folder / "transform.sql").write_text("SELECT * FROM {source}")
        (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: n}}]")
        return load_pipeline(folder)

    return make


def whole(pipeline: Pipeline, *connections: Connection) -> tuple[Pipeline, dict[str, ConnectionSettings]]:
    known = {one.id: one for one in connections}
    return resolved(pipeline, known.__getitem__)


def plain(pipeline: Pipeline) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in pipeline.kafka.items()}


def test_a_pipeline_holds_the_name_alone_until_its_connection_is_looked_up(load: Load) -> None:
    pipeline = load(kafka={"connection": "kafka_prod", "client.id": "orders"})
    assert pipeline.connections == {"kafka": "kafka_prod"}
    assert plain(pipeline) == {"client.id": "orders"}
    with pytest.raises(SettingsError, match=r"in Airflow's connection kafka_prod, which was not looked up"):
        client_settings(pipeline)
    found, _ = whole(pipeline, kafka(SCRAM))
    assert client_settings(found).values == SCRAM | {"client.id": "orders"}
    assert not pipeline.resolved, "the loaded pipeline is as it was"


def test_neither_connection_nor_login_is_in_a_digest(load: Load) -> None:
    pipeline = load(kafka={"connection": "kafka_prod"})
    digests = [
        whole(load(kafka={"connection": name}), Connection(name, extra=json.dumps(SCRAM | {"sasl.password": secret})))[
            0
        ]
        for name, secret in (("kafka_prod", "hunter2"), ("kafka_prod", "hunter3"), ("another", "hunter2"))
    ]
    assert len({json.dumps(one.write_digests()) for one in digests}) == 1
    assert "kafka_prod" not in json.dumps(pipeline.write_digests())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("5", "5"),
        ("0.5", "0.5"),
        ("1e3", "1000"),
        ("5.0", "5"),
        ("10000000000000001", "10000000000000001"),
        ("-1", "-1"),
        ("true", "true"),
        ("false", "false"),
        ('"texts stay"', "texts stay"),
    ],
)
def test_jsons_numbers_and_booleans_are_librdkafkas_texts(value: str, text: str) -> None:
    found = kafka_of(kafka(f'{{"bootstrap.servers": "k:9092", "linger.ms": {value}}}'))
    assert found.settings["linger.ms"] == text


def test_null_and_empty_leave_a_setting_out() -> None:
    found = kafka_of(kafka({"bootstrap.servers": "k:9092", "sasl.username": None, "sasl.password": ""}))
    assert found.settings == {"bootstrap.servers": "k:9092"}


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("hunter2", "its extra is not JSON"),
        ("[" * 100_000, "its extra is not JSON"),
        ('["hunter2"]', "its extra is not a JSON object"),
        ('"hunter2"', "its extra is not a JSON object"),
        ({"ssl": {"key.pem": "hunter2"}}, "has an object or a list as ssl"),
        ({"sasl.password": "hunter2\0"}, "sasl.password contains a character that no setting can have"),
    ],
    ids=["no JSON", "deep", "list", "text", "object", "NUL"],
)
def test_an_extra_that_holds_no_settings_is_refused_without_its_text(extra: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=r"^connection kafka_prod: ") as raised:
        kafka_of(kafka(extra))
    assert words in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(kafka(extra))


def test_what_belongs_to_a_plain_consumer_is_left_out_and_named(load: Load) -> None:
    consumer = {
        "group.id": "reports",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": True,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 2000,
        "max.poll.interval.ms": 300000,
        "isolation.level": "read_uncommitted",
        "error_cb": "company.alerts.of_kafka",
    }
    found, told = whole(load(kafka={"connection": "kafka_prod"}), kafka(SCRAM | consumer))
    assert plain(found) == SCRAM
    assert told["kafka"].left_out == tuple(sorted(consumer))
    assert "hunter2" not in repr(told)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"oauth_cb": "company.auth.token"}, "by oauth_cb"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}, "by OAUTHBEARER"),
        (
            {"sasl.mechanisms": "OAUTHBEARER", "bootstrap.servers": "b-1.x.c2.kafka.us-east-1.amazonaws.com:9098"},
            "by Amazon MSK by IAM",
        ),
        (
            {
                "sasl.mechanism": "oauthbearer",
                "bootstrap.servers": "boot-x.c2.kafka-serverless.us-east-1.amazonaws.com:9098",
            },
            "by Amazon MSK by IAM",
        ),
        ({"bootstrap.servers": "bootstrap.c.eu.managedkafka.p.cloud.goog:9092"}, "by Google's Managed Kafka"),
    ],
)
def test_a_login_by_a_token_is_refused_by_its_name(extra: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=r"^kafka\.connection kafka_prod: it logs in ") as raised:
        kafka_of(kafka({"bootstrap.servers": "k:9092", "sasl.password": "hunter2"} | extra))
    assert words in str(raised.value)
    assert "SCRAM-SHA-512" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "brokers", ["b-1.x.c2.kafka.us-east-1.amazonaws.com:9096", "bootstrap.c.eu.managedkafka.p.cloud.goog:9092"]
)
def test_a_clouds_kafka_with_a_password_is_taken(load: Load, brokers: str) -> None:
    found, _ = whole(load(kafka={"connection": "kafka_prod"}), kafka(SCRAM | {"bootstrap.servers": brokers}))
    assert plain(found)["bootstrap.servers"] == brokers


@pytest.mark.parametrize(
    ("own", "given", "left"),
    [
        ({"sasl.password": "mine"}, {}, SCRAM | {"sasl.password": "mine"}),
        ({"sasl.mechanisms": "PLAIN"}, {}, without("sasl.mechanism") | {"sasl.mechanisms": "PLAIN"}),
        ({"queue.buffering.max.ms": "5"}, {"linger.ms": "9"}, SCRAM | {"queue.buffering.max.ms": "5"}),
        (
            {"ssl.certificate.location": "/c", "ssl.key.location": "/k"},
            {"ssl.keystore.location": "/s", "ssl.keystore.password": "hunter2"},
            SCRAM | {"ssl.certificate.location": "/c", "ssl.key.location": "/k"},
        ),
    ],
    ids=["the same name", "another name", "an older name", "another kind of certificate"],
)  # fmt: skip
def test_settings_beside_connection_win_under_whatever_name(
    load: Load, own: dict[str, str], given: dict[str, str], left: dict[str, str]
) -> None:
    found, _ = whole(load(kafka={"connection": "kafka_prod"} | own), kafka(SCRAM | given))
    assert plain(found) == left


def test_the_whole_is_checked_as_settings_in_the_file_are(load: Load) -> None:
    pipeline = load(kafka={"connection": "kafka_prod"})
    for extra, words in (
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "sasl.mechanism PLAIN needs sasl.username and sasl.password",
        ),
        ({"plugin.library.paths": "/hunter2.so"}, "plugin.library.paths cannot be set"),
        ({"acks": 1}, "acks is '1', allowed is 'all'"),
        ({"bootstrap.server": "hunter2"}, "bootstrap.server is not allowed (did you mean bootstrap.servers?)"),
    ):
        with pytest.raises(SettingsError, match=r"orders/pipeline\.yaml: kafka\.connection kafka_prod, with") as raised:
            whole(pipeline, kafka(extra))
        assert words in str(raised.value)
        assert "hunter2" not in str(raised.value)
    with pytest.raises(SettingsError, match=r"kafka\.bootstrap\.servers: required but missing"):
        client_settings(whole(load(kafka={"connection": "kafka_prod"}), kafka({}))[0])


@pytest.mark.parametrize("name", ["", "two words", "a/b", "x" * 201, "umläut"])
def test_a_name_that_no_connection_can_have_is_refused(load: Load, name: str) -> None:
    if not name:  # as ${NAME:-} where it is not set: no connection
        assert load(kafka={"connection": name, "bootstrap.servers": "k:9092"}).connections == {}
        return
    with pytest.raises(SettingsError, match=r"pipeline\.yaml: kafka\.connection: the id of a connection has 1 to 200"):
        load(kafka={"connection": name})


def test_the_name_may_come_from_the_environment_and_the_fields_behind_it_from_no_file(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER", "kafka_test")
    assert load(kafka={"connection": "${CLUSTER}"}).connections == {"kafka": "kafka_test"}
    for field in ("connections", "resolved"):
        with pytest.raises(
            SettingsError, match=rf"{field}: not allowed here. `connection` may be set only in the sections kafka"
        ):
            load(**{field: {}})


POSTGRES = Connection(
    "shop", "db", "reports", "etl", "hunter2-of-db", 5433, '{"sslmode": "require", "connect_timeout": 5}'
)
TABLE = {"kind": "postgres", "table": "delays"}


# With any of these, whoever writes the pipeline could have a connection's secret sent to a server of theirs.
REDIRECTS: dict[str, dict[str, str]] = {
    "kafka": {
        "bootstrap.servers": "elsewhere:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "ssl.ca.location": "/tmp/ca.pem",
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----",
        "ssl.endpoint.identification.algorithm": "none",
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    },
    "schema_registry": {"url": "https://elsewhere", "ca_location": "/tmp/ca.pem"},
    "postgres": {
        "host": "elsewhere",
        "hostaddr": "192.0.2.1",
        "port": "6432",
        "dbname": "another",
        "passfile": "/tmp/passfile",
        "sslmode": "disable",
        "sslrootcert": "/tmp/ca.pem",
        "sslnegotiation": "postgres",
        "sslcrl": "/tmp/crl",
        "ssl_min_protocol_version": "TLSv1",
        "gssencmode": "prefer",
        "krbsrvname": "another",
        "require_auth": "password",
        "channel_binding": "disable",
    },
    "iceberg": {
        "type": "rest",
        "uri": "https://elsewhere",
        "warehouse": "s3://elsewhere/w",
        "prefix": "another",
        "oauth2-server-uri": "https://elsewhere",
        "s3.endpoint": "https://elsewhere",
        "s3.region": "another",
        "ssl.cabundle": "/tmp/ca.pem",
        "sslmode": "disable",
        "sslrootcert": "/tmp/ca.pem",
    },
}


@pytest.mark.parametrize(("section", "name"), [(section, name) for section in REDIRECTS for name in REDIRECTS[section]])
def test_what_decides_who_gets_a_connections_secret_is_refused_beside_it(load: Load, section: str, name: str) -> None:
    others = {**AVRO, "output": TABLE, "postgres": {"connection": "db"}, "iceberg": {"connection": "l"}}
    with pytest.raises(SettingsError, match=rf"pipeline\.yaml: {section}: {name} cannot be set beside connection"):
        load(**others | {section: {"connection": "prod", name: REDIRECTS[section][name]}})


def test_a_postgres_connection_is_libpqs_settings(load: Load) -> None:
    pipeline = load(output=TABLE, kafka={"bootstrap.servers": "k:9092"}, postgres={"connection": "shop", "user": "own"})
    found, _ = whole(pipeline, POSTGRES)
    assert {name: value.get_secret_value() for name, value in found.postgres.items()} == {
        "host": "db",
        "port": "5433",
        "dbname": "reports",
        "user": "own",
        "password": "hunter2-of-db",
        "sslmode": "require",
        "connect_timeout": "5",
    }


def test_what_pythons_drivers_alone_understand_is_left_out_and_a_login_of_minutes_refused() -> None:
    extra = {"cursor": "dictcursor", "application_name": "airflow", "iam": False, "sqlalchemy_scheme": "postgresql"}
    found = postgres_of(Connection("shop", "db", extra=json.dumps(extra)))
    assert found.settings == {"host": "db"}
    assert found.left_out == ("application_name", "cursor", "sqlalchemy_scheme")
    for name, value in (("iam", True), ("redshift", "true"), ("redshift-serverless", 1), ("azure_conn_id", "azure")):
        with pytest.raises(SettingsError, match=rf"postgres\.connection shop: {name} asks for a login"):
            postgres_of(Connection("shop", "db", extra=json.dumps({name: value})))


def test_a_postgres_connection_without_a_database_or_with_what_the_protocol_keeps_is_refused(load: Load) -> None:
    pipeline = load(output=TABLE, kafka={"bootstrap.servers": "k:9092"}, postgres={"connection": "shop"})
    for connection, words in (
        (Connection("shop", "db", None, "etl", "hunter2"), "dbname: required but missing"),
        (Connection("shop", "db", "reports", "etl", "hunter2", extra='{"options": "-c x=y"}'), "options: not allowed"),
    ):
        with pytest.raises(SettingsError, match=words) as raised:
            whole(pipeline, connection)
        assert "hunter2" not in str(raised.value)


LAKE = Connection(
    "lake",
    "https://catalog/",
    login="etl",
    password="hunter2",
    extra='{"warehouse": "w", "uri": "x", "py-io-impl": "y"}',
)
SQL = {"type": "sql", "uri": "postgresql://db/lake", "user": "etl", "password": "hunter2", "warehouse": "file:///w"}
REST = {"type": "rest", "uri": "https://catalog"}


def test_an_iceberg_connection_is_what_airflows_provider_makes_of_it(load: Load) -> None:
    pipeline = load(
        output={"kind": "iceberg", "table": "weather.observations"},
        kafka={"bootstrap.servers": "k:9092"},
        iceberg={"connection": "lake", "scope": "own"},
    )
    found, given = whole(pipeline, LAKE)
    assert {name: value.get_secret_value() for name, value in found.iceberg.items()} == {
        "type": "rest",
        "uri": "https://catalog",
        "credential": "etl:hunter2",
        "warehouse": "w",
        "scope": "own",
    }
    assert given["iceberg"].left_out == ("py-io-impl",)
    assert "etl:hunter2" in secrets_of(found)


@pytest.mark.parametrize(
    ("connection", "settings"),
    [
        (Connection("l", "https://c", password="s"), {"type": "rest", "uri": "https://c", "credential": "s"}),
        (
            Connection(
                "l", "postgresql://db/lake", login="etl", password="s", extra='{"type": "sql", "warehouse": "w"}'
            ),
            {"type": "sql", "uri": "postgresql://db/lake", "user": "etl", "password": "s", "warehouse": "w"},
        ),
        (
            Connection("l", extra='{"uri": "https://c", "token": "t"}'),
            {"type": "rest", "uri": "https://c", "token": "t"},
        ),
    ],
    ids=["a secret alone", "SQL", "extra alone"],
)
def test_a_login_of_a_connection_is_the_catalogs(connection: Connection, settings: dict[str, str]) -> None:
    assert iceberg_of(connection).settings == settings


def test_a_pipelines_own_token_replaces_the_credential_of_a_connection(load: Load) -> None:
    pipeline = load(
        output={"kind": "iceberg", "table": "weather.observations"},
        kafka={"bootstrap.servers": "k:9092"},
        iceberg={"connection": "lake", "token": "own"},
    )
    found, _ = whole(pipeline, LAKE)
    assert "credential" not in found.iceberg
    assert found.iceberg["token"].get_secret_value() == "own"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (REST | {"uri": "https://etl:hunter2@catalog"}, "uri: contains a login"),
        (REST | {"uri": "https://catalog?token=hunter2"}, "uri: has a query"),
        (REST | {"uri": "hunter2"}, "uri: not an address such as https://"),
        (REST | {"uri": "postgresql://hunter2/db"}, "uri: not an address such as https://"),
        (REST | {"warehouse": "s3://key:hunter2@bucket"}, "warehouse: contains a login"),
        (REST | {"s3.endpoint": "http://key:hunter2@store"}, r"s3\.endpoint: contains a login"),
        (REST | {"oauth2-server-uri": "https://etl:hunter2@login"}, "oauth2-server-uri: contains a login"),
        (REST | {"s3.endpoint": "hunter2"}, r"s3\.endpoint: not an address"),
        (REST | {"credential": "hunter2", "token": "hunter2"}, "credential and token are two logins"),
        (REST | {"password": "hunter2"}, "password: not a setting of a catalog of type rest"),
        (REST | {"py-io-impl": "hunter2"}, "py-io-impl: not allowed"),
        (REST | {"credentail": "hunter2"}, "credentail: not a setting of pyiceberg .* did you mean credential"),
        (REST | {"s3.request-timeout": "hunter2"}, r"s3\.request-timeout: allowed are whole seconds"),
        (REST | {"type": "hunter2"}, "type: allowed is rest or sql"),
        (SQL | {"token": "hunter2"}, "token: not a setting of a catalog of type sql"),
        (SQL | {"password": ""}, "password, passfile: a catalog of type sql needs one of them, and not both"),
        (SQL | {"uri": "postgresql://db"}, "uri: not an address such as postgresql://host:5432/database"),
        (SQL | {"warehouse": "hunter2"}, "warehouse: not an address such as s3://"),
        ({"uri": "https://hunter2"}, "type: required but missing"),
    ],
)
def test_a_wrong_setting_of_a_catalog_is_refused_without_its_value(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}") as raised:
        check_iceberg(settings)
    assert "hunter2" not in str(raised.value)


def test_whole_settings_of_a_catalog_are_taken() -> None:
    check_iceberg(SQL)
    check_iceberg(REST | {"credential": "etl:hunter2", "s3.endpoint": "http://store:9000", "warehouse": "w"})


AVRO = {"source": {"topic": "in", "format": "avro"}, "kafka": {"bootstrap.servers": "k:9092"}}


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (Connection("r", "https://registry", port=8081), "https://registry:8081"),
        (Connection("r", "registry", schema="https", port=8081), "https://registry:8081"),
        (Connection("r", "registry"), "http://registry"),
        (Connection("r", "elsewhere", extra='{"url": "https://registry:8081/"}'), "https://registry:8081"),
    ],
)
def test_a_registrys_address_is_that_of_an_http_connection(load: Load, connection: Connection, url: str) -> None:
    found, _ = whole(load(**AVRO, schema_registry={"connection": "r"}), connection)
    assert found.schema_registry is not None
    assert found.schema_registry.url == url


def test_a_registrys_login_is_taken_in_each_form_and_one_beside_the_connection_wins(load: Load) -> None:
    user_info = Connection("r", extra=json.dumps({"url": "https://r", "basic.auth.user.info": "etl:hunter2:x"}))
    by_login = Connection("r", "https://r", login="etl", password="hunter2:x")
    for connection in (user_info, by_login):
        found = whole(load(**AVRO, schema_registry={"connection": "r", "auto_register": True}), connection)[0]
        registry = found.schema_registry
        assert registry is not None
        assert (registry.username, registry.password and registry.password.get_secret_value()) == ("etl", "hunter2:x")
        assert registry.auto_register
        assert "hunter2:x" in secrets_of(found)
    own = whole(load(**AVRO, schema_registry={"connection": "r", "token": "mine"}), by_login)[0].schema_registry
    assert own is not None
    assert (own.username, own.token and own.token.get_secret_value()) == (None, "mine")


def test_what_a_registrys_client_would_do_otherwise_is_refused(load: Load) -> None:
    for extra, words in (
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "basic.auth.credentials.source is SASL_INHERIT"),
        ({"basic.auth.user.info": "hunter2"}, "has no colon"),
        ({"proxy": "http://hunter2"}, "proxy is not allowed"),
        ({"url": "https://u:hunter2@r"}, "url: the URL contains a user"),
        ({"timeout": "hunter2"}, "timeout_seconds: "),
        ({}, "url: required but missing"),
    ):
        with pytest.raises(SettingsError) as raised:
            whole(load(**AVRO, schema_registry={"connection": "r"}), Connection("r", extra=json.dumps(extra)))
        assert words in str(raised.value)
        assert "hunter2" not in str(raised.value)
    assert registry_of(Connection("r", extra='{"url": "http://r", "max.retries": 5}')).left_out == ("max.retries",)


def test_in_another_registry_an_id_is_another_schema_so_its_url_still_counts(load: Load) -> None:
    pipeline = load(**AVRO, schema_registry={"connection": "r"})
    urls = ("https://a", "https://b")
    digests = {whole(pipeline, Connection("r", url))[0].write_digests()["registry"] for url in urls}
    assert len(digests) == 2
    with pytest.raises(SettingsError, match="was not looked up"):
        pipeline.write_digests()


def test_each_value_that_no_message_may_show_is_a_secret_and_of_a_text_of_lines_each_line(load: Load) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nline-one-of-the-key\nline-two-of-the-key\n-----END PRIVATE KEY-----\n"
    certificate = {
        "ssl.certificate.pem": "certificate",
        "ssl.key.pem": key,
        "socket.timeout.ms": 60000,
        "client.id": "c-id",
    }
    pipeline = load(
        output=TABLE, kafka={"connection": "kafka_prod", "enable.auto.commit": "false"}, postgres={"connection": "shop"}
    )
    found = secrets_of(whole(pipeline, kafka(SCRAM | certificate), POSTGRES)[0])
    assert {"hunter2-of-kafka", "etl", "hunter2-of-db", "certificate", key} <= set(found)
    assert {"line-one-of-the-key", "line-two-of-the-key"} <= set(found)
    assert not {"kafka-1:9093", "SASL_SSL", "60000", "c-id", "false", "db", "reports"} & set(found)


def test_a_login_that_is_called_as_its_pipeline_does_not_mask_the_dags_id_in_its_logs(load: Load) -> None:
    """Each pipeline often has a user of its own in Kafka."""
    whole_, _ = whole(load(kafka={"connection": "kafka_prod"}), kafka(SCRAM | {"sasl.username": "orders"}))
    assert secrets_of(whole_) == ["hunter2-of-kafka"]


def test_what_a_job_is_given_makes_of_its_pipeline_what_the_task_has(load: Load) -> None:
    pipeline = load(
        **AVRO | {"output": TABLE, "kafka": {"connection": "kafka_prod", "sasl.mechanisms": "PLAIN"}},
        postgres={"connection": "shop"},
        schema_registry={"connection": "r", "token": "mine", "auto_register": True},
    )
    in_task, _ = whole(pipeline, kafka(SCRAM), POSTGRES, Connection("r", "https://r", login="etl", password="hunter2"))
    given = json.loads(json.dumps(settings_of(in_task)))
    assert with_settings(pipeline, given) == in_task


def test_a_login_that_is_refused_is_worth_a_retry_only_where_a_connection_is_looked_up_again(load: Load) -> None:
    own, of_airflow = load(kafka=SCRAM), load(kafka={"connection": "kafka_prod"})
    refused, denied = LoginRefused("Authentication failed."), AccessDenied("lacks Read")
    assert [is_worth_a_retry(error, own) for error in (refused, denied, KafkaUnavailable("away"))] == [
        False,
        False,
        True,
    ]
    assert [is_worth_a_retry(error, of_airflow) for error in (refused, denied)] == [True, False]
    assert message_with_connections(refused, own) == "Authentication failed."
    assert "connection kafka_prod; the next attempt looks it up again" in message_with_connections(refused, of_airflow)
    assert message_with_connections(denied, of_airflow) == "lacks Read"
