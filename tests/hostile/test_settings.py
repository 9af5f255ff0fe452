"""Whatever stands in pipeline.yaml: a Pipeline, or a SettingsError that names the file and shows no secret.

No other exception: Airflow's DAG processor loads all pipelines together, and one of them would take the others along.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencepost.config.loading import load_pipeline, load_pipelines
from fencepost.config.pipeline import NOT_IN_FILE, Pipeline, load_suite
from fencepost.config.references import is_shown
from fencepost.config.services import SERVICES
from fencepost.config.sql_types import is_sql_type
from fencepost.errors import SettingsError
from fencepost.formats import FORMATS

SECRET = "hunter2-SECRET-value"
GOOD = """
source: {topic: in, schema: {n: int}}
output: {topic: out}
schedule: {start: 2026-01-01}
kafka: {bootstrap.servers: "127.0.0.1:9092"}
"""
SEVERAL = """
sources:
  orders: {topic: in, schema: {n: int}}
  payments: {topic: paid, schema: {n: int}}
""" + GOOD.partition("}}")[2]

WORDS = st.sampled_from(
    """source sources orders payments output schedule kafka spark quality lanes description name folder topic format schema
    columns headers on_malformed on_expired empty lookback for key timestamp partitions layout batch_header publish
    staging_topic staging_hours
    atomic_megabytes rows seconds cron timezone
    start end catchup retries timeout_minutes sample_rows empty bootstrap.servers acks
    group.id transaction.timeout.ms security.protocol sasl.mechanism sasl.password ssl.key.pem spark.master
    spark.executor.memory schema_registry url username password token subject version key_format auto_register connection
    connections resolved postgres airflow pool owner tags n""".split()
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=8)
    | st.datetimes()
    | st.dates()
    | st.sampled_from(
        ["${PASSWORD}", "x${PASSWORD}y", "${NOT_SET}", "${NOT_SET:-in}", "in", "json", "avro", "int not null"]
    )
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | SCALARS, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A pipeline's folder, and a secret in the environment."""
    made = tmp_path_factory.mktemp("pipelines") / "p"
    made.mkdir()
    (made / "transform.sql").write_text("SELECT * FROM {source}")
    (made / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: n}}]")
    os.environ["PASSWORD"] = SECRET
    yield made
    del os.environ["PASSWORD"]


def outcome(folder: Path, content: str | bytes) -> Pipeline | SettingsError:
    """What loading it comes to; any other exception is the test's failure."""
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    (folder / "pipeline.yaml").write_bytes(raw)
    try:
        return load_pipeline(folder)
    except SettingsError as error:
        message = str(error)
        assert message.startswith(str(folder)), "the file is named"
        assert SECRET not in message
        message.encode("utf-8")  # or it could not be printed
        return error


def good_for(path: tuple[str, ...]) -> str:
    """Good settings that may have the field."""
    return SEVERAL if path[0] == "sources" else GOOD


def changed(path: tuple[str, ...], value: Any) -> str:
    """The good settings with one field in its place."""
    tree: dict[Any, Any] = yaml.safe_load(good_for(path))
    place = tree
    for part in path[:-1]:
        place = place.setdefault(part, {})
    place[path[-1]] = value
    return yaml.safe_dump(tree, allow_unicode=True)


def fields() -> list[tuple[str, ...]]:
    """Every field there is, by its path."""
    found: list[tuple[str, ...]] = []
    for name, field in Pipeline.model_fields.items():
        kind, *_ = get_args(field.annotation) or (field.annotation,)  # of `X | None` the X
        inner = getattr(kind, "model_fields", None)
        found += [(name, f.alias or n) for n, f in inner.items()] if inner else [(field.alias or name,)]
    found += [("sources", "payments", *path[1:]) for path in found if path[0] == "source"]
    return [*found, ("kafka", "acks"), ("kafka", "sasl.mechanism"), ("spark", "spark.x"), ("source", "schema", "n")]


@settings(max_examples=300)
@given(tree=TREES)
def test_any_tree_is_a_pipeline_or_a_settings_error(folder: Path, tree: Any) -> None:
    outcome(folder, yaml.safe_dump(tree, allow_unicode=True))


