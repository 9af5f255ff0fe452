"""What `fencepost new` drafts from a topic loads, and publishes that topic's records, whatever is in them."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from conftest import at, day
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.topics import check_sources
from fencepost.drafting.connection import connection_of
from fencepost.drafting.draft import Draft, draft_pipeline
from fencepost.drafting.draft_request import DraftRequest
from fencepost.errors import SettingsError, TopicMissing
from fencepost.findings import Level
from fencepost.model import State
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, create_topic, produce, read_all
from steps import latest, run

New = Callable[..., Draft]


@pytest.fixture
def new(tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> New:
    """Draft a pipeline of a topic on the tests' broker."""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))

    def draft(name: str, topic: str, **options: Any) -> Draft:
        connection = connection_of(None, [f"bootstrap.servers={broker.bootstrap}"], options.pop("registry", ()))
        return draft_pipeline(DraftRequest(name, topic, **options), connection)

    return draft


def publish(spark: Any, draft: Draft) -> Pipeline:
    """Run the interval that the draft begins with; return the pipeline."""
    pipeline = load_pipeline(draft.folder)
    assert run(spark, pipeline, draft.chosen.interval).state is State.PUBLISHED
    return pipeline


def test_a_topic_of_orders_becomes_a_pipeline_that_publishes_them(spark: Any, broker: Broker, new: New) -> None:
    """Types, names that no column has, epoch numbers, tombstones, malformed records, the key and the checks."""
    create_topic(broker.bootstrap, "new-orders", 3)
    orders = [
        {
            "order_id": f"A{n}",
            "cents": n * 100,
            "weight": n / 4,
            "country": ["AT", "DE", "CH"][n % 3],
            "paid": n % 2 == 0,
            "day": f"2026-01-{n % 28 + 1:02}",
            "placed_at": f"2026-01-01T{n % 24:02}:00:00+01:00",
            "created_ms": 1_767_225_600_000 + n,
            "lines": [{"sku": "x", "count": n}],
            "seen": {f"2026-01-{d + 1:02}": d for d in range(n % 3 + 1)},
            "@timestamp": "2026",
            "user-id": n,
            "order": n,
            "huge": 10**25 + n,
            "exact": 12345678.125 if n else 0.1,
            "mixed": n if n % 2 else str(n),
            "nothing": None,
            "at": {"@type": "x", "n": 1},
        }
        for n in range(120)
    ]
    records: list[tuple[Any, Any, int, int]] = [(f"A{n}", one, n % 3, at(2, n / 10)) for n, one in enumerate(orders)]
    records += [("A0", None, 0, at(2, 13)), ("A1", b"{broken", 1, at(2, 13)), ("A2", {"order_id": "A2"}, 2, at(3, 1))]
    produce(broker.bootstrap, "new-orders", records)
    draft = new("orders_daily", "new-orders")
    settings = yaml.safe_load((draft.folder / "pipeline.yaml").read_text())
    assert settings["source"]["tombstones"] == "pass"
    schema = settings["source"]["schema"]
    assert schema == {
        "order_id": "string",
        "cents": "bigint",
        "weight": "double",
        "country": "string",
        "paid": "boolean",
        "day": "date",
        "placed_at": "timestamp",
        "created_ms": "bigint",
        "lines": "array<struct<sku:string,count:bigint>>",
        "seen": "map<string,bigint>",
        "order": "bigint",
        "huge": "decimal(38,0)",
        "exact": "double",
        "mixed": "string",
        "nothing": "string",
        "at": "struct<`@type`:string,n:bigint>",
        "timestamp": {"field": "@timestamp", "type": "string"},
        "user_id": {"field": "user-id", "type": "bigint"},
    }
    assert draft.fields.left_out == {}
    (malformed,) = (one for one in draft.warnings if one.startswith("Malformed: 1 of 123 sampled records"))
    assert malformed.endswith(" (1)."), "a count stands behind its reason, which may begin with a number"
    assert draft.chosen.interval == day(3)  # the newest that has ended and has records
    pipeline = publish(spark, draft)
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == 1
    early = day(2)
    assert run(spark, pipeline, early).state is State.PUBLISHED
    batch = latest(pipeline, early)
    assert batch.verdict is not None
    assert batch.verdict.failed_warning == ()
    found = read_all(broker.bootstrap, pipeline.output.topic)
    values = {record.key: record.json for record in found if record.value is not None}
    assert values[b"A7"]["created_ms_time"].startswith("2026-01-01T00:00:00.007")
    assert values[b"A7"]["huge"] == 10**25 + 7
    assert values[b"A7"]["at"] == {"@type": "x", "n": 1}
    assert values[b"A7"]["user_id"] == 7
    assert [record.key for record in found if record.value is None] == [b"A0"]
    assert len(found) == 120 + 1 + 1
    assert batch.written is not None
    assert dict(batch.written.quarantined) == {"malformed": 1}
    suite = yaml.safe_load((draft.folder / "expectations.yaml").read_text())["expectations"]
    assert {one["severity"] for one in suite} == {"warning"}
    assert 1 <= len(suite) <= 20
    assert {"column": "country", "value_set": ["AT", "CH", "DE"]} in [one["kwargs"] for one in suite]
    with pytest.raises(SettingsError, match="exists already"):
        new("orders_daily", "new-orders")


