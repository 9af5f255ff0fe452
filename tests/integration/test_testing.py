"""`fencepost.testing`: rows in, rows and quarantine out, by the code that a run has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.errors import RecordRefused, SettingsError, TombstonesRefused
from fencepost.testing.trial import TransformResult, Trials

Make = Callable[..., Path]
names = count(1)
SUITE = """
expectations:
  - {type: expect_column_values_to_be_between, severity: quarantine, description: small, kwargs: {column: n, max_value: 9}}
  - {type: expect_column_values_to_not_be_null, severity: quarantine, kwargs: {column: name}}
"""
ONE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]"
ALL = "SELECT * EXCEPT (_topic, _partition, _offset, _timestamp, _tombstone, _headers) FROM {source}"


@pytest.fixture(scope="module")
def run(spark: Any) -> Iterator[Trials]:
    """The fixture's own object, on the session that the tests share."""
    with Trials() as trials:
        yield trials


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(transform: str, suite: str = ONE, **sections: Any) -> Path:
        folder = tmp_path / f"t{next(names)}"
        folder.mkdir()
        settings = {
            "source": {"topic": "in", "schema": {"n": "int not null", "name": "string"}},
            "output": {"topic": "out", "key": "_key"},
            "schedule": {"start": "2026-01-01"},
            "kafka": {"bootstrap.servers": "${NOWHERE_SET}", "sasl.password": "${NOR_THIS}"},
        }
        for section, values in sections.items():
            settings[section] = {**settings.get(section, {}), **values}
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
        (folder / ("transform.sql" if transform.lstrip().startswith("SELECT") else "transform.py")).write_text(
            transform
        )
        (folder / "expectations.yaml").write_text(suite)
        return folder

    return made


def test_rows_of_each_kind_keep_their_order_and_each_goes_where_a_run_sends_it(run: Trials, make: Make) -> None:
    folder = make("SELECT _key, _record, n, name, _tombstone FROM {source}", SUITE)
    rows = [
        {"n": 1, "name": "a", "_key": "k"},
        b'{"n": 2, "name": "b"}',
        {"n": 10, "name": "c"},
        b"no json",
        {"_value": b'{"n": 3, "name": "d"}', "_key": b"raw"},
        {"n": 4},
        b'{"name": "without n"}',
    ]
    outcome = run(folder, rows)
    assert outcome.rows == [{"n": 1, "name": "a"}, {"n": 2, "name": "b"}, {"n": 3, "name": "d"}]
    assert outcome.keys == [b"k", None, b"raw"]
    aside = {one.given: (one.rule, one.reason, one.row) for one in outcome.quarantined}
    assert set(aside) == {2, 3, 5, 6}
    assert aside[2] == ("expect_column_values_to_be_between(n)", "small", {"n": 10, "name": "c"})
    assert aside[5][0] == "expect_column_values_to_not_be_null(name)"
    assert (aside[3][0], aside[3][2], aside[6][0]) == ("malformed", None, "malformed")
    assert run(folder, []) == TransformResult()


TYPES = {
    "b": "binary",
    "d": "date",
    "t": "timestamp",
    "l": "timestamp_ntz",
    "m": "decimal(10,2)",
    "x": "double",
    "a": "array<int>",
    "s": "struct<u: int, v: array<string>>",
    "o": "map<string, bigint>",
    "y": "boolean",
}