@settings(max_examples=400)
@given(path=st.sampled_from(fields()), value=TREES | st.sampled_from([*FORMATS]))
@example(path=("output", "format"), value="avro")
def test_any_value_of_any_field_is_taken_or_refused_by_its_name(
    folder: Path, path: tuple[str, ...], value: Any
) -> None:
    result = outcome(folder, changed(path, value))
    if isinstance(result, SettingsError) and "${" not in str(result) and "not valid YAML" not in str(result):
        assert path[0] in str(result)


@settings(max_examples=300)
@given(
    text=st.text(
        alphabet=st.characters(codec="utf-8") | st.sampled_from(list("{}[]:,&*!|>'\"%@`-\n #?~<=")), max_size=60
    )
)
def test_any_text_is_a_pipeline_or_a_settings_error(folder: Path, text: str) -> None:
    outcome(folder, text)
    outcome(folder, GOOD + text)


CORPUS: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "found NoneType"),
    "no space after the colon": (f"sasl.password:{SECRET}", "with a space"),
    "a list": ("- a", "found list"),
    "invalid UTF-8": (b"source: \xff\xfe", "cannot be read"),
    "a control character": ("source: \x07", "control character"),
    "nested deeply": ("[" * 5000, "nested too deeply"),
    "an alias of itself": ("a: &a [*a]", "line 1: not valid YAML: an alias inside the node that it names"),
    "aliases that multiply": (
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
        "its aliases expand to more than",
    ),
    "merges that multiply": (
        "a0: &a0 {x: 1, y: 2}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 40)),
        "its aliases expand to more than",
    ),
    "a password that is an alias": (f"kafka: {{sasl.password: *{SECRET}}}", "quote a text that begins with *"),
    "a password that is a tag": (f"kafka:\n  sasl.password: !{SECRET}", "line 2"),
    "a password that is a tag with a handle": (f"kafka: {{sasl.password: !{SECRET}!x 1}}", "quote a text that begins with !"),
    "an anchor twice": (f"a: &{SECRET} 1\nb: &{SECRET} 2\nc: *{SECRET}", ""),
    "a day that is none": (GOOD.replace("2026-01-01", "2026-02-30"), "line 4: not valid YAML: a value looks like timestamp"),
    "a moment before all time": (GOOD.replace("2026-01-01", "'0001-01-01T00:00:00+14:00'"), "schedule.start: not within"),
    "a number of 5000 digits": (GOOD + "lanes: " + "1" * 5000, "a value looks like int"),
    "int of text": (GOOD + "lanes: !!int x", "a value looks like int"),
    "bool of text": (GOOD + "lanes: !!bool x", "a value looks like bool"),
    "Python's own tag": (GOOD + "lanes: !!python/object/apply:os.getcwd []", "begins with !"),
    "a doubled key": (GOOD + "lanes: 1\nlanes: 2", "line 7: not valid YAML: duplicate key 'lanes'"),
    "a key that is a number": (GOOD + "1: x", "1: unknown field; allowed here are kafka, schema_registry"),
    "an unknown key of a topic": (
        GOOD.replace("topic: out", "topic: out, x: 1"),
        "output.x: unknown field; allowed here are topic, ",
    ),
    "a key that is a list": (GOOD + "? [a]\n: x", "('a',): unknown field"),
    "a secret in a topic's name": (GOOD.replace("topic: in", "topic: '${PASSWORD} x'"), "${PASSWORD} looks like a secret"),
    "a secret for a section": (GOOD + "quality: ${PASSWORD}", "quality: ${PASSWORD} is not allowed here"),
    "a secret among the brokers": (GOOD.replace("127.0.0.1:9092", "${PASSWORD}"), "kafka.bootstrap.servers: ${PASSWORD} looks"),
    "a secret for a word": (GOOD.replace("kafka: {", "kafka: {acks: '${PASSWORD}', "), "kafka.acks: ${PASSWORD} looks like"),
    "a secret for the kafka section": (GOOD[: GOOD.index("kafka")] + f"kafka: {SECRET}", "kafka: not a section of names"),
    "a kafka value that is a list": (GOOD.replace("kafka: {", "kafka: {sasl.password: [\"${PASSWORD}\"], "), "sasl.password"),
    "an environment that is not there": (GOOD.replace("topic: in", "topic: '${NOT_SET}'"), "source.topic: ${NOT_SET} is not set"),
    "half a reference": (GOOD.replace("topic: in", "topic: 'x${NOT_SET'"), "source.topic: found ${ without the name"),
    "a reference to what is no name": (GOOD.replace("topic: in", "topic: '${NOT-SET}'"), "found ${ without the name"),
    "a reference in a default": (GOOD.replace("topic: in", "topic: '${A:-${B}}'"), "found ${ without the name"),
    "columns that differ in case": (GOOD.replace("{n: int}", "{n: int, N: int}"), "columns 'n' and 'N'"),
    "a type of two words": (GOOD.replace("n: int", "n: int int"), "not a Spark SQL type"),
    "a struct that is not closed": (GOOD.replace("n: int", "n: 'struct<a: int'"), "not a Spark SQL type"),
    "a struct with a name twice": (GOOD.replace("n: int", "n: 'struct<`a b`: int, `A b`: int>'"), "not a Spark SQL type"),
    "a struct with the empty name": (GOOD.replace("n: int", "n: 'struct<``: int>'"), "not a Spark SQL type"),
    "a name that is not closed": (GOOD.replace("n: int", "n: 'struct<`a: int>'"), "not a Spark SQL type"),
    "a column without a type": (GOOD.replace("n: int", "n: {field: x}"), "column 'n' needs a type: format json has no schema"),
    "a column that says nothing": (GOOD.replace("n: int", "n: {}"), "it says neither a type nor a field"),
    "a field with a NUL": (GOOD.replace("n: int", 'n: {type: int, field: "a\\0"}'), "an escape such as \\0 or"),
    "an encoding of another type": (
        GOOD.replace("n: int", "n: {type: int, from: epoch_millis}"),
        "from: epoch_millis gives timestamp or timestamp_ntz, and the type is int, which takes text",
    ),
    "an encoding within an array": (
        GOOD.replace("n: int", "n: {type: array<timestamp>, from: epoch_millis}"),
        "from: epoch_millis gives timestamp or timestamp_ntz, and the type is array",
    ),
    "an encoding that is none": (GOOD.replace("n: int", "n: {type: int, from: hex}"), "n.from: Input should be 'epoch_"),
    "an encoding without a type": (
        GOOD.replace("{n: int}", "{n: {from: text}}, format: json_schema"),
        "from: text needs a type",
    ),
    "digits of a day": (GOOD.replace("n: int", "n: {type: date, digits: truncate}"), "digits: truncate is for a time that"),
    "digits of milliseconds": (
        GOOD.replace("n: int", "n: {type: timestamp, from: epoch_millis, digits: truncate}"),
        "digits: truncate is for a time that may have digits below the microsecond",
    ),
    "digits that are rounded": (GOOD.replace("n: int", "n: {type: timestamp, digits: round}"), "n.digits: Input should be"),
    "an infinite number that is whole": (
        GOOD.replace("n: int", "n: {type: bigint, from: text, infinity: null}"),
        "infinity: null is for timestamp, timestamp_ntz, date, float, double, and for a decimal from text: bigint has none",
    ),
    "an infinity as a number": (
        GOOD.replace("n: int", "n: {type: double, infinity: 0}"),
        "infinity: only null is allowed, which reads an infinity as null",
    ),
    "fields of one name": (GOOD.replace("topic: out", "topic: out, fields: {a: x, b: x}"), "two columns would be field 'x'"),
    "fields that differ in case": (GOOD.replace("topic: out", "topic: out, fields: {a: x, b: X}"), "'x' and 'X' differ only"),
    "a field of a column that is not written": (
        GOOD.replace("topic: out", "topic: out, fields: {_a: x}"),
        "column _a is not written, because its name begins with _",
    ),
    "fields of bytes": (GOOD.replace("topic: out", "topic: out, format: bytes, fields: {a: x}"), "format bytes has no fields"),
    "a field that Avro does not know": (
        GOOD.replace("topic: out", "topic: out, format: avro, fields: {a: x-y}"),
        "'x-y' is not a name in Avro",
    ),
    "fields of a table": (
        GOOD.replace("topic: out", "kind: postgres, table: t, fields: {a: x}"),
        "output.fields: unknown field; allowed here are ",
    ),
    "a decimal that is cut off": (GOOD.replace("n: int", "n: 'decimal('"), "not a Spark SQL type"),
    "a map with number keys": (GOOD.replace("n: int", "n: 'map<int, int>'"), "map<string, type>"),
    "too many digits": (GOOD.replace("n: int", "n: 'decimal(39, 2)'"), "up to 38 digits"),
    "a type nested deeply": (GOOD.replace("n: int", f"n: '{'array<' * 5000}int{'>' * 5000}'"), "not a Spark SQL type"),
    "a topic of two words": (GOOD.replace("topic: in", "topic: a b"), "source.topic: a topic name has 1 to 249"),
    "a cron of words": (GOOD.replace("{start", "{cron: at noon, start"), "schedule.cron: not a cron expression"),
    "a cron that never comes": (GOOD.replace("{start", "{cron: '0 0 31 2 *', start"), "schedule.cron: it never occurs"),
    "a cron of chance": (GOOD.replace("{start", "{cron: '0 R(1-5) * * *', start"), "schedule.cron: R means a random time"),
    "a cron of some years": (GOOD.replace("{start", "{cron: '0 0 * * * 0 2026-2030', start"), "schedule.cron: it names years"),
    "a time-out of an age": (GOOD.replace("{start", f"{{timeout_minutes: {10**30}, start"), "schedule.timeout_minutes: Input"),
    "a delay of an age": (GOOD.replace("{start", f"{{retry_delay_seconds: {10**9}, start"), "schedule.retry_delay_seconds: "),
    "a question for ever": (GOOD + "quality: {ask_operator_minutes: .inf}", "quality.ask_operator_minutes: Input should be less"),
    "a path for a time zone": (GOOD.replace("{start", "{timezone: ../../etc/passwd, start"), "schedule.timezone: not a"),
    "this machine's time zone": (GOOD.replace("{start", "{timezone: localtime, start"), "timezone: it means the machine's own"),
    "a time zone with leap seconds": (
        GOOD.replace("{start", "{timezone: right/Europe/Vienna, start"),
        "schedule.timezone: not a time zone",
    ),
    "an end before the start": (GOOD.replace("2026-01-01", "2026-01-01, end: 2025-01-01"), "must be after start"),
    "no header": (
        GOOD.replace("topic: out", "topic: out, publish: direct, batch_header: false"),
        "batch_header: false needs publish: staged",
    ),
    "a third way": (GOOD.replace("topic: out", "topic: out, publish: at once"), "output.publish: Input should be 'staged' or"),
    "staged in its source": (GOOD.replace("topic: out", "topic: out, staging_topic: in"), "output.staging_topic is in, which is"),
    "staged for an hour": (GOOD.replace("topic: out", "topic: out, staging_hours: 1"), "output.staging_hours: Input should be"),
    "half a character": (GOOD + 'description: "\\ud800"', "is not a character"),
    "a name of half a character": (GOOD.replace("n: int", '"\\0": int'), "is not a character"),
    "its own output": (GOOD.replace("topic: out", "topic: in"), "would read its own output"),
    "a quarantine in the source": (GOOD + "quality: {quarantine_topic: in}", "quality.quarantine_topic is source.topic (in)"),
    "a quarantine in the output": (GOOD + "quality: {quarantine_topic: out}", "quality.quarantine_topic is output.topic (out)"),
    "a quarantine in the staging": (
        GOOD + "quality: {quarantine_topic: fencepost.p.staging}", "is output.staging_topic (fencepost.p.staging)"
    ),
    "a limit of nothing": (GOOD + "quality: {quarantine_limit: {}}", "give rows, share, or both"),
    "a limit left empty": (GOOD + "quality: {quarantine_limit: }", "quality.quarantine_limit: left empty; give rows, share"),
    "a limit in percent": (GOOD + "quality: {quarantine_limit: {share: 5}}", "quality.quarantine_limit.share"),
    "a limit in words": (GOOD + "quality: {quarantine_limit: all}", "quality.quarantine_limit"),
}  # fmt: skip