def change(op: str, before: Any, after: Any, schema: Any = None, table: str = "orders", lsn: int = 1) -> bytes:
    """A change as Debezium's connector for PostgreSQL writes it."""
    source = {"connector": "postgresql", "ts_ms": 1_767_225_600_000, "lsn": lsn, "schema": "public", "table": table}
    payload = {"before": before, "after": after, "op": op, "source": source | {"db": "shop", "snapshot": "false"}}
    return json.dumps(payload if schema is None else {"schema": schema, "payload": payload}).encode()


@pytest.mark.parametrize("with_schema", [True, False], ids=["with its schema", "without"])
def test_a_topic_of_changes_becomes_the_history_of_its_table(
    with_schema: bool, spark: Any, broker: Broker, new: New
) -> None:
    """The draft publishes each change of the most frequent table as it is: by the schema, types have their meaning."""
    decimal = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    row = [
        {"field": "id", "type": "int64"},
        {"field": "amount", "type": "bytes"} | decimal,
        {"field": "_at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": row}]}
    schema = schema if with_schema else None
    first = {"id": 1, "amount": "BNI=", "_at": 1_767_225_600_000_001}
    values = [
        change("c", None, first, schema, lsn=7),
        change("u", None, first | {"amount": "+w=="}, schema, lsn=8),
        change("c", None, {"sku": "x"}, None, "lines", lsn=8),
        change("d", {"id": 1, "amount": None, "_at": None}, None, schema, lsn=9),
        None,
    ]
    topic = f"new-changes-{with_schema}"
    create_topic(broker.bootstrap, topic, 1)
    produce(broker.bootstrap, topic, [(b'{"id": 1}', one, 0, at(2)) for one in values])
    draft = new(f"changes_{with_schema}".lower(), topic)
    pipeline = publish(spark, draft)
    assert (pipeline.source.envelope, pipeline.source.captured_table) == ("debezium", "public.orders")
    assert list(pipeline.source.key) == ["id"]
    records = read_all(broker.bootstrap, pipeline.output.topic)
    assert [one.key for one in records] == [b'{"id": 1}'] * 3
    found = [one.json for one in records]
    assert [(one["op"], one["id"], one["lsn"], one["source_offset"]) for one in found] == [
        ("create", 1, 7, 0), ("update", 1, 8, 1), ("delete", 1, 9, 3)
    ]  # fmt: skip
    read = [12.34, -0.05, None] if with_schema else ["BNI=", "+w==", None]
    assert [one["amount"] for one in found] == read
    moment = "2026-01-01T00:00:00.000001" if with_schema else 1_767_225_600_000_001
    assert [one["at"] for one in found] == [moment, moment, None]
    written = latest(pipeline, draft.chosen.interval).written
    assert written is not None
    assert (written.rows_in, written.rows, sum(written.quarantined.values())) == (5, 3, 0)


