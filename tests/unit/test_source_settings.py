"""The sections `source` and `sources` of pipeline.yaml: what they may say, and the sentence for each mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.public_settings import pipeline_of_public, public_settings
from fencepost.errors import SettingsError

ORDERS: dict[str, Any] = {"topic": "orders", "schema": {"n": "int"}}
PAYMENTS: dict[str, Any] = {"topic": "payments", "schema": {"n": "int", "paid": "int"}}
BOTH = {"orders": ORDERS, "payments": PAYMENTS}
EITHER = "sources: give either source, with one topic, or sources, with a section for each topic by its name"
BAD_NAME = (
    "the name of a source has at most 63 of a-z, 0-9 and _, begins with a letter, and is no keyword of Python: it is the name "
    "of an argument or of a view"
)
FIELDS = "topic, format, subject, version, only, envelope, table, key_format, key_subject, key_version, key, schema"


def write(folder: Path, **sections: Any) -> Path:
    settings = {
        "output": {"topic": "out"},
        "schedule": {"start": "2026-01-01"},
        "kafka": {"bootstrap.servers": "k:9092"},
    }
    folder = folder / "paid"
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.yaml").write_text(yaml.safe_dump({**settings, **sections}, sort_keys=False))
    (folder / "transform.sql").write_text("SELECT * FROM orders JOIN payments USING (n)")
    (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: n}}]")
    return folder


def load(folder: Path, **sections: Any) -> Pipeline:
    return load_pipeline(write(folder, **sections))


def refusal(folder: Path, **sections: Any) -> str:
    """What is said of these sections, without the file's name."""
    with pytest.raises(SettingsError) as raised:
        load(folder, **sections)
    return str(raised.value).replace(f"{folder}/paid/pipeline.yaml: ", "")


def test_sources_have_names_and_each_has_settings_of_its_own(tmp_path: Path) -> None:
    payments = PAYMENTS | {"on_malformed": "quarantine", "tombstones": "drop", "on_expired": "skip"}
    pipeline = load(
        tmp_path, sources={"orders": ORDERS, "payments": payments}, output={"topic": "out", "layout": "output"}
    )
    assert pipeline.source is None
    assert {name: one.setting for name, one in pipeline.sources.items()} == {
        "orders": "sources.orders",
        "payments": "sources.payments",
    }
    assert [one.topic for one in pipeline.source_topics.values()] == ["orders", "payments"]
    told = [(one.on_malformed, one.tombstones, one.on_expired) for one in pipeline.sources.values()]
    assert told == [("fail", "fail", "fail"), ("quarantine", "drop", "skip")]
    assert pipeline.quarantines
    assert pipeline.replays_results_only


def test_an_only_source_is_under_source_or_has_a_name(tmp_path: Path) -> None:
    one = load(tmp_path, source=ORDERS)
    assert (list(one.sources), one.sources["source"].setting, one.replays_results_only) == (["source"], "source", False)
    named = load(tmp_path, sources={"orders": ORDERS}, output={"topic": "out", "layout": "output"})
    assert (named.source, list(named.sources), named.replays_results_only) == (None, ["orders"], False)