@pytest.mark.parametrize("path", [f for f in fields() if f[0] not in {"kafka", "spark"}])
def test_a_field_left_empty_is_as_if_it_were_not_there_or_refused(folder: Path, path: tuple[str, ...]) -> None:
    """Never another meaning, such as no limit."""
    if path[0] == "schema_registry":
        url = {} if path[1] == "url" else {"url": "http://127.0.0.1:1"}
        content = GOOD + f"schema_registry: {json.dumps({**url, path[1]: None})}"
    else:
        content, url = changed(path, None), {}
    result = outcome(folder, content)
    if isinstance(result, Pipeline):
        assert result == outcome(folder, good_for(path) + (f"schema_registry: {json.dumps(url)}" if url else ""))
    else:
        assert ".".join(path[:1]) in str(result)


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_is_refused_with_the_reason(folder: Path, name: str) -> None:
    content, words = CORPUS[name]
    result = outcome(folder, content)
    assert isinstance(result, SettingsError)
    assert words in str(result)


@pytest.mark.parametrize(
    "path",
    [f for f in fields() if f[0] not in {*SERVICES, "spark"} and not is_shown(f)],
)
def test_the_environment_is_taken_for_no_other_field(folder: Path, path: tuple[str, ...]) -> None:
    """Most are shown: in Airflow's UI, on pages, in the ledger."""
    place = (*path, "x") if path == ("source", "schema") else path
    result = outcome(folder, changed(place, "a ${PASSWORD:-b}"))
    assert isinstance(result, SettingsError)
    allowed_anywhere = path[0] not in NOT_IN_FILE
    assert f"{'.'.join(place)}: {'${PASSWORD} is not allowed here' if allowed_anywhere else 'not allowed'}" in str(
        result
    )