def test_a_flattened_topic_and_hostile_names_are_read_by_their_own_names(spark: Any, broker: Broker, new: New) -> None:
    create_topic(broker.bootstrap, "new-flat", 1)
    row = {"_id": 5, "__deleted": "false", "__op": "u", "@timestamp": "2026-01-01T00:00:00Z", "a.b": {"c d": 1, "`": 2}}
    values = [json.dumps(row | {"__deleted": deleted}).encode() for deleted in ("false", "true")]
    produce(broker.bootstrap, "new-flat", [(b"5", one, 0, at(2)) for one in values])
    draft = new("flat", "new-flat")
    pipeline = publish(spark, draft)
    found = [one.json for one in read_all(broker.bootstrap, pipeline.output.topic)]
    expected = {"id": 5, "op": "u", "timestamp": "2026-01-01T00:00:00.000000Z", "a_b": {"c d": 1, "`": 2}}
    assert found == [expected | {"deleted": False}, expected | {"deleted": True}]


# What `delete.tombstone.handling.mode` leaves of a deletion in a flattened topic, and what the draft does with it.
REWRITTEN = [{"id": 1, "__deleted": "false"}, {"id": 1, "__deleted": "true"}, None]
FLATTENED: dict[str, tuple[list[Any], bytes, str, dict[str, str] | None, list[Any]]] = {
    "rewrite-with-tombstone": (
        REWRITTEN,
        b'{"id":1}',
        "drop",
        None,
        [{"id": 1, "deleted": False}, {"id": 1, "deleted": True}],
    ),
    "tombstone": ([{"id": 1}, None], b'{"id":1}', "pass", {"id": "bigint not null"}, [{"id": 1}, None]),
    "keys that are no objects": ([{"id": 1}, None], b"1", "pass", None, [{"id": 1}, None]),
}


@pytest.mark.parametrize("mode", FLATTENED)
def test_a_deletion_of_a_flattened_topic_is_drafted_as_its_mode_writes_it(
    spark: Any, broker: Broker, new: New, mode: str
) -> None:
    values, key, tombstones, columns, published = FLATTENED[mode]
    topic = f"new-deleted-{mode.replace(' ', '-')}"
    create_topic(broker.bootstrap, topic, 1)
    produce(broker.bootstrap, topic, [(key, one, 0, at(2)) for one in values])
    draft = new(f"deleted_{list(FLATTENED).index(mode)}", topic)
    source = yaml.safe_load((draft.folder / "pipeline.yaml").read_text())["source"]
    assert (source["tombstones"], source.get("key")) == (tombstones, columns)
    pipeline = publish(spark, draft)
    found = read_all(broker.bootstrap, pipeline.output.topic)
    assert [(one.key, one.value and one.json) for one in found] == [(key, one) for one in published]


def test_a_limit_that_malformed_records_raise_is_said(broker: Broker, new: New) -> None:
    create_topic(broker.bootstrap, "new-junk", 1)
    produce(broker.bootstrap, "new-junk", [(b"k", value, 0, at(2)) for value in ({"n": 1}, {"n": 2}, b"{", b"{")])
    draft = new("junk", "new-junk")
    assert yaml.safe_load((draft.folder / "pipeline.yaml").read_text())["quality"] == {
        "quarantine_limit": {"share": 1.0}
    }
    assert (
        "pipeline.yaml sets quality.quarantine_limit to a share of 1.0 for these malformed records, so no batch is rejected for "
        "them. The default is 0.01. Lower it when the cause is fixed."
    ) in draft.warnings