def test_sources_under_layout_source_are_not_joined(tmp_path: Path) -> None:
    assert not load(tmp_path, sources=BOTH).replays_results_only


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"source": ORDERS, "sources": BOTH}, EITHER),
        ({}, EITHER),
        ({"source": None}, EITHER),
        ({"sources": {}}, EITHER),
        ({"several": BOTH}, f"{EITHER};\nseveral: unknown field; allowed here are kafka"),
        ({"source": {"schema": {"n": "int"}}}, "source.topic: required but missing"),
        ({"source": ORDERS | {"columns": {"n": "int"}}}, f"source.columns: unknown field; allowed here are {FIELDS}"),
        ({"sources": None}, "sources: not a section of names and values (found None)"),
        ({"sources": [ORDERS]}, "sources: not a section of names and values"),
        ({"sources": {"orders": "orders"}}, f"sources.orders: not a section; its fields are {FIELDS}"),
        (
            {"sources": {"orders": ORDERS, "again": ORDERS}},
            "sources: orders and again are both topic orders; a batch would read its records twice. Remove one. A transform can "
            "use a source twice",
        ),
        *(
            ({"sources": {name: ORDERS}}, f"sources: {name!r}: {BAD_NAME}")
            for name in ("Orders", "2nd", "a-b", "a" * 64)
        ),
        *(({"sources": {name: ORDERS}}, f"sources: {name!r}: {BAD_NAME}") for name in ("class", "", "_n")),
        (
            {"sources": {"source": ORDERS, "payments": PAYMENTS}},
            "sources: source is the name of the section for an only source; give the source another name",
        ),
        (
            {"sources": BOTH, "tables": {"orders": {"file": "orders.csv", "key": "n"}}},
            "tables: orders is the name of a source too; give the side table another name",
        ),
        (
            {"sources": {"orders": ORDERS, "payments": PAYMENTS | {"topics": "x"}}},
            f"sources.payments.topics: unknown field; allowed here are {FIELDS}",
        ),
        (
            {"sources": {"orders": ORDERS | {"schema": {"n": {"typ": "int"}}}}},
            "sources.orders.schema.n.typ: unknown field; allowed here are type, field, from, digits, infinity",
        ),
        (
            {"sources": {"orders": ORDERS, "payments": {"schema": {"n": "int"}}}},
            "sources.payments.topic: required but missing",
        ),
        (
            {"sources": {"orders": ORDERS, "payments": {"topic": "payments"}}},
            "sources.payments: format json needs a schema: a mapping of field name to Spark SQL type",
        ),
        (
            {"sources": {"orders": ORDERS, "payments": PAYMENTS | {"on_malformed": "keep"}}},
            "sources.payments.on_malformed: Input should be 'fail', 'drop' or 'quarantine' (found 'keep')",
        ),
        (
            {"sources": {"orders": ORDERS, "payments": {"topic": "payments", "format": "avro", "key_format": "avro"}}},
            "(whole file): sources.payments.format: avro and sources.payments.key_format: avro needs schema_registry: with the "
            "url of one",
        ),
    ],
)
def test_a_mistake_is_named_with_its_section(tmp_path: Path, sections: dict[str, Any], why: str) -> None:
    assert refusal(tmp_path, **sections).startswith(why)


LEDGER = "which is the pipeline's ledger or topic of announcements; name another."


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("out", "output.topic is {} (out); a batch would read its own output."),
        ("fencepost.paid.ledger", "{} is fencepost.paid.ledger, " + LEDGER),
        ("fencepost.paid.published", "{} is fencepost.paid.published, " + LEDGER),
        (
            "fencepost.paid.staging",
            "output.staging_topic is fencepost.paid.staging, which is {}; records that are not judged need a topic of their own.",
        ),
        (
            "fencepost.paid.quarantine",
            "quality.quarantine_topic is {} (fencepost.paid.quarantine); quarantined records need a topic of their own.",
        ),
    ],
)
def test_no_source_is_a_topic_that_the_pipeline_writes(tmp_path: Path, topic: str, why: str) -> None:
    of_it = PAYMENTS | {"topic": topic}
    said = refusal(tmp_path, sources={"orders": ORDERS, "payments": of_it})
    assert said == f"(whole file): {why.format('sources.payments.topic')}"
    assert refusal(tmp_path, source=of_it) == f"(whole file): {why.format('source.topic')}"


def test_a_topic_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"orders": ORDERS | {"topic": "${ORDERS_TOPIC}"}, "payments": PAYMENTS | {"topic": "${PAY:-payments}"}}
    monkeypatch.delenv("ORDERS_TOPIC", raising=False)
    assert refusal(tmp_path, sources=sources) == (
        "sources.orders.topic: ${ORDERS_TOPIC} is not set in the environment; set it, or write ${ORDERS_TOPIC:-default}."
    )
    monkeypatch.setenv("ORDERS_TOPIC", "orders-of-today")
    assert list(load(tmp_path, sources=sources).source_topics) == ["orders-of-today", "payments"]
    monkeypatch.setenv("ORDERS_TOPIC", "payments")
    assert refusal(tmp_path, sources=sources).startswith("sources: orders and payments are both topic payments;")