@pytest.mark.parametrize(
    "name",
    [
        "DB_PASSWORD",
        "KAFKA_API_KEY",
        "TOKEN",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        "AIRFLOW_CONN_DB",
        "sentry_dsn",
        "X_CONN",
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        "source.topic",
        "output.topic",
        "quality.quarantine_topic",
        "schema_registry.url",
        "kafka/bootstrap.servers",
        "kafka/security.protocol",
        "kafka/retries",
        "kafka/client.id",
        "spark/spark.x",
        "postgres/host",
        "postgres/connection",
        "kafka/connection",
        "schema_registry.connection",
        "output.table",
    ],
)
def test_a_variable_that_looks_secret_is_taken_for_nothing_that_is_shown(
    folder: Path, path: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "a-topic:1")
    place = tuple(path.split("/")) if "/" in path else tuple(path.split("."))
    assert f"{path.replace('/', '.')}: ${{{name}}} looks like a secret" in str(
        outcome(folder, changed(place, f"${{{name}}}"))
    )


@pytest.mark.parametrize(
    "path",
    ["kafka/sasl.password", "kafka/sasl.username", "schema_registry/password", "postgres/password", "postgres/sslkey"],
)
@pytest.mark.parametrize(
    "name", ["AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW_CONN_DB", "AIRFLOW_VAR_X", "Airflow__Core__X"]
)
def test_airflows_own_variables_are_taken_for_nothing(
    folder: Path, path: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, SECRET)
    for reference in (f"${{{name}}}", f"a-${{{name}:-b}}"):
        said = str(outcome(folder, changed(tuple(path.split("/")), reference)))
        assert f"{path.replace('/', '.')}: ${{{name}}} is one of Airflow's own settings" in said
        assert SECRET not in said


