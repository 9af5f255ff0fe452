"""What a sample says: types, names, checks, timestamps; and that the files say it in words that are read back the same."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.config.cron import Cron
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.source import Source
from fencepost.config.sql_types import is_sql_type
from fencepost.config.strict_yaml import read_yaml
from fencepost.drafting.checks import MOST_CHECKS, draft_checks
from fencepost.drafting.columns import Fields, json_fields, spark_type
from fencepost.drafting.connection import connection_of
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.names import column_names
from fencepost.drafting.source import near_topics, source_of
from fencepost.drafting.times import doubts
from fencepost.drafting.transform import transform_sql
from fencepost.drafting.types import DEEPEST
from fencepost.drafting.writing import block, in_comment, scalar, suite_yaml
from fencepost.errors import SettingsError
from fencepost.formats.column_names import twins
from fencepost.kafka.cluster import Topic
from fencepost.kafka.sample import Sample, Sampled, allot


def of(*values: Any) -> Fields:
    """The fields of records with one field, `x`, whose values are JSON texts, or bytes of whole records."""
    return json_fields([v if isinstance(v, bytes) else f'{{"x": {v}}}'.encode() for v in values])


TYPES: dict[str, tuple[str, ...]] = {
    "bigint": ("1", "-9223372036854775808", "null", "-0"),
    "decimal(38,0)": ("1", "9223372036854775808", "-" + "9" * 38),
    "double": ("1", "0.1", "1e300", "-0.0", "0e99999999999999999999"),
    "boolean": ("true", "false"),
    "date": ('"2026-01-31"', '"0001-01-01"'),
    "timestamp": ('"2026-01-31T10:00:00Z"', '"2026-01-31 10:00+0100"', '"2026-01-31t10:00:00.1234560z"'),
    "timestamp_ntz": ('"2026-01-31T10:00:00.123456"', '"2026-01-31"'),
    "array<bigint>": ("[]", "[1, null]"),
    "struct<a:bigint,b:struct<c:date>>": ('{"a": 1, "b": null}', '{"b": {"c": "2026-01-01"}}'),
    "struct<`@type`:bigint,`a``b`:bigint>": ('{"@type": 1}', '{"a`b": 2}'),
    "map<string,bigint>": ('{"1001": 1}', '{"1002": 2}'),
}
TEXTS = {
    "whole numbers beyond 38 digits": ("1" * 39,),
    "more digits than a double has": ("0.12345678901234567", "1.5"),
    "beyond a double's range": ("1e400",),
    "an exponent that no library holds": ("1e-99999999999999999999", "0.5"),
    "a whole number that a double would round": ("9007199254740993", "0.5"),
    "mixed": ("1", '"1"'),
    "only null": ("null", "null"),
    "some days": ('"2026-01-31"', '"2026-02-30"'),
    "times with a zone and without": ('"2026-01-31T10:00:00Z"', '"2026-01-31T10:00:00"'),
    "an object with a name that no struct has": ('{"n\\u0000l": 1}',),
    "two names that differ in case": ('{"a": 1, "A": 2}',),
    "digits below the microsecond": ('"2026-01-31T10:00:00.1234567Z"', '"2026-01-31T10:00:00Z"'),
    "empty objects": ("{}",),
}


@pytest.mark.parametrize("sql", TYPES)
def test_a_type_is_one_that_holds_every_value(sql: str) -> None:
    fields = of(*TYPES[sql])
    assert [(column.name, column.sql) for column in fields.columns] == [("x", sql)]
    assert fields.bad == 0
    assert is_sql_type(sql)


def test_a_draft_says_that_times_have_more_digits_than_a_timestamp() -> None:
    zeros, digits = '"2026-01-31T10:00:00.1200000"', '"2026-01-31T10:00:00.1200001"'
    more = "more than six decimal places of a second: a value is malformed if a later decimal place is not 0"
    for values, sql, note in (
        ([f'{zeros[:-1]}Z"'], "timestamp", more),
        ([zeros], "timestamp_ntz", f"times without a zone, {more}"),
        ([digits, zeros], "string", "times with digits below the microsecond: kept as text"),
        (['"1.1234567"'], "string", ""),
    ):
        (column,) = of(*values).columns
        assert (column.sql, column.note) == (sql, note)


@pytest.mark.parametrize("what", TEXTS)
def test_what_no_type_holds_whole_stays_text(what: str) -> None:
    fields = of(*TEXTS[what])
    (column,) = fields.columns
    assert column.sql == "string"
    assert fields.bad == 0


@pytest.mark.parametrize("levels", [12, 250, 900])
def test_what_is_nested_deeper_than_a_type_should_be_is_text_within_it(levels: int) -> None:
    fields = of("[" * levels + "]" * levels)
    (column,) = fields.columns
    assert column.sql == "array<" * DEEPEST + "string" + ">" * DEEPEST
    assert fields.bad == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    | st.dates().map(str) | st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.text(max_size=6), JSON, max_size=4), min_size=1, max_size=6))
def test_every_object_is_good_with_what_was_inferred_from_it(records: list[dict[str, Any]]) -> None:
    """And the declared types are ones that settings take, under names that they take."""
    fields = json_fields([json.dumps(one, ensure_ascii=False).encode("utf-8", "surrogatepass") for one in records])
    broken = sum("\\ud" in json.dumps(one) and _has_half(one) for one in records)
    assert fields.bad == broken
    for column in fields.columns:
        assert column.sql is not None
        assert is_sql_type(column.sql)
    names = {name for n, one in enumerate(records) for name in one if not _has_half(records[n])}
    assert {column.field for column in fields.columns} | fields.left_out.keys() == names
    columns = {column.name: column.declared for column in fields.columns}
    assert len(columns) == len(fields.columns)
    assert not columns or Source(topic="t", columns=columns).columns == columns


def _has_half(value: Any) -> bool:
    """Whether a text in it has half a surrogate pair, which is no UTF-8."""
    return any("\ud800" <= c <= "\udfff" for c in json.dumps(value, ensure_ascii=False))


def test_a_name_that_no_column_has_is_read_into_a_column_of_a_similar_name() -> None:
    record = {"ID": 1, "_id": 2, "user-id": 3, "user_id": 4, "@timestamp": 5, "a.b c": 6, "": 7, "__": 8, "größe": 9}
    fields = json_fields([json.dumps(record).encode(), b'{"id": 10}', b'{"id": 11}'])
    assert {column.name: (column.field, column.values[0] or column.values[1]) for column in fields.columns} == {
        "id": ("id", 10), "ID_2": ("ID", 1), "id_3": ("_id", 2), "user_id": ("user_id", 4), "user_id_2": ("user-id", 3),
        "timestamp": ("@timestamp", 5), "a_b_c": ("a.b c", 6), "field": ("", 7), "field_2": ("__", 8),
        "größe": ("größe", 9),
    }  # fmt: skip
    assert fields.left_out == {}
    assert in_comment("") == '""'


def test_names_that_spark_takes_as_the_same_get_columns_of_their_own() -> None:
    fields = json_fields(['{"\u0130": 1, "\u0131": 1, "I": 1, "i": 1}'.encode()])
    assert [column.field for column in fields.columns] == ["\u0130", "\u0131", "I", "i"]
    assert twins([column.name for column in fields.columns]) is None


def test_what_no_column_can_be_read_from_is_left_out_with_the_reason() -> None:
    fields = json_fields([json.dumps({"a": 1, "n\0l": 2, "é" * 128: 3}).encode()])
    assert [column.name for column in fields.columns] == ["a"]
    assert fields.left_out == {
        "n\0l": "a name with a NUL character cannot be read", "é" * 128: "its name is longer than 255 bytes"
    }  # fmt: skip


@given(st.dictionaries(st.text(max_size=4), st.integers(1, 9), max_size=8), st.randoms())
def test_a_column_s_name_does_not_depend_on_the_order_of_fields(fields: dict[str, int], chance: Any) -> None:
    found, shuffled = column_names(fields), list(fields.items())
    chance.shuffle(shuffled)
    assert column_names(dict(shuffled)) == found
    assert list(found) == list(fields)
    assert len(set(found.values())) == len(fields)
    assert twins(found.values()) is None
    assert all(re.fullmatch(r"\w+", name) and name[0] != "_" for name in found.values())


def test_epoch_numbers_are_known_by_name_and_years() -> None:
    one = b'{"created_at": 1767225600, "updatedAt": 1767225600000, "id": 1767225600, "dep_time": 1730, "ts": 1767225600000000, '
    one += b'"ns": 1767225600123456789}'
    units = {column.name: column.unit for column in json_fields([one]).columns}
    assert units == {
        "created_at": "seconds", "updatedAt": "milliseconds", "id": "", "dep_time": "", "ts": "microseconds",
        "ns": "nanoseconds",
    }  # fmt: skip
    sql = transform_sql(json_fields([one]), Source(topic="in", format="bytes"))
    assert "timestamp_seconds(created_at) END AS created_at_time" in sql
    assert "timestamp_millis(updatedAt) END AS updatedAt_time" in sql
    assert "timestamp_micros(ns div 1000) AS ns_time" in sql


def test_checks_are_warnings_with_counts_and_no_value_in_their_words() -> None:
    rows = [
        {
            "id": f"secret{n}", "kind": ["red", "blue"][n % 2], "rare": "often" if n else "once", "email": "a@b.c",
            "cents": n, "below": n - 1, "at": 1_767_225_600, **{f"c{i}": n for i in range(40)},
        }
        for n in range(200)
    ]  # fmt: skip
    checks = draft_checks(json_fields([json.dumps(row).encode() for row in rows]))
    assert len(checks) == MOST_CHECKS
    assert {check["severity"] for check in checks} == {"warning"}
    sets = {c["kwargs"]["column"]: c["kwargs"]["value_set"] for c in checks if "value_set" in c["kwargs"]}
    assert sets == {"kind": ["blue", "red"]}
    bounds = {check["kwargs"]["column"] for check in checks if "min_value" in check["kwargs"]}
    assert "cents" in bounds
    assert not bounds & {"below", "at", "id"}
    for check in checks:
        assert not any(word in check["description"] for word in ("secret", "red", "often", "a@b.c"))


def test_a_suite_has_a_check_whatever_the_sample() -> None:
    assert [check["type"] for check in draft_checks(of("null"))] == ["expect_column_to_exist"]
    tombstone = json_fields([b'{"a": 1, "b": 2}', None])
    assert [check["kwargs"].get("row_condition") for check in draft_checks(tombstone)] == [
        "`b` IS NOT NULL", "`a` IS NOT NULL"
    ]  # fmt: skip


@given(st.text())
def test_a_text_in_yaml_is_read_back(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text) or "\0" in text:
        return  # no file has these, and no column's name
    assert block(f"a: {scalar(text)}\n") == {"a": text}
    assert "\n" not in in_comment(text)


@pytest.mark.parametrize(
    "text", ["NO", "on", "null", "1", "1e3", "0x1F", "010", "~", "2026-01-01", "${HOME}", "a: b", "'"]
)
def test_a_text_that_yaml_could_misread_is_read_back(text: str, tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    check = {
        "type": "t",
        "severity": "warning",
        "description": text,
        "kwargs": {"column": text, "value_set": [text, 1]},
    }
    file.write_text(suite_yaml([check], 1))
    assert read_yaml(file)["expectations"] == [check]


def sample(*records: tuple[int, int | None]) -> Sample:
    """Records by partition and timestamp."""
    found = tuple(Sampled(partition, n, at, None, b"{}") for n, (partition, at) in enumerate(records))
    return Sample(Topic("t", "1", 2), found, (0, 0), (9, 9))


NOW = datetime(2026, 1, 10, tzinfo=UTC)
DAY = 86_400_000
TODAY = round(NOW.timestamp() * 1000)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([(0, TODAY - 3 * DAY), (0, TODAY - DAY), (1, TODAY - 2 * DAY)], []),
        ([(0, TODAY - 3 * DAY), (0, None), (1, TODAY - DAY)], ["1 of 3 sampled records have no timestamp"]),
        ([(0, TODAY - 3 * DAY), (1, TODAY + DAY)], ["1 of 2 sampled records have timestamps in the future"]),
        (
            [(0, TODAY - DAY), (0, TODAY - 3 * DAY)],
            [
                "In 1 place of the sample an older timestamp follows a newer one.*About 50 % \\(1 of 2 sampled records\\)"
            ],
        ),
        (
            [(0, TODAY - DAY + 5000), (0, TODAY - DAY), (0, TODAY)],
            [
                "In 1 place .* None of 3 sampled records would be in another interval than the interval of their timestamp"
            ],
        ),
        # Each of the four behind the newest is in the newest one's interval, though timestamps go back only twice.
        (
            [(0, TODAY - DAY), *[(0, TODAY - n * DAY) for n in (6, 5, 4)], (0, TODAY - 5 * DAY), (1, TODAY - 6 * DAY)],
            [r"In 2 places .* About 66.7 % \(4 of 6 sampled records\)"],
        ),
        # What is ahead of the clock ends no interval.
        (
            [(0, TODAY + DAY), (0, TODAY - DAY), (0, TODAY - DAY)],
            ["1 of 3 sampled records have timestamps in the future"],
        ),
        ([(0, TODAY - DAY), (1, TODAY - DAY)], ["All sampled records have the same timestamp"]),
        (
            [(0, TODAY - DAY), (1, TODAY - DAY + 5000)],
            ["have timestamps within 0:00:05, so they fall into one interval"],
        ),
    ],
)
def test_timestamps_that_cut_intervals_badly_are_told(times: list[tuple[int, int | None]], said: list[str]) -> None:
    found = list(doubts(sample(*times), Cron("0 0 * * *", "UTC"), NOW))
    assert len(found) == len(said)
    assert all(re.search(part, whole) for part, whole in zip(said, found, strict=True))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9))))
def test_the_extent_of_disorder_is_that_of_ranges_as_a_plan_cuts_them(halves: list[tuple[int, int]]) -> None:
    """Timestamps at midnights and noons. A day's range ends at the first record of each partition stamped at or after its end."""
    records = sorted(halves, key=lambda one: one[0])
    elsewhere = 0
    for partition in (0, 1):
        days = [half / 2 for p, half in records if p == partition]

        def first(day: int, days: list[float] = days) -> int:
            return next((n for n, at in enumerate(days) if at >= day), len(days))

        for day in range(6):
            elsewhere += sum(int(at) != day for at in days[first(day) : first(day + 1)])
    stamped = [(p, TODAY - 9 * DAY + half * DAY // 2) for p, half in records]
    found = [told for told in doubts(sample(*stamped), Cron("0 0 * * *", "UTC"), NOW) if "in another interval" in told]
    told = re.search(r"% \((\d+) of", found[0]) if found else None
    assert (int(told[1]) if told else 0) == elsewhere


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("order", ["orders", "shop.orders.v1"]),
        ("Orders", ["orders", "shop.orders.v1"]),
        ("ordres", ["orders"]),
        ("shop-orders-v1", ["shop.orders.v1", "orders"]),
        ("shop.orders.v1.dlq", ["shop.orders.v1", "orders"]),
        ("zzz", []),
    ],
)
def test_the_topics_that_somebody_may_have_meant_are_few_and_near(name: str, near: list[str]) -> None:
    topics = ["a", "clicks", "fencepost.orders.ledger", "orders", "payments", "shop.orders.v1"]
    assert near_topics(name, topics) == near


