"""A transform takes each source and every side table of its pipeline, and nothing else. It is checked before Spark starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.doctor.folder import check_transform
from fencepost.errors import SettingsError

IN_PY = "in pipeline.yaml is for the transform. Write transform(source, airlines, rates), or remove the table."
IN_SQL = "in pipeline.yaml is for the transform. Select from airlines, or remove the table."


def pipeline_with(
    folder: Path, transform: str, tables: tuple[str, ...] = ("airlines", "rates"), sources: tuple[str, ...] = ()
) -> Any:
    """A pipeline with this transform. Without `sources` it has one, which has no name."""
    file = folder / ("transform.py" if transform.startswith("def") else "transform.sql")
    file.write_text(transform)
    return SimpleNamespace(
        name="paid",
        folder=folder,
        transform_file=file,
        tables=dict.fromkeys(tables),
        source=None if sources else object(),
        several=dict.fromkeys(sources),
    )


def refusal(pipeline: Any) -> str:
    """What is said of the transform, without the file's name."""
    with pytest.raises(SettingsError) as raised:
        check_transform(pipeline)
    return str(raised.value).removeprefix(f"{pipeline.transform_file}: ")


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


SOURCES = ("orders", "payments")
WRITE = "Write transform(orders, payments, rates), or remove the"
NO_ORDERS = (
    f"transform has no argument orders, and sources.orders in pipeline.yaml is for the transform. {WRITE} source."
)


def takes(folder: Path, arguments: str) -> Any:
    return pipeline_with(folder, f"def transform({arguments}):\n    return None\n", ("rates",), SOURCES)


@pytest.mark.parametrize(
    "arguments",
    [
        "orders, payments, rates",
        "rates, payments, orders",
        "*, orders, payments, rates",
        "orders, payments=None, rates=None",
        "orders, payments, rates, limit=3, *more",
        "limit=3, /, *, orders, payments, rates",
        "**frames",
        "orders, **others",
    ],
)
def test_several_sources_are_arguments_by_name_like_side_tables(tmp_path: Path, arguments: str) -> None:
    check_transform(takes(tmp_path, arguments))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("", NO_ORDERS),
        ("source, payments, rates", NO_ORDERS),
        ("*frames", NO_ORDERS),
        ("orders, /, payments, rates", NO_ORDERS),
        (
            "orders, rates",
            f"transform has no argument payments, and sources.payments in pipeline.yaml is for the transform. {WRITE} source.",
        ),
        (
            "orders, payments",
            f"transform has no argument rates, and tables.rates in pipeline.yaml is for the transform. {WRITE} table.",
        ),
        *(
            (
                arguments,
                "transform has the argument refunds, for which pipeline.yaml has neither a source nor a side table. The sources "
                "are orders, payments. The side tables are rates. Add sources.refunds or tables.refunds, or remove the argument.",
            )
            for arguments in ("orders, payments, rates, refunds", "refunds, /, orders, payments, rates")
        ),
    ],
)
def test_another_signature_for_several_sources_is_refused_with_the_one_to_write(
    tmp_path: Path, arguments: str, why: str
) -> None:
    assert refusal(takes(tmp_path, arguments)) == why


def test_an_argument_that_cannot_be_given_by_name_is_refused_for_one_source_too(tmp_path: Path) -> None:
    pipeline = pipeline_with(tmp_path, "def transform(source, more, /):\n    return None\n", ())
    assert refusal(pipeline).startswith("transform has the argument more, for which pipeline.yaml has no side table.")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM orders JOIN payments USING (n)",
        "SELECT * FROM Orders JOIN `payments` USING (n)",
        "WITH o AS (SELECT * FROM orders) SELECT * FROM o UNION ALL SELECT * FROM payments",
        "SELECT '{source}' AS braces FROM orders JOIN payments USING (n) -- not {source}",
    ],
)
def test_several_sources_are_views_of_their_names(tmp_path: Path, sql: str) -> None:
    check_transform(pipeline_with(tmp_path, sql, (), SOURCES))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM orders",
        "SELECT * FROM orders -- JOIN payments USING (n)",
        "SELECT * FROM orders /* JOIN\npayments USING (n) */",
        "SELECT 'payments' AS kind FROM orders",
        "SELECT * FROM orders JOIN payments_of_today USING (n)",
    ],
)
def test_a_source_that_is_in_a_comment_or_a_text_only_is_not_read(tmp_path: Path, sql: str) -> None:
    assert refusal(pipeline_with(tmp_path, sql, (), SOURCES)) == (
        "it does not read the view payments, and sources.payments in pipeline.yaml is for the transform. Select from "
        "payments, or remove the source."
    )


def test_sql_of_several_sources_has_no_table_without_a_name(tmp_path: Path) -> None:
    assert refusal(pipeline_with(tmp_path, "SELECT * FROM {source} JOIN payments USING (n)", (), SOURCES)) == (
        "it selects from {source}, and pipeline.yaml has several sources. Select from their names: orders, payments."
    )
    assert (
        refusal(pipeline_with(tmp_path, "-- later", (), SOURCES)) == "empty; expected a SELECT from orders, payments."
    )