@pytest.mark.parametrize(
    "value", ["$${env.AIRFLOW__CORE__FERNET_KEY}", "a$${env:airflow_conn_db:-x}", "$${AIRFLOW_VAR_X}"]
)
def test_a_spark_setting_names_no_variable_of_airflows_own(folder: Path, value: str) -> None:
    """Hadoop and Spark take such a name from the job's own environment."""
    said = str(outcome(folder, changed(("spark", "spark.hadoop.fs.s3a.endpoint"), value)))
    assert "spark.hadoop.fs.s3a.endpoint names a variable of Airflow's own" in said


@pytest.mark.parametrize(
    "path",
    [
        "source.topic",
        "sources.payments.topic",
        "output.topic",
        "quality.quarantine_topic",
        "kafka/bootstrap.servers",
        "spark/spark.x",
    ],
)
def test_a_url_with_a_password_is_taken_for_nothing_that_is_shown_whatever_its_variable_is_called(
    folder: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://etl:hunter2@db/x")
    place = tuple(path.split("/")) if "/" in path else tuple(path.split("."))
    said = str(outcome(folder, changed(place, "${DATABASE_URL}")))
    assert "${DATABASE_URL} holds a URL with a password" in said
    assert "hunter2" not in said


def test_the_environment_is_taken_where_it_is_allowed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "there")
    tree = yaml.safe_load(GOOD)
    tree["source"]["topic"] = "in-${WHERE}"
    tree["output"]["topic"] = "${NOT_SET:-out}"
    tree["kafka"] |= {
        "bootstrap.servers": "${WHERE}:9092",
        "sasl.username": "${WHERE}",
        "sasl.password": "a$${b}${PASSWORD}",
    }
    tree["spark"] = {"spark.local.dir": "/tmp/${WHERE}", "spark.x.password": "$${WHERE}"}
    tree["description"] = "costs $${WHERE}, $$ and $5"
    pipeline = outcome(folder, yaml.safe_dump(tree))
    assert isinstance(pipeline, Pipeline)
    assert (pipeline.source.topic, pipeline.output.topic) == ("in-there", "out")
    assert {name: value.get_secret_value() for name, value in pipeline.kafka.items()} == {
        "bootstrap.servers": "there:9092",
        "sasl.username": "there",
        "sasl.password": "a${b}" + SECRET,
    }
    assert pipeline.spark == {"spark.local.dir": "/tmp/there", "spark.x.password": "${WHERE}"}
    assert pipeline.description == "costs ${WHERE}, $$ and $5"


