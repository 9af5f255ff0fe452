"""What load_suite takes, and how it says no."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.config.pipeline import load_suite
from fencepost.errors import SettingsError
from fencepost.suite.declared import Severity

ONE = "- {type: expect_column_values_to_not_be_null, kwargs: {column: carrier}}"


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def put(text: str) -> Path:
        file = tmp_path / "expectations.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return put


def test_a_suite_is_read_in_order_with_defaults(write) -> None:  # type: ignore[no-untyped-def]
    suite = load_suite(
        write(
            "expectations:\n"
            + ONE
            + "\n- {type: expect_column_values_to_be_between, severity: warning, description: ' Late, not lost ',"
            " kwargs: {column: day, min_value: 2013-01-01, max_value: 2013-12-31T23:59:59Z}}"
        )
    )
    first, second = suite.expectations
    assert (first.index, first.severity, first.description) == (0, Severity.CRITICAL, "")
    assert first.title == "expect_column_values_to_not_be_null(carrier)"
    assert (second.severity, second.description) == (Severity.WARNING, "Late, not lost")
    assert second.kwargs["min_value"] == "2013-01-01"
    assert str(second.kwargs["max_value"]).startswith("2013-12-31T23:59:59")


def test_the_digest_follows_the_content_and_not_its_layout(write) -> None:  # type: ignore[no-untyped-def]
    plain = load_suite(write(f"expectations:\n{ONE}")).digest
    assert load_suite(write(f"# why\nexpectations:\n\n  {ONE}\n")).digest == plain
    changed = ONE.replace("carrier", "origin")
    assert load_suite(write(f"expectations:\n{changed}")).digest != plain
    assert load_suite(write(f"expectations:\n{ONE[:-1]}, severity: warning}}")).digest != plain


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a mapping with one field, expectations"),
        ("- a", "expected a mapping with one field, expectations"),
        ("expectations: []\nsuite: x", "expectations, suite"),
        ("expectations: []", "empty, so everything would pass"),
        ("expectations: {a: 1}", "expected a list"),
        ("expectations: [7]", "expectations.0: expected a mapping with type, severity, description, kwargs (found 7)"),
        ("expectations: [{kwargs: {}}]", "expectations.0.type: expected the name of an expectation"),
        ("expectations: [{type: not_null}]", "found 'not_null'"),
        (
            "expectations: [{type: expect_x, severty: warning}]",
            "severty: unknown field; allowed here are type, severity",
        ),
        ("expectations: [{type: expect_x, severty: warning}]", "did you mean severity?"),
        (
            "expectations: [{type: expect_x, severity: fatal}]",
            "allowed are critical, warning, quarantine (found 'fatal')",
        ),
        ("expectations: [{type: expect_x, severity: [critical]}]", "allowed are critical, warning"),
        ("expectations: [{type: expect_x, description: 5}]", "description: expected a text"),
        ("expectations: [{type: expect_x, kwargs: [a]}]", "kwargs: expected a mapping"),
        ("expectations: [{type: expect_x, kwargs: {1: a}}]", "field names are texts (found 1)"),
        ("expectations: [{type: expect_x, kwargs: {a: .nan}}]", "kwargs.a: nan is not a number that can be compared"),
        ("expectations: [{type: expect_x, kwargs: {severity: warning}}]", "write severity beside type"),
        ("expectations: [{type: expect_x, kwargs: {result_format: COMPLETE}}]", "result_format: not allowed"),
        ("expectations: [{type: expect_x, kwargs: {catch_exceptions: false}}]", "catch_exceptions: not allowed"),
        ("expectations: [{type: expect_x, kwargs: {condition_parser: pandas}}]", "always Spark SQL"),
        ("expectations: [{type: expect_x, kwargs: {a: }}]", "expectations.0 (expect_x): kwargs.a: left empty"),
        ("expectations: [{type: expect_x, kwargs: {mostly: 95}}]", "less than or equal to 1 (found 95)"),
        (
            "expectations: [{type: expect_column_values_to_be_unique, severity: quarantine, kwargs: {column: a}}]",
            "expectations.0.severity: quarantine is for checks of a single row: expect_column_pair_values_a_to_be_",
        ),
        (
            f"expectations:\n{ONE[:-2]}, mostly: 0.9}}, severity: quarantine}}",
            "mostly: not allowed with severity: quarantine",
        ),
        (
            "expectations:\n"
            + "".join(f"{ONE[:-1].replace('carrier', f'c{n}')}, severity: quarantine}}\n" for n in range(101)),
            "101 rules of severity quarantine; allowed are 100",
        ),
        (f"expectations:\n{ONE}\n{ONE}", "expectations.1: expect_column_values_to_not_be_null(carrier) is the same as"),
        ("expectations:\n- {type: expect_x, type: expect_y}", "line 2"),
        ("expectations: [", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_refused_with_file_field_and_finding(write, text: str, says: str) -> None:  # type: ignore[no-untyped-def]
    file = write(text)
    with pytest.raises(SettingsError) as error:
        load_suite(file)
    assert str(error.value).startswith(str(file))
    assert says in str(error.value)


def test_rules_of_severity_quarantine_are_numbered_among_themselves(write) -> None:  # type: ignore[no-untyped-def]
    rule = "- {type: expect_expression_to_be_true, severity: quarantine, kwargs: {expression: a > b}}"
    suite = load_suite(write(f"expectations:\n{ONE}\n{rule}"))
    assert [(r.index, r.type) for r in suite.rules] == [(1, "expect_expression_to_be_true")]


def test_a_doubled_declaration_is_refused_even_with_another_severity(write) -> None:  # type: ignore[no-untyped-def]
    """The one that is only a warning would otherwise hide that the other blocks."""
    with pytest.raises(SettingsError, match=r"is the same as expectations\.0"):
        load_suite(write(f"expectations:\n{ONE}\n{ONE[:-1]}, severity: warning}}"))


def test_a_missing_file_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        load_suite(tmp_path / "expectations.yaml")


def test_loading_a_suite_imports_neither_great_expectations_nor_spark() -> None:
    """Airflow's DAG processor does it every few seconds; the import alone takes five."""
    code = (
        "import sys, fencepost.suite.declared, fencepost.quality.gate, fencepost.quality.evaluation\n"
        "heavy = {'great_expectations', 'pyspark', 'pandas', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