NAMES = [
    *(
        "a",
        "A",
        "b_2",
        "größe",
        "名前",
        "select",
        "order",
        "null",
        "true",
        "NO",
        "on",
        "y",
        "1",
        "12",
        "1e3",
        "0x1F",
        "_key",
        "_x",
    ),
    *(
        "@timestamp",
        "user-id",
        "a.b",
        "a b",
        "",
        "`tick`",
        '"quoted"',
        "it's",
        "new\nline",
        "#comment",
        "a: b",
        "x" * 300,
    ),
    *(
        "\u202e",
        "\u0130",
        "\u0131",
        "date",
        "time",
        "current_date",
        "interval",
        "{source}",
        "--",
        "/*",
        "${HOME}",
        "source",
    ),
    *("value", "_tombstone", "created_at", "_id", "__deleted", "__op", "user_id", "n\0l", "field", "\u2028", "a`b"),
]
TEXTS = [
    *(
        "",
        " ",
        "null",
        "2026-01-01",
        "2026-02-30",
        "9999-12-31",
        "0001-01-01",
        "2026-01-01T00:00:00Z",
        "2026-01-01 00:00",
    ),
    *("10:00", "2026-01-01T23:59:60Z", "2026-01-01T00:00:00.1234567+01:00", "2026-01-01T00:00:00+19:00", "\u0000"),
    *("\U0001f600", "é" * 50, "#", "a: b"),
]
NUMBERS = [
    *(
        "0",
        "-0",
        "-0.0",
        "1",
        "-1",
        str(2**53 + 1),
        str(2**63 - 1),
        str(2**63),
        str(-(2**63)),
        "1" * 38,
        "1" * 39,
        "9" * 400,
    ),
    *(
        "0.1",
        "1.10",
        "1e3",
        "1E-3",
        "1e400",
        "-1e400",
        "5e-324",
        "0.1234567890123456789",
        "123456789012345678.5",
        "1767225600",
    ),
    *("1767225600000", "1.0"),
]


def value(chance: random.Random, kind: str, depth: int = 0) -> str:
    """A JSON value of a kind, as a text."""
    if chance.random() < 0.15:
        return "null"
    match kind:
        case "number":
            return chance.choice(NUMBERS)
        case "whole":
            return str(chance.randrange(-(10**6), 10**6))
        case "text":
            return json.dumps(chance.choice(TEXTS))
        case "day":
            return json.dumps(f"20{chance.randrange(10, 99)}-0{chance.randrange(1, 9)}-1{chance.randrange(0, 9)}")
        case "moment":
            return json.dumps(
                f"2026-01-01T0{chance.randrange(9)}:00:00.{chance.randrange(999)}{chance.choice(['Z', '+0530'])}"
            )
        case "boolean":
            return chance.choice(["true", "false"])
        case "array":
            inner = chance.choice(KINDS)
            return f"[{', '.join(value(chance, inner, depth + 1) for _ in range(chance.randrange(4)))}]"
        case "object":
            return record(chance, {name: chance.choice(KINDS[:6]) for name in chance.sample(NAMES, 3)}, depth + 1)
        case "struct":
            return record(chance, {"x": "whole", "y": "text", "select": "moment"}, depth + 1)
        case "deep":
            return "[" * 150 + "1" + "]" * 150
        case _:
            return value(chance, chance.choice(KINDS[:8] if depth < 3 else KINDS[:6]), depth)


KINDS = ["number", "whole", "text", "day", "moment", "boolean", "array", "struct", "object", "mixed", "deep"]


def record(chance: random.Random, kinds: dict[str, str], depth: int = 0) -> str:
    """A JSON object as a text; now and then a field is missing."""
    fields = [f"{json.dumps(n)}: {value(chance, k, depth)}" for n, k in kinds.items() if chance.random() < 0.9]
    return "{" + ", ".join(fields) + "}"