SECRETS_OF_SPARK = """
spark.authenticate.secret spark.ssl.keyPassword spark.ssl.keyStorePassword spark.ssl.ui.trustStorePassword
spark.ssl.privateKeyPassword spark.hadoop.fs.s3a.secret.key spark.hadoop.fs.s3a.access.key spark.hadoop.fs.s3a.session.token
spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net spark.hadoop.fs.azure.account.oauth2.client.secret
spark.hadoop.fs.gs.auth.service.account.private.key spark.hadoop.javax.jdo.option.ConnectionPassword
spark.hadoop.fs.s3a.encryption.key spark.sql.catalog.lake.token spark.sql.catalog.lake.credential
spark.sql.catalog.lake.s3.secret-access-key spark.sql.catalog.lake.header.Authorization spark.sql.catalog.lake.jdbc.password
spark.kubernetes.authenticate.submission.oauthToken spark.kafka.clusters.a.sasl.jaas.config spark.kafka.clusters.a.ssl.key.pem
spark.executorEnv.DB_PASSWORD spark.executorEnv.PGPASS spark.executorEnv.AWS_SECRET_ACCESS_KEY spark.executorEnv.API_KEY
spark.yarn.appMasterEnv.DB_PWD spark.kubernetes.driverEnv.SENTRY_DSN spark.my.apiKey spark.my.passphrase
""".split()
PLAIN_OF_SPARK = """
spark.authenticate.secret.file=/x spark.authenticate.secret.driver.file=/x spark.authenticate.secretBitLength=256
spark.authenticate=true spark.ssl.keyStore=/x spark.ssl.keyStoreType=JKS spark.ssl.privateKey=/x
spark.io.encryption.keySizeBits=256 spark.io.encryption.enabled=true spark.hadoop.fs.s3a.aws.credentials.provider=org.A
spark.hadoop.fs.s3a.endpoint=http://127.0.0.1:9
spark.hadoop.hadoop.security.credential.provider.path=jceks://file/x spark.kubernetes.authenticate.oauthTokenFile=/x
spark.kubernetes.driver.secrets.tls=/etc/tls spark.kubernetes.executor.secretKeyRef.DB_PASSWORD=shop:password
spark.kubernetes.container.image.pullSecrets=registry spark.kafka.clusters.a.sasl.token.mechanism=SCRAM-SHA-512
spark.security.credentials.hive.enabled=false spark.sql.mapKeyDedupPolicy=LAST_WIN spark.executorEnv.TZ=UTC
spark.executorEnv.DB_PASSWORD_FILE=/run/x spark.executor.extraJavaOptions=-Dkey=7,-Dpassword.file=/x
spark.sql.catalog.lake.uri=jdbc:postgresql://db/lake?sslmode=require spark.hadoop.fs.s3a.secret.key=$${env.S3_SECRET}
""".split()


