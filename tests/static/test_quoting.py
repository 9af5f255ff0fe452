"""A name is quoted for Spark in one module: elsewhere a back-quote within the name would end the quotation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "include" / "fencepost"
QUOTING = PACKAGE / "formats" / "quoting.py"
# In these, back-quotes are Markdown's, or stand around a command in a message.
OTHERS = {PACKAGE / "airflow" / "dag.py", PACKAGE / "findings.py", PACKAGE / "model.py"}


def quotations(file: Path) -> Iterator[int]:
    """Yields the lines of texts in which a back-quote stands on both sides of a value."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            for before, value, after in zip(node.values, node.values[1:], node.values[2:], strict=False):
                texts = isinstance(before, ast.Constant) and isinstance(after, ast.Constant)
                if texts and isinstance(value, ast.FormattedValue) and _both_end_in_quotes(before, after):
                    yield node.lineno
        if isinstance(node, ast.Constant) and node.value == "``":
            yield node.lineno


def _both_end_in_quotes(before: ast.expr, after: ast.expr) -> bool:
    assert isinstance(before, ast.Constant)
    assert isinstance(after, ast.Constant)
    return str(before.value).endswith("`") and str(after.value).startswith("`")


def test_names_are_quoted_in_one_place() -> None:
    files = set(PACKAGE.rglob("*.py")) - OTHERS - {QUOTING}
    found = [f"{file.relative_to(PACKAGE)}:{line}" for file in sorted(files) for line in quotations(file)]
    assert found == []
    assert list(quotations(QUOTING)), "the test does not see what it looks for"