SEEDS = int(os.environ.get("DRAFT_SEEDS", "3"))


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_drafted_publishes_records_of_any_json(seed: int, spark: Any, broker: Broker, new: New) -> None:
    """Hostile names and values: each good record is read, written, judged and published, with no failed check."""
    chance, topic = random.Random(seed), f"new-hostile-{seed}"
    kinds = {name: chance.choice(KINDS) for name in chance.sample(NAMES, chance.randrange(5, 30))} | {"fine": "whole"}
    values: list[bytes | None] = [record(chance, kinds).encode() for _ in range(chance.choice([1, 20, 150]))]
    values += [None] * chance.randrange(3)
    values += [b"\xff\xfe", b'{"a": 1, "a": 2}', b"[1]"][: chance.randrange(4)] if len(values) > 100 else []
    chance.shuffle(values)
    create_topic(broker.bootstrap, topic, 2)
    produce(
        broker.bootstrap, topic, [(chance.choice([None, b"k", b"\xff"]), v, n % 2, at(1)) for n, v in enumerate(values)]
    )
    draft = new(f"hostile_{seed}", topic)
    pipeline = publish(spark, draft)
    batch = latest(pipeline, draft.chosen.interval)
    assert batch.verdict is not None
    assert batch.verdict.failed_warning == ()
    written = batch.written
    assert written is not None
    assert written.rows_in == len(values)
    assert written.rows == len(values) - draft.fields.bad
    assert math.isclose(sum(written.quarantined.values()), draft.fields.bad)


@pytest.mark.deep
def test_values_of_unknown_content_are_taken_as_they_are(spark: Any, broker: Broker, new: New) -> None:
    create_topic(broker.bootstrap, "new-bytes", 1)
    values = [b"\x03\x00frame", b"", None, b"{}", bytes(range(256))]
    produce(broker.bootstrap, "new-bytes", [(b"k", value, 0, at(1)) for value in values])
    with pytest.raises(SettingsError, match=r"sampled values cannot be read|no field that can be a column"):
        new("bytes_json", "new-bytes")
    draft = new("bytes_daily", "new-bytes", format="bytes")
    pipeline = publish(spark, draft)
    assert [
        one.value for one in sorted(read_all(broker.bootstrap, pipeline.output.topic), key=lambda r: r.offset)
    ] == values


REFUSED: dict[str, tuple[list[bytes | None], str]] = {
    "empty": ([], "is empty, and no registry has the subject"),
    "tombstones": ([None, None], "has only records without a value"),
    "glue": ([b"\x03\x00" + bytes(18)] * 3, r"frames of AWS Glue's schema registry \(3\)"),
    "files": ([b"Obj\x01..."], r"files of Avro.* \(1\)"),
    "framed": ([b"\0\0\0\0\x07" + b"abc"] * 2, "No registry is named"),
    "text": ([b"a,b,c"], r"text that is not a JSON object \(1\)"),
    "binary": ([b"\x0a\xff\xfe"], r"binary \(1\)"),
    "mostly broken": ([b"{}", *[b"{"] * 9], "9 of 10 sampled values cannot be read"),
    "no fields": ([rb'{"a\u0000": 1}'], r"fields that cannot be read: 1"),
}


@pytest.mark.deep
def test_a_draft_from_records_of_a_megabyte_publishes_them(spark: Any, broker: Broker, new: New) -> None:
    """Producers send less than that unless they are told. A cluster's topics take it, since it is compressed."""
    create_topic(broker.bootstrap, "new-large", 1, **{"max.message.bytes": "5000000"})
    records = [{"n": n, "note": "x" * (1_200_000 if n == 7 else 1)} for n in range(60)]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 5_000_000}, logger=QUIET_LOG)
    for one in records:
        producer.produce("new-large", json.dumps(one), b"k", 0, timestamp=at(1))
    assert producer.flush(30) == 0
    draft = new("large_daily", "new-large")
    assert any("The largest sampled record has 1,200,0" in warning for warning in draft.warnings)
    pipeline = publish(spark, draft)
    assert pipeline.kafka["message.max.bytes"].get_secret_value() == "4000000"
    assert [one.json for one in read_all(broker.bootstrap, pipeline.output.topic)] == records


