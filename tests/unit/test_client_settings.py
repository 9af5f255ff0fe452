"""What contradicts the protocol, or would hold for one of the two Kafka clients only, is refused when it is read."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import cimpl

from fencepost.config.java_options import java_settings
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.services.kafka import KAFKA
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.kafka.librdkafka import library

LOGIN = {"sasl.username": "etl", "sasl.password": "hunter2"}
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **LOGIN}
Load = Callable[..., Pipeline]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a pipeline with these `kafka` and `spark` sections."""

    def load(kafka: dict[str, Any] | None = None, spark: dict[str, Any] | None = None) -> Pipeline:
        folder = tmp_path / "p"
        folder.mkdir(exist_ok=True)
        settings = {
            "source": {"topic": "in", "format": "bytes"},
            "output": {"topic": "out"},
            "schedule": {"start": "2026-01-01"},
            "kafka": {"bootstrap.servers": "127.0.0.1:9092", **(kafka or {})},
            "spark": spark or {},
        }
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
        (folder / "transform.sql").write_text("SELECT * FROM {source}")
        (folder / "expectations.yaml").write_text("expectations: []")
        return load_pipeline(folder)

    return load


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"acks": 1}, "acks is '1', allowed is 'all': otherwise a committed record"),
        ({"request.required.acks": 0}, "allowed is 'all'"),
        ({"enable.idempotence": False}, "enable.idempotence is 'false', allowed is 'true': otherwise a retried send"),
        ({"max.in.flight": 6}, "max.in.flight is '6', allowed is 1 to 5: more could reorder"),
        ({"max.in.flight.requests.per.connection": 100}, "allowed is 1 to 5"),
        ({"max.in.flight": "\u00b2"}, "allowed is 1 to 5"),
        ({"retries": 0}, "retries is '0', allowed is 1 to"),
        ({"transactional.id": "mine"}, "transactional.id cannot be set: the protocol fixes it: <pipeline>"),
        ({"group.id": "mine"}, "group.id cannot be set"),
        ({"group.instance.id": "mine"}, "group.instance.id cannot be set"),
        ({"isolation.level": "read_uncommitted"}, "allowed is 'read_committed': otherwise aborted records"),
        ({"enable.auto.commit": True}, "enable.auto.commit is 'true', allowed is 'false': only the advance step"),
        ({"enable.auto.offset.store": True}, "only the advance step"),
        ({"enable.gapless.guarantee": True}, "enable.gapless.guarantee is 'true', allowed is 'false'"),
        ({"enable.partition.eof": False}, "allowed is 'true'"),
        ({"delivery.report.only.error": False}, "allowed is 'true'"),
        ({"auto.offset.reset": "earliest"}, "nothing to reset"),
        ({"partitioner": "random"}, "murmur2_random"),
        ({"error_cb": "print"}, "it takes a function"),
        ({"default.topic.config": "x"}, "beside the others"),
        ({"metadata.broker.list": "127.0.0.1:9092"}, "write bootstrap.servers"),
        ({"session.timeout.ms": 6000}, "none of Fencepost's consumers joins its group"),
        ({"test.mock.num.brokers": 3}, "it replaces bootstrap.servers by a cluster in memory"),
        ({"linger.ms": 5, "queue.buffering.max.ms": 5}, "set the same thing"),
        ({"transaction.timeout.ms": "ten minutes"}, "transaction.timeout.ms is 'ten minutes', allowed is 1000 to"),
    ],
)
def test_a_setting_that_contradicts_the_protocol_is_refused(load: Load, setting: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(kafka=setting)
    assert words in str(raised.value)
    assert "pipeline.yaml: kafka: " in str(raised.value)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "built without Kerberos"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "no translation for Spark's Kafka reader"),
        ({**SASL, "sasl.mechanism": "plain"}, "sasl.mechanism is 'plain', allowed are PLAIN, SCRAM-SHA-256"),
        ({"security.protocol": "SASL_SSL", **LOGIN}, "needs sasl.mechanism; allowed are PLAIN"),
        ({**SASL, "sasl.password": ""}, "needs sasl.password, which is missing or empty"),
        ({"security.protocol": "TLS"}, "security.protocol is 'tls', allowed are plaintext, ssl"),
        ({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "PLAIN"}, "set the same thing"),
        ({"sasl.oauthbearer.method": "oidc"}, "sasl.oauthbearer.method cannot be set"),
        ({"sasl.oauthbearer.client.secret": "hunter2"}, "sasl.oauthbearer.client.secret cannot be set"),
        ({"sasl.kerberos.keytab": "a"}, "sasl.kerberos.keytab cannot be set"),
        ({"ssl.key.password": "hunter2"}, "cannot open a PEM key with a password; give the key without"),
        ({"ssl.crl.location": "a"}, "ssl.crl.location cannot be set"),
        ({"ssl.cipher.suites": "a"}, "ssl.cipher.suites cannot be set"),
        ({"enable.ssl.certificate.verification": False}, "enable.ssl.certificate.verification cannot be set"),
        ({"ssl.certificate.location": "a"}, "needs both ssl.certificate.* and ssl.key.*"),
        ({"ssl.key.pem": "hunter2"}, "needs both ssl.certificate.* and ssl.key.*"),
        ({"ssl.ca.location": "probe"}, "give a file"),
        ({"ssl.ca.location": "a", "ssl.ca.pem": "b"}, "set the same thing"),
        (
            {"ssl.keystore.location": "a", "ssl.key.location": "b", "ssl.certificate.location": "c"},
            "set the same thing",
        ),
    ],
)
def test_security_that_only_one_client_would_heed_is_refused(load: Load, setting: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(kafka=setting)
    assert words in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "plugin.library.paths",
            "it loads native code into every process that opens the pipeline, even Airflow's API server",
        ),
        ("ssl.engine.location", "it loads native code"),
        ("ssl.engine.id", "it loads native code"),
        ("ssl.providers", "it loads native code"),
        ("sasl.kerberos.kinit.cmd", "it is a shell command"),
        ("enable.sasl.oauthbearer.unsecure.jwt", "cannot be set"),
        ("sasl.oauthbearer.token.endpoint.url", "cannot be set"),
        ("interceptors", "interceptors is not allowed. Allowed are acks, api.version"),
        ("opaque", "is not allowed"),
        ("log_level", "is not allowed"),
        ("statistics.interval.ms", "is not allowed"),
        ("closesocket_cb", "it takes a function"),
        ("linger.msec", "linger.msec is not allowed (did you mean linger.ms?)"),
        ("Linger.ms", "did you mean linger.ms?"),
        ("bootstrap_servers", "did you mean bootstrap.servers?"),
        ("ssl.ca.locations", "did you mean ssl.ca.location?"),
        ("", " is not allowed"),
    ],
)
def test_a_setting_that_is_not_allowed_by_name_is_refused_with_the_reason_or_the_list(
    load: Load, name: str, words: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        load(kafka={name: "hunter2"})
    assert words in str(raised.value)
    assert "hunter2" not in str(raised.value)


def librdkafkas_names() -> list[str]:
    """What librdkafka says it has, its undocumented ones included."""
    conf = library().conf_new()
    dump = ctypes.PyDLL(cimpl.__file__).rd_kafka_conf_dump
    dump.restype, dump.argtypes = ctypes.POINTER(ctypes.c_char_p), (ctypes.c_void_p, ctypes.c_void_p)
    count = ctypes.c_size_t()
    found = dump(conf, ctypes.byref(count))
    library().conf_destroy(conf)
    return [(found[n] or b"").decode() for n in range(0, count.value, 2)]


def test_whatever_else_librdkafka_has_is_refused(load: Load) -> None:
    others = sorted(set(librdkafkas_names()) - KAFKA.settings.keys())
    assert {"enabled_events", "open_cb", "test.mock.num.brokers", "internal.termination.signal"} < set(others)
    for name in others:
        with pytest.raises(SettingsError, match=rf"kafka: {re.escape(name)} (is not allowed|cannot be set)"):
            load(kafka={name: "1"})


def test_librdkafka_knows_every_name_that_is_allowed() -> None:
    conf, unknown, text = library().conf_new(), -2, ctypes.create_string_buffer(512)

    def answer(name: str) -> int:
        return int(library().conf_set(conf, name.encode(), b"?", text, len(text)))

    assert answer("no.such.name") == unknown
    assert [name for name in sorted(KAFKA.settings.keys()) if answer(name) == unknown] == []
    library().conf_destroy(conf)


@pytest.mark.parametrize("value", ["a:1", "kafka-1.example.com:9093, 10.0.0.1:65535", "[::1]:9092", "broker_1:9092"])
def test_both_clients_understand_the_brokers(load: Load, value: str) -> None:
    assert load(kafka={"bootstrap.servers": value}).kafka["bootstrap.servers"].get_secret_value() == value


@pytest.mark.parametrize(
    "value",
    [
        "kafka",
        "kafka:",
        ":9092",
        "a:0",
        "a:65536",
        "SSL://a:9092",
        "a:9092,",
        "a:9092;b:9092",
        "a b:1",
        "::1:9092",
        "a:9092\n",
    ],
)
def test_brokers_that_one_client_would_take_for_others_are_refused(load: Load, value: str) -> None:
    with pytest.raises(SettingsError, match=r"kafka: bootstrap\.servers contains .*; write host:port"):
        load(kafka={"bootstrap.servers": value})


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"spark.master": "local[1]"}, "spark.master cannot be set: it does not belong to a pipeline: Airflow takes"),
        ({"spark.sql.adaptive.enabled": True}, "spark.sql.adaptive.enabled is 'true', allowed is 'false'"),
        ({"spark.sql.session.timeZone": "Europe/Vienna"}, "allowed is 'UTC'"),
        ({"spark.submit.deployMode": "cluster"}, "allowed is 'client'"),
        ({"spark.redaction.regex": "x"}, "keeps passwords out"),
        ({"executor.memory": "1g"}, "executor.memory: Spark's settings begin with 'spark.'"),
        (
            {"spark.executor.cores": ["two"]},
            "spark.spark.executor.cores: Input should be a valid string (found ['two'])",
        ),
        ({"spark.executor.cores": None}, "(found None)"),
        ({"spark.sql.execution.arrow.pyspark.enabled": False}, "allowed is 'true'"),
        *(
            (
                {f"spark.sql.{name}": value},
                f"spark.sql.{name} cannot be set: it may change values that are read or written",
            )
            for name, value in (
                ("avro.datetimeRebaseModeInWrite", "LEGACY"),
                ("legacy.avro.datetimeRebaseModeInWrite", "LEGACY"),
                ("legacy.timeParserPolicy", "LEGACY"),
                ("timestampType", "TIMESTAMP_NTZ"),
                ("caseSensitive", True),
                ("files.ignoreMissingFiles", True),
                ("execution.arrow.useLargeVarTypes", True),
                ("execution.arrow.maxRecordsPerBatchOf", 1),
                ("catalogs", "x"),
                ("of.the.next.spark", 1),
            )
        ),
    ],
)
def test_a_spark_setting_that_cannot_hold_is_refused_and_shown(load: Load, setting: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(spark=setting)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.shuffle.partitions", "7"),
        ("spark.sql.execution.arrow.maxRecordsPerBatch", "7"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
        ("spark.sql.catalog.lake.uri", "http://127.0.0.1"),
        ("spark.sql.hive.metastore.version", "2.3.9"),
        ("spark.sql.warehouse.dir", "/lake"),
        ("spark.sql.extensions", "org.example.Extensions"),
        ("spark.executor.memory", "1g"),
        ("spark.sqlx.anything", "1"),
    ],
)
def test_a_spark_setting_that_changes_no_value_or_that_a_plan_freezes_is_taken(
    load: Load, name: str, value: str
) -> None:
    assert load(spark={name: value}).spark == {name: value}