def test_a_value_of_each_type_comes_through(run: Trials, make: Make) -> None:
    folder = make(ALL, source={"schema": TYPES, "headers": True}, output={"key": None})
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    given = {
        "b": b"\x00\xff",
        "d": date(2026, 1, 1),
        "t": noon,
        "l": noon.replace(tzinfo=None),
        "m": Decimal("1.50"),
        "x": 2.5,
        "a": [1, None],
        "s": {"u": 1, "v": ["p"]},
        "o": {"k": 7},
        "y": True,
    }
    texts = {
        "d": "2026-01-01",
        "t": "2026-01-01T13:00+01:00",
        "l": "2026-01-01T12:00",
        "m": "1.5",
        "x": 2,
        "s": {"u": 1},
    }
    outcome = run(folder, [given, {**given, **texts}, {}])
    assert outcome.rows[0] == given
    assert outcome.rows[1] == {**given, "x": 2.0, "s": {"u": 1, "v": None}}
    assert outcome.rows[2] == dict.fromkeys(TYPES), "what is missing is null"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"n": 1, "nme": "a"}, "row 1: no field 'nme' in the source; it has n, name"),
        ({"n": "1"}, "row 1: n: '1' is no int"),
        ({"n": True}, "row 1: n: True is no int"),
        ({"n": 2**31}, "row 1: n: 2147483648 is beyond a int"),
        ({"name": 1}, "row 1: name: 1 is no string"),
        ({"_value": b"", "n": 1}, "row 1: _value is the whole value"),
        ({"_partition": "x"}, "row 1: _partition: 'x' is no int"),
    ],
)
def test_a_row_that_the_source_cannot_have_is_refused_by_name(
    run: Trials, make: Make, row: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        run(make("SELECT n FROM {source}", output={"key": None}), [{"n": 1}, row])
    assert words in str(refused.value)


MEETS = """
SELECT n, _key AS k, _topic AS t, _partition AS p, _offset AS o, unix_millis(_timestamp) AS ms, size(_headers) AS h, _tombstone
FROM {source}
"""


def test_metadata_are_what_the_test_gives(run: Trials, make: Make) -> None:
    folder = make(MEETS, source={"headers": True, "tombstones": "pass"}, output={"key": None})
    at = datetime(2026, 2, 3, tzinfo=UTC)
    told = {"_key": "k", "_topic": "other", "_partition": 3, "_offset": 99, "_timestamp": at, "_headers": [("a", b"1")]}
    expected = {"k": b"k", "t": "other", "p": 3, "o": 99, "ms": round(at.timestamp() * 1000), "h": 1}
    by_field, by_bytes, tombstone = run(folder, [{"n": 1, **told}, {"_value": '{"n": 1}', **told}, None]).rows
    assert by_field == by_bytes == {"n": 1, **expected}
    assert tombstone is None


def test_tombstones_are_refused_or_counted_as_the_settings_say(run: Trials, make: Make) -> None:
    rows = [{"n": 1}, None, {"_value": None, "_key": "k"}]
    plain = "SELECT n FROM {source}"
    with pytest.raises(TombstonesRefused, match=r"row 1: a tombstone, and source\.tombstones is fail"):
        run(make(plain, output={"key": None}), rows)
    outcome = run(make(plain, source={"tombstones": "drop"}, output={"key": None}), rows)
    assert (outcome.rows, outcome.tombstones, outcome.quarantined) == ([{"n": 1}], 2, [])
    with pytest.raises(SettingsError, match="no column _tombstone"):
        run(make(plain, source={"tombstones": "pass"}, output={"key": None}), [{"n": 1}])
    with pytest.raises(SettingsError, match="column _TOMBSTONE of type boolean"):
        run(make("SELECT n, true AS _TOMBSTONE FROM {source}", output={"key": None}), [{"n": 1}])


@pytest.mark.parametrize(
    ("column", "setting"),
    [
        ("_op", "source.envelope: debezium"),
        ("_OP", "source.envelope: debezium"),
        ("_source.ts", "source.envelope: debezium"),
        ("_headers", "source.headers: true"),
        ("_lookback", "source.lookback"),
        ("_opened", None),
    ],
)
def test_a_column_that_a_setting_would_give_is_refused_with_the_setting(
    run: Trials, make: Make, column: str, setting: str | None
) -> None:
    folder = make("SELECT n, COLUMN AS x FROM {source}".replace("COLUMN", column), output={"key": None})
    with pytest.raises(SettingsError) as refused:
        run(folder, [{"n": 1}])
    name = column.split(".")[0].lower()
    said = f"The source has the column {name} with {setting} in {folder / 'pipeline.yaml'}."
    assert str(refused.value).endswith(said) == (setting is not None)
    assert "UNRESOLVED_COLUMN" in str(refused.value)


def test_a_source_record_is_refused_with_the_suite_that_would_give_it(run: Trials, make: Make) -> None:
    folder = make("SELECT n, _record FROM {source}", output={"key": None})
    said = rf"The source has the column _record if {folder}/expectations\.yaml has an expectation of severity quarantine\.$"
    with pytest.raises(SettingsError, match=said):
        run(folder, [{"n": 1}])


def test_a_flattened_deletion_becomes_a_row_of_a_table_as_its_page_says(run: Trials, make: Make) -> None:
    page = (Path(__file__).parents[2] / "docs" / "change-data.md").read_text()
    (select,) = [line for line in page.splitlines() if line.startswith("SELECT _key_id AS id")]
    source = {"schema": {"id": "bigint not null", "email": "string"}, "tombstones": "pass"}
    source |= {"key_format": "json", "key": {"id": "bigint not null"}}
    folder = make(select, source=source, output={"key": None})
    key = '{"id":7}'
    found = run(folder, [{"_value": '{"id":7,"email":"e"}', "_key": key}, {"_value": None, "_key": key}]).rows
    assert found == [
        {"id": 7, "email": "e", "is_deleted": False, "source_offset": 0},
        {"id": 7, "email": None, "is_deleted": True, "source_offset": 1},
    ]


def test_metadata_that_a_test_does_not_give_are_those_of_a_record_at_its_position(run: Trials, make: Make) -> None:
    folder = make(MEETS, source={"headers": True}, output={"key": None})
    start = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    by_field, by_bytes = run(folder, [{"n": 1}, b'{"n": 1}']).rows
    assert by_field == {"n": 1, "k": None, "t": "in", "p": 0, "o": 0, "ms": start, "h": None}
    assert by_bytes == {**by_field, "o": 1}


NESTED = {"s": "struct<u: int>", "a": "array<string>", "l": "timestamp_ntz", "o": "map<string, int>", "t": "timestamp"}


def test_what_is_within_a_value_is_checked_too(run: Trials, make: Make) -> None:
    folder = make("SELECT s, a, l, o, t FROM {source}", source={"schema": NESTED}, output={"key": None})
    for row, words in (
        ({"s": {"v": 1}}, "s: no field 'v'; it has u"),
        ({"s": {"u": "1"}}, "s.u: '1' is no int"),
        ({"a": "text"}, "a: 'text' is no array<string>"),
        ({"a": ["x", 1]}, "a[1]: 1 is no string"),
        ({"o": {"k": 1.5}}, "o['k']: 1.5 is no int"),
        (
            {"l": datetime(2026, 1, 1, tzinfo=UTC)},
            "l: datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc) is no",
        ),
    ):
        with pytest.raises(SettingsError) as refused:
            run(folder, [row])
        assert words in str(refused.value)
    (row,) = run(folder, [{"t": datetime(2026, 1, 1, 12, tzinfo=UTC).replace(tzinfo=None)}]).rows
    assert row is not None
    assert row["t"] == datetime(2026, 1, 1, 12, tzinfo=UTC), "without a zone a time is UTC"


def test_a_record_with_one_bad_row_is_quarantined_whole(run: Trials, make: Make) -> None:
    twice = "SELECT _key, _record, x AS n, name FROM {source} LATERAL VIEW explode(array(n, n * 10)) t AS x"
    outcome = run(make(twice, SUITE), [{"n": 0, "name": "a"}, {"n": 5, "name": "b"}, {"n": 6}])
    assert [row and row["n"] for row in outcome.rows] == [0, 0]
    assert [(one.given, one.row and one.row["n"]) for one in outcome.quarantined] == [(1, 50), (2, 60)]
    assert {one.reason for one in outcome.quarantined} == {"small"}, "the first rule that a row of the record fails"
    assert outcome.withheld == 2


def test_records_of_two_partitions_with_one_offset_are_two_and_a_position_is_that_among_the_rows(
    run: Trials, make: Make
) -> None:
    twice = "SELECT _key, _record, x AS n, name FROM {source} LATERAL VIEW explode(array(n, n * 10)) t AS x"
    given = [
        {"n": 0, "name": "a", "_partition": 0, "_offset": 9},
        {"n": 5, "name": "b", "_partition": 1, "_offset": 9},
        {"_value": b"no json", "_offset": 7},
    ]
    outcome = run(make(twice, SUITE), given)
    assert [row and row["n"] for row in outcome.rows] == [0, 0]
    assert [(one.rule.split("(")[0], one.given) for one in outcome.quarantined] == [
        ("malformed", 2),
        ("expect_column_values_to_be_between", 1),
    ]
    assert outcome.withheld == 1


def test_a_rules_sql_is_read_by_the_pipelines_settings(run: Trials, make: Make) -> None:
    """Under ANSI, which is the default, Spark knows no such cast."""
    suite = """
expectations:
  - {type: expect_expression_to_be_true, severity: quarantine, kwargs: {expression: "n < 3 OR cast(n > 9 AS timestamp) IS NULL"}}
"""
    plain = "SELECT _record, n FROM {source}"
    loose = make(plain, suite, output={"key": None}, spark={"spark.sql.ansi.enabled": "false"})
    outcome = run(loose, [{"n": 1}, {"n": 5}])
    assert (outcome.rows, [one.given for one in outcome.quarantined]) == ([{"n": 1}], [1])
    with pytest.raises(SettingsError, match="CAST"):
        run(make(plain, suite, output={"key": None}), [{"n": 1}])


def test_what_would_fail_a_run_fails_here(run: Trials, make: Make) -> None:
    shuffles = make("SELECT n, count(*) AS c FROM {source} GROUP BY n", output={"key": None})
    with pytest.raises(SettingsError, match=r"output\.layout: source"):
        run(shuffles, [{"n": 1}])
    small = "SELECT n, x FROM {source} JOIN (VALUES ('a', 7)) AS c (name, x) USING (name)"
    assert run(make(small, output={"key": None}), [{"n": 1, "name": "a"}]).rows == [{"n": 1, "x": 7}], "no shuffle"
    grouped = make("SELECT n, count(*) AS c FROM {source} GROUP BY n", output={"key": None, "layout": "output"})
    assert run(grouped, [{"n": 1}, {"n": 1}]).rows == [{"n": 1, "c": 2}]
    with pytest.raises(SettingsError, match="gives no column 'id'"):
        run(make("SELECT n FROM {source}", output={"key": "id"}), [{"n": 1}])


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


def test_a_registrys_schema_comes_from_a_file(run: Trials, make: Make, tmp_path: Path) -> None:
    folder = make(
        "SELECT id, note FROM {source}",
        source={"format": "avro", "schema": {}},
        output={"format": "avro", "key": None},
        schema_registry={"url": "${REGISTRY}"},
    )
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    with pytest.raises(SettingsError, match="give a file that has it as schema="):
        run(folder, [{"id": 1}])
    with pytest.raises(SettingsError, match="schema: the source's schema is in no registry"):
        run(make("SELECT n FROM {source}", output={"key": None}), [{"n": 1}], schema=file)
    framed = b"\x00\x00\x00\x00\x01" + b"\x04\x02\x02x"  # id 2 and a note, "x"
    outcome = run(folder, [{"id": 1}, framed, b"\x00\x00\x00\x00\x09\x04\x00"], schema=file)
    assert outcome.rows == [{"id": 1, "note": None}, {"id": 2, "note": "x"}]
    narrow = tmp_path / "narrow.avsc"
    narrow.write_text(
        json.dumps({**ORDER, "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}]})
    )
    with pytest.raises(RecordRefused, match="note"):
        run(folder, [{"id": 1}], schema=file, output_schema=narrow)


def test_a_field_of_the_source_that_would_not_be_written_is_refused_as_a_run_refuses_it(
    run: Trials, make: Make, tmp_path: Path
) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(
        json.dumps({**ORDER, "fields": [{"name": "id", "type": "long"}, {"name": "_note", "type": "string"}]})
    )
    source, registry = {"format": "avro", "schema": {}}, {"url": "${REGISTRY}"}
    folder = make("SELECT id, _note FROM {source}", source=source, output={"key": None}, schema_registry=registry)
    with pytest.raises(SettingsError, match="its result has _note from the source's value"):
        run(folder, [{"id": 1, "_note": "x"}], schema=file)
    named = make(
        "SELECT id, _note AS note FROM {source}", source=source, output={"key": None}, schema_registry=registry
    )
    assert run(named, [{"id": 1, "_note": "x"}], schema=file).rows == [{"id": 1, "note": "x"}]


def test_no_trial_meets_what_another_one_set(run: Trials, make: Make) -> None:
    sets = """
def transform(frame):
    assert frame.sparkSession.conf.get("my.setting", "") == ""
    frame.sparkSession.conf.set("my.setting", "1")
    return frame.select("n")
"""
    folder = make(sets, output={"key": None}, spark={"spark.sql.session.timeZone": "UTC"})
    assert run(folder, [{"n": 1}]).rows == run(folder, [{"n": 1}]).rows == [{"n": 1}]


def test_settings_of_spark_sql_are_the_pipelines(run: Trials, make: Make) -> None:
    """Under ANSI, which is the default, this would be an error."""
    folder = make(
        "SELECT int(name) AS n FROM {source}", output={"key": None}, spark={"spark.sql.ansi.enabled": "false"}
    )
    assert run(folder, [{"n": 1, "name": "x"}]).rows == [{"n": None}]


NOT_USED = """
import sys
def test_nothing():
    heavy = [n for n in ("pyspark", "great_expectations", "pydantic", "pyarrow", "airflow") if n in sys.modules]
    assert not heavy, heavy
def test_the_fixture_is_there(request):
    assert request._fixturemanager.getfixturedefs("fencepost_transform", request.node)
"""


def test_the_plugin_imports_nothing_heavy_before_its_fixture_is_used(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(NOT_USED)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "-W", "error", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