@pytest.mark.parametrize("what", REFUSED)
def test_a_topic_that_no_pipeline_can_read_is_refused_by_what_is_in_it(
    what: str, broker: Broker, new: New, tmp_path: Path
) -> None:
    """And nothing is left in the folder of pipelines."""
    values, said = REFUSED[what]
    topic = f"new-refused-{what.replace(' ', '-')}"
    create_topic(broker.bootstrap, topic, 1)
    produce(broker.bootstrap, topic, [(None, value, 0, at(1)) for value in values])
    with pytest.raises(SettingsError, match=said):
        new("refused", topic)
    assert list(tmp_path.iterdir()) == []


def test_a_topic_that_is_not_there_is_answered_with_those_that_may_be_meant(
    broker: Broker, new: New, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, "new-missing-clicks", 1)
    with pytest.raises(TopicMissing) as raised:
        new("refused", "new_missing_click")
    assert str(raised.value) == (
        f"--from-topic new_missing_click: Kafka at {broker.bootstrap} has no such topic, or does not show it to this user. "
        "Did you mean new-missing-clicks? Correct the name, or create the topic."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_shell_completes_the_topics_of_the_kafka_that_the_line_names(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, "new-completed", 1)
    words = f"fencepost new x --kafka bootstrap.servers={broker.bootstrap} --from-topic new-compl"
    monkeypatch.setenv("_FENCEPOST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", "6")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("fencepost"))], capture_output=True, text=True, check=True
    )
    assert (done.stdout.split(), done.stderr) == (["new-completed"], "")


def test_a_compacted_topic_is_warned_of_in_the_doctor_s_words(broker: Broker, new: New) -> None:
    for policy, warned in (("compact", True), ("compact,delete", True), ("delete", False)):
        topic = f"new-compacted-{policy.replace(',', '-')}"
        create_topic(broker.bootstrap, topic, 1, **{"cleanup.policy": policy})
        produce(broker.bootstrap, topic, [(b"k", {"n": n}, 0, at(n)) for n in (1, 2)])
        draft = new(f"compacted_{policy.replace(',', '_')}", topic)
        said = [one for one in draft.warnings if "is compacted" in one]
        (found,) = check_sources(Inspection(load_pipeline(draft.folder)))
        assert (len(said), found.level is Level.WARNING) == (int(warned), warned)
        assert not warned or said == [f"{found.found} {found.do}"]


@pytest.mark.deep
def test_the_command_ends_with_the_run_that_comes_next_and_fits_eighty_columns(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe, without colour. As JSON it says the same; a failure is JSON too."""
    create_topic(broker.bootstrap, "new-command", 1)
    produce(broker.bootstrap, "new-command", [(None, {"n": 1, "user-id": 2, "a\0": 3}, 0, at(1))])
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", broker.bootstrap)

    def fencepost(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("fencepost")), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    vienna = ("--from-topic", "new-command", "--timezone", "Europe/Vienna")
    told = fencepost("new", "by_command", *vienna)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[-1] == "fencepost run by_command --start 2026-01-01T00:00+01:00 --end 2026-01-02T00:00+01:00"
    assert lines[0] == f"{tmp_path / 'by_command'}: json, 2 columns and 2 checks, from 1 record"
    assert [line for line in lines[1:-1] if len(line) > 80] == []
    assert "\x1b" not in told.stdout
    as_json = json.loads(fencepost("new", "as_json", *vienna, "--json").stdout)
    assert as_json["run"] == lines[-1].replace("by_command", "as_json")
    assert as_json["left_out"].keys() == {"a\0"}
    again = fencepost("new", "as_json", *vienna, "--json")
    assert (again.returncode, json.loads(again.stdout)["error"]["type"]) == (2, "SettingsError")
    bad = fencepost("new", "other", "--from-topic", "new-command", "--timezone", "Mars")
    assert bad.returncode == 2
    assert "schedule.timezone: not a time zone" in bad.stderr
    missing = fencepost("new", "other", "--from-topic", "not-there")
    assert missing.returncode == 4
    assert "not-there" in missing.stderr