def test_a_spark_setting_that_is_a_secret_is_not_shown(load: Load) -> None:
    with pytest.raises(SettingsError, match=r"spark\.hadoop\.fs\.s3a\.secret\.key") as raised:
        load(spark={"spark.hadoop.fs.s3a.secret.key": ["hunter2"]})
    assert "hunter2" not in str(raised.value)


def test_spark_is_told_no_master_and_keeps_the_connector_beside_other_jars(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencepost.spark.submit import submit_conf

    monkeypatch.setenv("FENCEPOST_SPARK_JARS", str(tmp_path))
    (tmp_path / "connector.jar").touch()
    own = {"spark.jars": "mine.jar", "spark.driver.extraClassPath": "/mine", "spark.executor.memory": "2g"}
    conf = submit_conf(load(spark=own), "spark://somewhere:7077")
    assert conf["spark.jars"] == f"{tmp_path / 'connector.jar'},mine.jar"
    assert conf["spark.driver.extraClassPath"] == f"{tmp_path}/*:/mine"
    assert conf["spark.executor.memory"] == "2g"
    assert "spark.master" not in conf
    here = submit_conf(load(spark=own), "local[2]")
    assert (here["spark.jars"], here["spark.driver.extraClassPath"]) == ("mine.jar", f"{tmp_path}/*:/mine")


def test_a_job_of_few_records_does_without_the_second_compiler(load: Load) -> None:
    from fencepost.spark.submit import FEW, submit_conf

    options = {
        n: submit_conf(load(), "local[2]", n)["spark.driver.defaultJavaOptions"] for n in (None, 0, FEW, FEW + 1)
    }
    assert {n: "-XX:TieredStopAtLevel=1" in text for n, text in options.items()} == {
        None: False,
        0: True,
        FEW: True,
        FEW + 1: False,
    }


def test_workers_are_forked_with_their_imports_where_the_package_is_installed(load: Load) -> None:
    from fencepost.spark.submit import submit_conf

    assert submit_conf(load(), "local[2]")["spark.python.daemon.module"] == "fencepost.rows.daemon"
    assert "spark.python.daemon.module" not in submit_conf(load(), "spark://somewhere:7077")
    another = load(spark={"spark.pyspark.python": "/usr/bin/python3"})
    assert "spark.python.daemon.module" not in submit_conf(another, "local[2]")


def test_a_command_refuses_a_master_that_spark_does_not_know(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    from fencepost.spark.session import build_session

    monkeypatch.delenv("SPARK_ENV_LOADED", raising=False)
    monkeypatch.setenv("FENCEPOST_SPARK_MASTER", "localhost:7077")
    with pytest.raises(SettingsError, match="FENCEPOST_SPARK_MASTER gives the master 'localhost:7077'"):
        build_session(load(), "run")


def test_sparks_files_of_records_lie_in_a_folder_of_this_users_alone(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencepost.spark.submit import submit_conf

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    conf = submit_conf(load(), "local[2]")
    folder = Path(conf["spark.local.dir"])
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    assert submit_conf(load(), "local[2]")["spark.local.dir"] == str(folder)
    for elsewhere in ("spark://somewhere:7077", "spark://localhost:7077", "localhost", "local-cluster[2,1,1024]"):
        assert "spark.local.dir" not in submit_conf(load(), elsewhere), "it is the workers' machine there"
    folder.chmod(0o755)
    with pytest.raises(NeedsOperator, match=f"{folder}: Spark's files hold records"):
        submit_conf(load(), "local[2]")
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(NeedsOperator, match="not private to this user"):
        submit_conf(load(), "local[2]")
    assert submit_conf(load(spark={"spark.local.dir": "/mine"}), "local[2]")["spark.local.dir"] == "/mine"


def test_no_variable_leads_sparks_files_elsewhere(load: Load) -> None:
    """Spark heeds SPARK_LOCAL_DIRS, where somebody has set it, and not spark.local.dir."""
    from fencepost.spark.submit import local_dirs, submit_conf

    for pipeline in (load(), load(spark={"spark.local.dir": "/mine"})):
        conf = submit_conf(pipeline, "local[2]")
        assert local_dirs(conf, "local[2]") == {"SPARK_LOCAL_DIRS": conf["spark.local.dir"]}
        assert local_dirs(conf, "spark://somewhere:7077") == {}


def test_a_missing_java_is_named_and_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fencepost.spark.submit import check_java

    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(SettingsError, match=f"no java in JAVA_HOME, which is {tmp_path}/jdk.*set JAVA_HOME"):
        check_java()
    binary = tmp_path / "jdk" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.touch(mode=0o755)
    check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match="no java on PATH, and JAVA_HOME is not set"):
        check_java()
    monkeypatch.setenv("PATH", str(binary.parent))
    check_java()
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-env.sh").touch()  # which may name one
    check_java()


def test_a_login_is_quoted_for_java() -> None:
    java = java_settings({**SASL, "security.protocol": "sasl_ssl", "sasl.password": 'a"b\\c'})
    assert java["security.protocol"] == "SASL_SSL"
    assert java["sasl.jaas.config"].endswith('PlainLoginModule required username="etl" password="a\\"b\\\\c";')


def test_java_does_not_know_the_word_none_for_host_names() -> None:
    assert java_settings({"ssl.endpoint.identification.algorithm": "none"}) == {
        "ssl.endpoint.identification.algorithm": ""
    }


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_pem_file_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"kafka\.{name}: the file .*missing\.pem cannot be read: No such file"):
        java_settings({name: str(tmp_path / "missing.pem")})


@pytest.mark.parametrize("kind", ["ca", "certificate", "key", "keystore"])
def test_a_key_in_the_place_of_its_files_path_is_refused_and_not_shown(load: Load, kind: str) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n"
    with pytest.raises(SettingsError, match=rf"ssl\.{kind}\.location holds the text of a certificate or key") as raised:
        load({f"ssl.{kind}.location": key})
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(("kind", "cure"), [("RSA", "openssl pkcs8 -topk8"), ("ENCRYPTED", r"PKCS#12")])
def test_a_key_that_java_cannot_read_is_refused_with_the_cure(kind: str, cure: str) -> None:
    key = f"-----BEGIN {kind} PRIVATE KEY-----\nhunter2\n-----END {kind} PRIVATE KEY-----\n"
    with pytest.raises(SettingsError, match=cure) as raised:
        java_settings({"ssl.key.pem": key, "ssl.certificate.pem": "c"})
    assert "hunter2" not in str(raised.value)


def test_an_empty_setting_counts_as_not_given(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """So one pipeline.yaml serves a cluster with a login and one without."""
    given = {"security.protocol": "${PROTOCOL:-plaintext}", "sasl.mechanism": "PLAIN", "sasl.username": "etl"}
    given |= {"sasl.password": "${SOME_PASSWORD:-}", "ssl.ca.location": "${CA:-}"}
    for name in ("PROTOCOL", "SOME_PASSWORD", "CA"):
        monkeypatch.delenv(name, raising=False)
    assert load(given).kafka.keys() == {"bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.username"}
    monkeypatch.setenv("PROTOCOL", "SASL_SSL")
    with pytest.raises(SettingsError, match=r"needs sasl\.password, which is missing or empty"):
        load(given)
