"""What is particular to a kind of output is in its package. No other module of the product asks what kind an output is."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import BaseModel

from fencepost.config.output_settings import OutputSettings
from fencepost.model import PlannedOutput, Publication
from fencepost.output_kinds import OUTPUT_KINDS, part_of

PACKAGE = Path(__file__).parents[2] / "include" / "fencepost"
BASES: tuple[tuple[type, str, str], ...] = (
    (OutputSettings, "settings", "SETTINGS"),
    (PlannedOutput, "values", "PLANNED"),
    (Publication, "values", "PUBLICATION"),
)
# Rooms of the kinds, and of what holds for several of them.
OWN = {"outputs/table", *("/".join(package.split(".")[1:]) for package in OUTPUT_KINDS.values())}
# What holds an output's settings, or a plan: what is asked of its `output` has to hold for every kind.
HOLDERS = {"pipeline", "_pipeline", "plan", "settings", "other"}


def classes_of_kinds() -> set[str]:
    """The names of all classes in the packages of the kinds."""
    found = set()
    for room in OWN:
        for file in (PACKAGE / room).glob("*.py"):
            found |= {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)}
    return found


def fields_of_kinds() -> set[str]:
    """What settings and frozen values of some kind have, and not those of every kind."""
    found = set[str]()
    for base, module, name in BASES:
        for kind in OUTPUT_KINDS:
            found |= _public(part_of(kind, module, name)) - _public(base)
    return found


def _public(model: type) -> set[str]:
    fields = set(model.model_fields) if issubclass(model, BaseModel) else set[str]()
    return fields | {name for name, _ in inspect.getmembers(model) if not name.startswith("_")}


CLASSES, FIELDS = classes_of_kinds(), fields_of_kinds()


def questions(source: str) -> Iterator[tuple[int, str]]:
    """Where a module asks what kind an output is, or does what only one kind can answer: the line, and what it does there."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str() as module) if _is_of_a_kind(module):
                yield node.lineno, f"imports {module}"
            case ast.Import(names=names) if any(_is_of_a_kind(name.name) for name in names):
                yield node.lineno, "imports a kind's package"
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]) if _names(asked) & CLASSES:
                yield node.lineno, f"asks for {', '.join(sorted(_names(asked) & CLASSES))}"
            case ast.MatchClass(cls=asked) if _names(asked) & CLASSES:
                yield node.lineno, f"matches {', '.join(sorted(_names(asked) & CLASSES))}"
            case ast.Compare(left=left, comparators=others) if _names_a_kind((left, *others)):
                yield node.lineno, "compares a kind with a name"
            case ast.Compare(left=ast.Attribute(attr="table"), comparators=[ast.Constant(value=None)]):
                yield node.lineno, "infers the kind from a table"
            case ast.Match(subject=ast.Attribute(attr="kind"), cases=cases) if any(map(_is_kind, _constants(cases))):
                yield node.lineno, "matches a kind with a name"
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str() as name), *_]) if (
                name in FIELDS
            ):
                yield node.lineno, f"asks for {name} by its name"
            case ast.Attribute(value=ast.Attribute(value=holder, attr="output"), attr=name) if (
                name in FIELDS and _last(holder) in HOLDERS
            ):
                yield node.lineno, f"asks {_last(holder)}.output for {name}"
            case ast.Call(func=ast.Name(id="part_of" | "has_part"), args=[ast.Constant(), *_]):
                yield node.lineno, "takes a part of one kind"


def _is_of_a_kind(module: str) -> bool:
    return f"{module}.".startswith(tuple(f"fencepost.{room.replace('/', '.')}." for room in OWN))


def _names(node: ast.AST) -> set[str]:
    """The names in an expression: of an attribute the last one."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} | {
        one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)
    }


def _names_a_kind(sides: tuple[ast.expr, ...]) -> bool:
    is_asked = any(isinstance(side, ast.Attribute) and side.attr == "kind" for side in sides)
    return is_asked and any(map(_is_kind, _constants(sides)))


def _constants(nodes: object) -> Iterator[object]:
    for node in nodes if isinstance(nodes, list | tuple) else ():
        yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))


def _is_kind(value: object) -> bool:
    return isinstance(value, str) and value in OUTPUT_KINDS


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def others() -> list[Path]:
    """The modules outside of the kinds' packages."""
    own = tuple(f"{PACKAGE / room}/" for room in OWN)
    return [file for file in sorted(PACKAGE.rglob("*.py")) if not str(file).startswith(own)]


def test_no_module_outside_of_the_kinds_asks_what_kind_an_output_is() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {what}"
        for file in others()
        for line, what in questions(file.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(output, TopicOutput)",
        "isinstance(pipeline.output, TopicSettings | PostgresSettings)",
        "issubclass(one, values.PostgresPublication)",
        "match batch.publication:\n case TablePublication(): pass",
        "match plan.output:\n case TopicOutput(topic=t): pass",
        "output.kind == 'topic'",
        "'postgres' != plan.output.kind",
        "pipeline.output.kind in ('topic', 'other')",
        "match pipeline.output.kind:\n case 'topic': pass",
        "pipeline.output.topic is not None",
        "announcement.table is None",
        "self.pipeline.output.publish == 'staged'",
        "batch.plan.output.table",
        "getattr(output, 'topic', None)",
        "hasattr(pipeline.output, 'table')",
        "from fencepost.outputs.postgres.output import PostgresTable",
        "from fencepost.outputs.table.values import TableOutput",
        "import fencepost.outputs.topic.values",
        "part_of('topic', 'values', 'PLANNED')",
    ],
)
def test_a_question_about_the_kind_is_found(code: str) -> None:
    assert [*questions(code)] != []


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(value, Mapping)",
        "pipeline.output.records.format",
        "pipeline.output.name",
        "batch.plan.output.description",
        "written.output.topic",
        "part_of(kind, 'values', 'PLANNED')",
        "column.kind == 'integer'",
    ],
)
def test_what_holds_for_every_kind_may_be_asked(code: str) -> None:
    assert [*questions(code)] == []


@pytest.mark.parametrize("kind", OUTPUT_KINDS)
def test_a_kind_has_what_the_list_of_kinds_promises(kind: str) -> None:
    for base, module, name in BASES:
        found = part_of(kind, module, name)
        assert issubclass(found, base)
        assert found.model_fields["kind"].annotation.__args__ == (kind,)
    assert isinstance(part_of(kind, "values", "PUBLICATION").is_unseen, bool), (
        "whether readers see a publication's beginning"
    )
    assert callable(import_module(f"{OUTPUT_KINDS[kind]}.reader").read_rows)
    assert callable(part_of(kind, "output", "OUTPUT"))


def test_a_publication_has_no_default_for_what_its_readers_see() -> None:
    """With one, a kind that says nothing could be skipped as if nobody had seen anything of a half published batch."""
    assert not hasattr(Publication, "is_unseen")
