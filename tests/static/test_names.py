"""The names of the package: one class for each name, and none of the words that a newcomer would have to learn."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "include" / "fencepost"
FILES = sorted(PACKAGE.rglob("*.py"))
# They name no subject: whoever looks for one does not know that it is there.
VAGUE_MODULES = set(
    """aftermath asker base carried common core finding found given happening helpers here kept look looked lost misc settle
    shared stuff things told turns utils wanted words""".split()
)
# Private words that the code once had for what the glossary, Kafka, Spark or Airflow have a word for.
LEFT_BEHIND = set(
    """Again Aside Asker Circumstances Found GivenUp Held Judged Kept Look Looked Need News Notifying Past Sourced Standing Store
    StoreFound StoreRefused StoreUnavailable Told Traced Untold Wanted Wish Written Wrote
    aside begins_nothing circumstances commit_to_table found_of how_to_mend is_put judged_again known_written lacks look looked
    look_again mend of_any_job offsets_told reason_to_revise said_columns staged_at told told_also told_of untold
    what_is_lost what_is_no_column""".split()
)
# Words of older English, and docstrings that say nothing: the first group of a match is what the error shows.
LEFT_BEHIND_IN_TEXT = re.compile(
    r"\b([Aa]new|[Mm]end(?:s|ed|ing)?|told_also)\b|^(For a person\.|As above\.|Its name\.|The same\.)$"
)


def classes(tree: ast.Module) -> Iterator[str]:
    """A module's own classes, without private ones: those are read where they stand."""
    return (node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name():
                yield node.id, node.lineno
            case ast.Attribute():
                yield node.attr, node.lineno
            case ast.arg() | ast.keyword() if node.arg is not None:
                yield node.arg, node.lineno
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.alias():
                yield node.asname or node.name, node.lineno


def texts(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Docstrings and messages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {str(file.relative_to(PACKAGE)): ast.parse(file.read_text()) for file in FILES}


def test_no_two_classes_have_one_name(trees: dict[str, ast.Module]) -> None:
    places = defaultdict(list)
    for file, tree in trees.items():
        for name in classes(tree):
            places[name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_module_has_a_vague_name() -> None:
    assert [str(file.relative_to(PACKAGE)) for file in FILES if file.stem in VAGUE_MODULES] == []


def test_words_that_were_left_behind_name_nothing(trees: dict[str, ast.Module]) -> None:
    found = [
        f"{file}:{line}: {name}"
        for file, tree in trees.items()
        for name, line in identifiers(tree)
        if name.lstrip("_") in LEFT_BEHIND
    ]
    assert found == []


def test_words_that_were_left_behind_are_in_no_docstring_and_no_message(trees: dict[str, ast.Module]) -> None:
    found = [
        f"{file}:{line}: {match.group()}"
        for file, tree in trees.items()
        for text, line in texts(tree)
        if (match := LEFT_BEHIND_IN_TEXT.search(text.strip()))
    ]
    assert found == []