@pytest.fixture
def without_registry(tmp_path: Path) -> Pipeline:
    settings = "source: {topic: t, format: bytes}\noutput: {topic: o}\nschedule: {start: 2026-01-01}\n"
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "pipeline.yaml").write_text(f"{settings}kafka: {{bootstrap.servers: b:9092}}\n")
    (tmp_path / "p" / "transform.sql").write_text("SELECT value FROM source")
    (tmp_path / "p" / "expectations.yaml").write_text("")
    return load_pipeline(tmp_path / "p")


@pytest.mark.parametrize(
    ("asked", "values", "said"),
    [
        ({"format": "json"}, [b"\0\0\0\0\7abc"], "write \\(1\\). Leave out --format, because the registry says"),
        (
            {"format": "avro"},
            [b"\0\0\0\0\7abc"],
            "--format avro: no registry is named: name the registry of these records with",
        ),
        ({}, [b"\0\0\0\0\7abc"], "No registry is named: name the registry of these records"),
        (
            {"format": "avro"},
            [b"{}"],
            "none of the sampled values of topic t begins with a schema id.* Leave out --format",
        ),
        ({"subject": "s"}, [b'{"n": 1}'], "--subject s: the values of topic t are JSON objects.* Leave out --subject"),
        ({"subject": "s", "format": "json"}, [b'{"n": 1}'], "--subject s: format json uses no subject"),
        ({"subject": "s", "format": "bytes"}, [b"x"], "--subject s: format bytes uses no subject"),
    ],
)
def test_options_that_do_not_fit_the_values_are_refused_with_the_reason(
    asked: dict[str, str], values: list[bytes | None], said: str, without_registry: Pipeline
) -> None:
    connection = connection_of(None, ["bootstrap.servers=b:9092"], ())
    with pytest.raises(SettingsError, match=said):
        source_of(without_registry, DraftRequest("p", "t", **asked), connection, values)  # type: ignore[arg-type]