@pytest.mark.parametrize(
    ("source", "field"),
    [
        (ORDERS | {"topic": "${ORDERS_PASSWORD}"}, "topic: ${ORDERS_PASSWORD} looks like a secret, but messages"),
        (ORDERS | {"format": "${FORMAT}"}, "format: ${FORMAT} is not allowed here; only values under kafka"),
    ],
)
def test_no_other_reference_is_taken(tmp_path: Path, source: dict[str, Any], field: str) -> None:
    said = refusal(tmp_path, sources={"orders": source, "payments": PAYMENTS})
    assert said.startswith(f"sources.orders.{field}")
    if "not allowed here" in field:
        assert "source.topic, sources.<name>.topic, tables.<name>.topic, may come from the environment." in said


def test_offline_topics_that_are_not_set_stay_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pytest fixture needs no variable."""
    for name in ("ORDERS_TOPIC", "PAYMENTS_TOPIC", "OUT_TOPIC"):
        monkeypatch.delenv(name, raising=False)
    sources = {"orders": ORDERS | {"topic": "${ORDERS_TOPIC}"}, "payments": PAYMENTS | {"topic": "${PAYMENTS_TOPIC}"}}
    pipeline = load_pipeline(write(tmp_path, sources=sources, output={"topic": "${OUT_TOPIC}"}), offline=True)
    assert list(pipeline.source_topics) == ["not-set-ORDERS_TOPIC", "not-set-PAYMENTS_TOPIC"]
    assert pipeline.output.name == "not-set-OUT_TOPIC"


def changed(folder: Path, one: Any, two: Any) -> list[str]:
    """The parts whose digests differ between these sources."""
    before, after = (load(folder, sources=sources).write_digests() for sources in (one, two))
    return [part for part in before if before[part] != after[part]]


@pytest.mark.parametrize(
    ("sources", "parts"),
    [
        (dict(reversed(BOTH.items())), []),
        ({"orders": ORDERS, "payments": PAYMENTS | {"on_expired": "skip", "empty": "reject"}}, []),
        ({"orders": ORDERS, "payments": PAYMENTS | {"tombstones": "drop"}}, ["source"]),
        ({"orders": ORDERS, "paid": PAYMENTS}, ["source"]),
        ({"payments": ORDERS, "orders": PAYMENTS}, ["source"]),
        ({"orders": ORDERS}, ["source"]),
    ],
    ids=["order", "decides no record", "a setting", "a name", "names exchanged", "one less"],
)
def test_settings_and_names_of_sources_decide_what_is_written_and_their_order_does_not(
    tmp_path: Path, sources: Any, parts: list[str]
) -> None:
    assert changed(tmp_path, BOTH, sources) == parts


def test_a_dag_carries_the_sources_of_its_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """References stay references, and are read where the DAG is shown, if the operator lists them."""
    monkeypatch.setenv("ORDERS_TOPIC", "orders-here")
    pipeline = load(tmp_path, sources={"orders": ORDERS | {"topic": "${ORDERS_TOPIC}"}, "payments": PAYMENTS})
    public = json.loads(json.dumps(public_settings(pipeline)))
    assert public["settings"]["sources"]["orders"]["topic"] == "${ORDERS_TOPIC}"
    with pytest.raises(SettingsError, match=r"sources\.orders\.topic: \$\{ORDERS_TOPIC\} is not read here"):
        pipeline_of_public(public, "paid")
    monkeypatch.setenv("FENCEPOST_PAGES_ENVIRONMENT", "ORDERS_TOPIC")
    monkeypatch.setenv("ORDERS_TOPIC", "orders-there")
    there = pipeline_of_public(public, "paid")
    assert {name: one.setting for name, one in there.sources.items()} == {
        "orders": "sources.orders",
        "payments": "sources.payments",
    }
    assert list(there.source_topics) == ["orders-there", "payments"]
