"""A file is read as YAML 1.2: what 1.1 takes for another value stays the text that it is."""

from __future__ import annotations

import warnings
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.loading import load_pipeline
from fencepost.config.strict_yaml import read_yaml
from fencepost.errors import SettingsError


def read(folder: Path, text: str) -> Any:
    file = folder / "some.yaml"
    file.write_text(text, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_yaml(file)


@pytest.mark.parametrize("header", ["", "%YAML 1.1\n---\n", "%YAML 1.2\n---\n"])
@pytest.mark.parametrize(
    "text",
    "NO no No yes Yes on OFF y n 12:30 1:2:3 1:30.5 190:20:30 1_000 1_0.5 0b11 -0x1F 1e 0o8 1. . ._ = 2026-1-1 1e+".split(),
)  # fmt: skip
def test_a_text_that_yaml_1_1_takes_for_something_else_is_a_text(tmp_path: Path, text: str, header: str) -> None:
    expected: Any = 1.0 if text == "1." else text
    assert read(tmp_path, f"{header}a: {text}\n") == {"a": expected}
    assert read(tmp_path, f"{header}[{text}]") == [expected]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("7", 7),
        ("-7", -7),
        ("0", 0),
        ("0.5", 0.5),
        ("-0.5", -0.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("0x1F", 31),
        ("0o17", 15),
        (".inf", float("inf")),
        ("'010'", "010"),
        ("2026-01-01", date(2026, 1, 1)),
    ],
)
def test_values_are_those_of_the_core_schema_and_dates(tmp_path: Path, text: str, value: Any) -> None:
    found = read(tmp_path, f"a: {text}\n")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["010", "-010", "007.5", "00", "09"])
def test_a_number_with_a_leading_zero_is_refused(tmp_path: Path, text: str) -> None:
    """To 1.1 it is another number, and 1.2 drops the zero of a post code or a password."""
    with pytest.raises(SettingsError, match=r"line 2: not valid YAML: a number begins with 0; .* quote the value"):
        read(tmp_path, f"b: 1\na: {text}\n")


@pytest.mark.parametrize(
    "text", ["2026-01-01T00:00:00+01:00", "2026-01-01 00:00:00 +01:00", "2025-12-31T23:00:00Z", "2025-12-31 23:00:00"]
)
def test_a_schedule_starts_at_the_moment_that_is_written(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(
        f"source: {{topic: in, schema: {{n: int}}}}\noutput: {{topic: out}}\nschedule:\n  start: {text}\n"
    )
    (folder / "transform.sql").write_text("SELECT 1")
    (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: n}}]")
    assert load_pipeline(folder).schedule.start == datetime(2025, 12, 31, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["a: 1\nb: {x: 1, x: 2}", "b: &b {x: 1}\na: {<<: *b, y: 1, y: 2}", "b: &b {x: 1}\na: {<<: *b, <<: *b}", "a: 1\n1: x\n1: y"],
)  # fmt: skip
def test_a_key_given_twice_is_refused_with_its_line_even_beside_a_merge(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"line \d: not valid YAML: (found )?duplicate"):
        read(tmp_path, text)


def test_merges_fill_in_what_is_not_there(tmp_path: Path) -> None:
    assert read(tmp_path, "b: &b {x: 1, y: 2}\na: {<<: *b, y: 3}") == {"b": {"x": 1, "y": 2}, "a": {"x": 1, "y": 3}}
