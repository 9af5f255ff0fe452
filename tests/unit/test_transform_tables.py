"""A transform takes the source and every side table of its pipeline, and nothing else. It is checked before Spark starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.doctor.folder import check_transform
from fencepost.errors import SettingsError

IN_PY = "in pipeline.yaml is for the transform. Write transform(source, airlines, rates), or remove the table."
IN_SQL = "in pipeline.yaml is for the transform. Select from airlines, or remove the table."


def pipeline_with(folder: Path, transform: str, tables: tuple[str, ...] = ("airlines", "rates")) -> Any:
    file = folder / ("transform.py" if transform.startswith("def") else "transform.sql")
    file.write_text(transform)
    return SimpleNamespace(name="orders", folder=folder, transform_file=file, tables=dict.fromkeys(tables))


@pytest.mark.parametrize(
    "arguments",
    [
        "source, airlines, rates",
        "frame, rates, airlines",
        "frame, *, airlines, rates",
        "frame, airlines, rates, limit=3",
        "frame, **tables",
    ],
)
def test_the_first_argument_is_the_source_and_the_tables_follow_in_any_order(tmp_path: Path, arguments: str) -> None:
    check_transform(pipeline_with(tmp_path, f"def transform({arguments}):\n    return None\n"))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("source, airlines", f"transform has no argument rates, and tables.rates {IN_PY}"),
        ("source", f"transform has no argument airlines, and tables.airlines {IN_PY}"),
        ("", f"transform has no argument airlines, and tables.airlines {IN_PY}"),
        (
            "source, airlines, /, rates",
            f"transform has no argument airlines, and tables.airlines {IN_PY}",
        ),  # not by name
        (
            "source, airlines, rates, ports",
            "transform has the argument ports, for which pipeline.yaml has no side table. The side tables are airlines, rates. "
            "Add tables.ports, or remove the argument.",
        ),
        (
            "airlines, rates",
            "the first argument of transform is the source, and airlines is the name of a side table. Write transform(source, "
            "airlines, rates), or rename the table in pipeline.yaml.",
        ),
    ],
)
def test_another_signature_is_refused_with_the_one_to_write(tmp_path: Path, arguments: str, why: str) -> None:
    pipeline = pipeline_with(tmp_path, f"def transform({arguments}):\n    return None\n")
    with pytest.raises(SettingsError) as raised:
        check_transform(pipeline)
    assert str(raised.value) == f"{tmp_path}/transform.py: {why}"


def test_without_side_tables_a_second_argument_is_refused(tmp_path: Path) -> None:
    check_transform(pipeline_with(tmp_path, "def transform(source):\n    return source\n", ()))
    with pytest.raises(SettingsError) as raised:
        check_transform(pipeline_with(tmp_path, "def transform(source, airlines):\n    return source\n", ()))
    assert str(raised.value) == (
        f"{tmp_path}/transform.py: transform has the argument airlines, for which pipeline.yaml has no side table. It has no "
        "side tables. Add tables.airlines, or remove the argument."
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM {source} JOIN airlines USING (carrier)",
        "SELECT * FROM {source} JOIN AIRLINES USING (carrier)",
        "SELECT * FROM {source} JOIN `airlines` USING (carrier)",
        "SELECT '--' AS dashes FROM {source} JOIN airlines USING (carrier)",
    ],
)
def test_sql_reads_a_view_of_the_name(tmp_path: Path, sql: str) -> None:
    check_transform(pipeline_with(tmp_path, sql, ("airlines",)))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM {source}",
        "SELECT 'airlines' AS kind FROM {source}",
        'SELECT "airlines" AS kind FROM {source}',
        "SELECT r'airlines' AS kind FROM {source}",
        "SELECT * FROM {source} -- JOIN airlines USING (carrier)",
        "SELECT * FROM {source} /* JOIN\nairlines USING (carrier) */",
        "SELECT * FROM {source} JOIN airlines_old USING (carrier)",
    ],
)
def test_sql_that_has_the_name_only_in_data_or_in_another_name_is_refused(tmp_path: Path, sql: str) -> None:
    with pytest.raises(SettingsError) as raised:
        check_transform(pipeline_with(tmp_path, sql, ("airlines",)))
    assert (
        str(raised.value)
        == f"{tmp_path}/transform.sql: it does not read the view airlines, and tables.airlines {IN_SQL}"
    )