def test_every_column_has_its_type_in_spark_for_programs(without_registry: Pipeline) -> None:
    connection = connection_of(None, ["bootstrap.servers=b:9092"], ())
    _, fields = source_of(without_registry, DraftRequest("p", "t", format="bytes"), connection, [b"x"])
    assert [(c.output, c.sql, c.type) for c in fields.columns] == [("value", None, "binary")]
    assert spark_type(pa.struct([("at", pa.timestamp("us", tz="UTC")), ("on", pa.timestamp("us"))])) == (
        "struct<at:timestamp,on:timestamp_ntz>"
    )


@given(st.integers(0, 500), st.lists(st.integers(0, 200), max_size=8))
def test_shares_are_equal_as_far_as_sizes_allow(wanted: int, sizes: list[int]) -> None:
    shares = allot(wanted, sizes)
    assert sum(shares) == min(wanted, sum(sizes))
    assert all(0 <= share <= size for share, size in zip(shares, sizes, strict=True))
    short = [share for share, size in zip(shares, sizes, strict=True) if share < size]
    assert all(share <= min(short) + 1 for share in shares) if short else True


def test_a_secret_is_given_as_the_name_of_a_variable_or_not_at_all() -> None:
    found = connection_of(None, ["bootstrap.servers=b:9092", "sasl.password=${PW}"], ["url=http://r", "password=${X}"])
    assert block(found.kafka) == {"kafka": {"bootstrap.servers": "b:9092", "sasl.password": "${PW}"}}
    for kafka, registry in (
        (["sasl.password=hunter2"], []),
        (["ssl.key.pem=hunter2"], []),
        (["sasl.password=${PW:-hunter2}"], []),
        ([], ["token=hunter2"]),
    ):
        with pytest.raises(SettingsError, match="a secret") as raised:
            connection_of(None, kafka, registry)
        assert "hunter2" not in str(raised.value)
    for name, hint in (("sasl.pasword", r"sasl\.password\?"), ("ssl.providers", "allowed are|did you mean")):
        with pytest.raises(SettingsError, match=rf"--kafka {re.escape(name)}: unknown; .*{hint}") as raised:
            connection_of(None, [f"{name}=hunter2"], [])
        assert "hunter2" not in str(raised.value)
    with pytest.raises(SettingsError, match="not NAME=VALUE"):
        connection_of(None, ["bootstrap.servers"], [])
    with pytest.raises(SettingsError, match="--like takes all"):
        connection_of("x", ["bootstrap.servers=b:9092"], [])


def test_sections_of_another_pipeline_are_taken_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    section = "kafka:  # ours\n  bootstrap.servers: ${B}\n\n  # the password\n  sasl.password: ${PW}\n"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pipeline.yaml").write_text(f"source: {{topic: t}}\n{section}\noutput: {{topic: o}}\n")
    assert connection_of("other", (), ()).kafka == section
    (tmp_path / "other" / "pipeline.yaml").write_text(
        "kafka: &k {bootstrap.servers: b}\nspark: {spark.x: true, spark.n: 5}\n"
    )
    found = connection_of("other", (), ())
    assert block(found.kafka + found.spark) == {
        "kafka": {"bootstrap.servers": "b"},
        "spark": {"spark.x": True, "spark.n": 5},
    }


def test_counts_are_of_records() -> None:
    fields = json_fields([b'{"x": 1}', None, b"[1]", b"{"])
    assert (fields.records, fields.tombstones, fields.bad) == (4, 1, 2)
    assert Counter(fields.malformed)["not a JSON object"] == 1