@pytest.mark.parametrize("written", [SECRET, "${INNOCENT}"])
@pytest.mark.parametrize("name", SECRETS_OF_SPARK)
def test_a_secret_for_a_spark_setting_is_refused_with_another_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, written: str
) -> None:
    """Written out or from the environment: it would be an argument of spark-submit, which `ps` shows to everybody."""
    monkeypatch.setenv("INNOCENT", SECRET)
    result = outcome(folder, changed(("spark", name), written))
    assert f"spark: {name} looks like a secret, but spark settings are arguments of spark-submit" in str(result)
    assert "os.environ in transform.py" in str(result)


@pytest.mark.parametrize(
    "value",
    [
        f"jdbc:postgresql://etl:{SECRET}@db/shop",
        f"jdbc:postgresql://db/shop?user=etl&password={SECRET}",
        f"-Xmx1g -Djavax.net.ssl.trustStorePassword={SECRET}",
        f"AccountName=shop;AccountKey={SECRET}==",
        f"https://shop.blob.core.windows.net/x?sv=2026&sig={SECRET}",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_a_secret_inside_a_spark_setting_is_refused_whatever_the_setting_is_called(folder: Path, value: str) -> None:
    assert "spark.any.thing looks like a secret" in str(outcome(folder, changed(("spark", "spark.any.thing"), value)))


@pytest.mark.parametrize("setting", PLAIN_OF_SPARK)
def test_a_spark_setting_that_only_tells_of_a_secret_is_taken(folder: Path, setting: str) -> None:
    name, _, value = setting.partition("=")
    assert isinstance(outcome(folder, changed(("spark", name), value)), Pipeline)


@pytest.mark.parametrize(
    "kind",
    [
        "int",
        "STRING NOT NULL",
        "decimal",
        "decimal(38,18)",
        "array<struct<a: map<string, double>, b: date>>",
        "struct<`user-id`: int, `a``b`: array<struct<`@t`: timestamp>>, `>`: int> not null",
    ],
)
def test_good_types_are_taken(folder: Path, kind: str) -> None:
    assert isinstance(outcome(folder, changed(("source", "schema", "n"), kind)), Pipeline)


def test_a_type_that_is_cut_off_anywhere_is_refused() -> None:
    whole = "struct<a: map<string, decimal(38, 18)>, `b``-`: array<array<decimal(5)>>>"
    cut = [whole[:end] for end in range(len(whole))]
    assert is_sql_type(whole)
    assert [text for text in cut if is_sql_type(text)] == []


def test_one_broken_pipeline_leaves_the_others(folder: Path) -> None:
    outcome(folder, CORPUS["a day that is none"][0])
    good = folder.parent / "good"
    good.mkdir()
    for file in folder.iterdir():
        (good / file.name).write_bytes(file.read_bytes())
    (good / "pipeline.yaml").write_text(GOOD)
    loaded, broken = load_pipelines(folder.parent)
    assert (list(loaded), list(broken)) == (["good"], ["p"])


@settings(max_examples=200)
@given(tree=TREES)
def test_any_suite_is_read_or_refused(folder: Path, tree: Any) -> None:
    file = folder / "suite.yaml"
    for content in (tree, {"expectations": tree}, {"expectations": [{"type": "expect_x", "kwargs": tree}]}):
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        try:
            load_suite(file)
        except SettingsError as error:
            message = str(error)
            assert message.startswith(str(file)), "the file is named"
