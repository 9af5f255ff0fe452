"""What is particular to a kind of output is in its package. No other module of the product asks what kind an output is."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import pytest
from jinja2 import Environment, nodes
from pydantic import BaseModel

from fencepost.config.output_settings import OutputSettings, settings_of
from fencepost.model import PlannedOutput, Publication
from fencepost.output_kinds import OUTPUT_KINDS, part_of
from fencepost.protocol.announcement import Announcement

INCLUDE = Path(__file__).parents[2] / "include"
PACKAGE = INCLUDE / "fencepost"
BASES: tuple[tuple[type[BaseModel], str, str], ...] = (
    (OutputSettings, "settings", "SETTINGS"),
    (PlannedOutput, "values", "PLANNED"),
    (Publication, "values", "PUBLICATION"),
)
# Rooms of the kinds, and of what holds for several of them.
OWN = {"outputs/table", *("/".join(package.split(".")[1:]) for package in OUTPUT_KINDS.values())}
LIST = PACKAGE / "output_kinds.py"  # the list of kinds, which has their names
# Attributes and methods whose value is an output's settings, a planned output or a publication.
VALUES = {"output", "publication", "require_publication", "publication_under"}
TYPES = {"OutputSettings", "AnyOutputSettings", "PlannedOutput", "AnyPlannedOutput", "Publication", "AnyPublication"}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def others(pattern: str) -> list[Path]:
    """The files outside of the kinds' packages and of the room of PostgreSQL's sessions, those of the local stack included."""
    own = tuple(f"{PACKAGE / room}/" for room in (*OWN, "postgres"))
    files = [*PACKAGE.rglob(pattern), *(INCLUDE / "fencepost_stack").rglob(pattern)]
    return [file for file in sorted(files) if file != LIST and not str(file).startswith(own)]


def classes_of_kinds() -> set[str]:
    """The names of all classes in the packages of the kinds."""
    return {
        node.name
        for room in OWN
        for file in (PACKAGE / room).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    }


def fields_of_kinds() -> set[str]:
    """What settings and frozen values of some kind have, and not those of every kind."""
    found = set[str]()
    for base, module, name in BASES:
        for kind in OUTPUT_KINDS:
            found |= _public(part_of(kind, module, name)) - _public(base)
    return found


def _public(model: type[BaseModel]) -> set[str]:
    declared = {name for base in model.__mro__ for name in inspect.get_annotations(base)}
    return {name for name in declared | {*dir(model)} if not name.startswith("_")}


def declared_elsewhere() -> set[str]:
    """The names of all attributes that a class outside of the kinds declares."""
    found = set[str]()
    for file in others("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.ClassDef(body=body):
                    for one in body:
                        match one:
                            case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name):
                                found.add(name)
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    found.add(name)
    return found


CLASSES, FIELDS = classes_of_kinds(), fields_of_kinds()
SERVICES = {name for kind in OUTPUT_KINDS for name in settings_of(kind).services}  # services that only some kind needs
ALONE = FIELDS - declared_elsewhere()  # names that mean a kind's field wherever they are


class Questions(ast.NodeVisitor):
    """Finds where a module asks what kind an output is, or does what only one kind can answer: the line, and what it does there.

    It follows a name that is assigned an output, a publication or a kind within a function or class.
    """

    def __init__(self, services: Collection[str]) -> None:
        self._services = services
        self.found: list[tuple[int, str]] = []
        self._outputs, self._kinds, self._summary = set[str](), set[str](), False
        self._own = set[str]()  # names of other classes, which the module imports or declares itself

    def _add(self, node: ast.AST, what: str) -> None:
        self.found.append((getattr(node, "lineno", 0), what))

    def visit(self, node: ast.AST) -> None:
        """Look at a node and all below it. Names of a function are forgotten behind it."""
        kept = self._outputs, self._kinds, self._summary
        if isinstance(node, FUNCTIONS | ast.ClassDef):
            self._outputs, self._kinds = {*self._outputs}, {*self._kinds}
            self._summary = node.name == "WriteSummary" if isinstance(node, ast.ClassDef) else self._summary
            self._learn(node)
        elif isinstance(node, ast.Module):
            self._own = _declared(node)
            self._learn(node)
        self._look(node)
        self.generic_visit(node)
        self._outputs, self._kinds, self._summary = kept

    def _learn(self, scope: ast.AST) -> None:
        """The names in a scope that hold an output or its kind: twice, because one may be assigned from another."""
        for node in [*_within(scope)] * 2:
            match node:
                case ast.arg(arg=name, annotation=ast.expr() as annotation) if _names(annotation) & TYPES:
                    self._outputs.add(name)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if _names(annotation) & TYPES:
                    self._outputs.add(name)
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._bind(target, value)
                case ast.NamedExpr(target=target, value=value):
                    self._bind(target, value)
                case (
                    ast.comprehension(target=target, iter=ast.Tuple(elts=each) | ast.List(elts=each))
                    | ast.For(target=target, iter=ast.Tuple(elts=each) | ast.List(elts=each))
                ):
                    for value in each:
                        self._bind(target, value)
                case ast.comprehension(target=target, iter=ast.GeneratorExp(elt=value) | ast.ListComp(elt=value)):
                    self._bind(target, value)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=values):
                for one, its in zip(targets, values, strict=False):
                    self._bind(one, its)
            case ast.Name(id=name), _:
                if self._is_output(value):
                    self._outputs.add(name)
                if self._is_kind(value):
                    self._kinds.add(name)

    def _is_output(self, node: ast.AST) -> bool:
        """Whether an expression is an output's settings, a planned output or a publication."""
        match node:
            case ast.Attribute(value=holder, attr="output"):
                # That of a WriteSummary is a topic.
                name = _last(holder)
                return name not in {"written", "require_written"} and not (self._summary and name == "self")
            case ast.Attribute(attr=name):
                return name in VALUES
            case ast.Name(id=name):
                return name in self._outputs
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in VALUES
            case ast.IfExp(body=one, orelse=other):
                return self._is_output(one) or self._is_output(other)
            case ast.BoolOp(values=values):
                return any(map(self._is_output, values))
            case ast.NamedExpr(value=value):
                return self._is_output(value)
        return False

    def _is_kind(self, node: ast.AST) -> bool:
        match node:
            case ast.Attribute(attr="kind"):
                return True
            case ast.Name(id=name):
                return name in self._kinds
        return False

    def _look(self, node: ast.AST) -> None:
        match node:
            case ast.ImportFrom(module=str() as module, names=names) if any(
                map(_is_of_a_kind, (module, *(f"{module}.{name.name}" for name in names)))
            ):
                self._add(node, "imports a kind's module")
            case ast.Import(names=names) if any(_is_of_a_kind(name.name) for name in names):
                self._add(node, "imports a kind's package")
            case ast.Constant(value=str() as text) if _is_of_a_kind(text):
                self._add(node, "names a kind's package")
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in CLASSES - self._own:
                self._add(node, f"names the class {name}")
            case ast.Compare(left=left, comparators=others) if any(
                map(self._is_kind, (left, *others))
            ) and _has_kind_name((left, *others)):
                self._add(node, "compares a kind with a name")
            case ast.Match(subject=asked, cases=cases) if self._is_kind(asked) and _has_kind_name(
                [one.pattern for one in cases]
            ):
                self._add(node, "matches a kind with a name")
            case ast.Subscript(value=ast.Dict(keys=keys), slice=asked) if self._is_kind(asked) and _has_kind_name(
                [key for key in keys if key is not None]
            ):
                self._add(node, "chooses by the name of a kind")
            case ast.Call(args=[ast.Constant(value="kind"), *rest]) if _has_kind_name(rest):
                self._add(node, "has the name of a kind for one that is not given")
            case ast.Attribute(attr=name) if name in self._services:
                self._add(node, f"asks for the settings of {name}")
            case ast.Subscript(slice=ast.Constant(value=str() as name)) if name in self._services:
                self._add(node, f"asks for {name} by its name")
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str() as name), *_]) if (
                name in self._services
            ):
                self._add(node, f"asks for {name} by its name")
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str() as name), *_]) if (
                name in FIELDS
            ):
                self._add(node, f"asks for {name} by its name")
            case ast.Attribute(value=holder, attr=name) if name in ALONE or (
                name in FIELDS and self._is_output(holder)
            ):
                self._add(node, f"asks {_last(holder)} for {name}")
            case ast.MatchClass(kwd_attrs=names, cls=cls) if (asked := {*names} & FIELDS) and _names(cls) & TYPES:
                self._add(node, f"asks for {', '.join(sorted(asked))} in a pattern")
            case ast.Call(func=ast.Name(id="part_of" | "has_part"), args=[ast.Constant(), *_]):
                self._add(node, "takes a part of one kind")


def questions(source: str, services: Collection[str] = SERVICES) -> list[tuple[int, str]]:
    """Where Python code asks what kind an output is: the line, and what it does there. `services` are those that kinds need."""
    visitor = Questions(services)
    visitor.visit(ast.parse(source))
    return visitor.found


def questions_in_template(source: str) -> Iterator[tuple[int, str]]:
    """Where a template asks what kind an output is: the line, and what it does there."""
    tree = Environment(autoescape=True, extensions=["jinja2.ext.do"]).parse(source)
    outputs = {
        one.target.name
        for one in tree.find_all(nodes.Assign)
        if isinstance(one.target, nodes.Name) and isinstance(one.node, nodes.Getattr) and one.node.attr in VALUES
    }
    for one in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Compare)):
        match one:
            case nodes.Compare():
                asked = any(kind.attr == "kind" for kind in one.find_all(nodes.Getattr))
                if asked and any(name.value in OUTPUT_KINDS for name in one.find_all(nodes.Const)):
                    yield one.lineno, "compares a kind with a name"
            case nodes.Getattr() | nodes.Getitem():
                name = one.attr if isinstance(one, nodes.Getattr) else getattr(one.arg, "value", None)
                holder = getattr(one.node, "attr", None) or getattr(one.node, "name", None)
                if name in ALONE or (name in FIELDS and (holder in VALUES or holder in outputs)):
                    yield one.lineno, f"asks {holder} for {name}"


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a scope, without those of the functions and classes in it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, FUNCTIONS | ast.ClassDef):
            yield from _within(node)


def _declared(module: ast.Module) -> set[str]:
    """The names of classes and types that a module declares, or imports from others than the kinds."""
    found = set[str]()
    for node in ast.walk(module):
        match node:
            case ast.ImportFrom(module=str() as source, names=names) if not _is_of_a_kind(source):
                found |= {name.asname or name.name for name in names}
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
    return found


def _is_of_a_kind(module: str) -> bool:
    return f"{module}.".startswith(tuple(f"fencepost.{room.replace('/', '.')}." for room in OWN))


def _names(node: ast.AST) -> set[str]:
    """The names in an expression, in an annotation also those in a text."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} | {
        one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)
    }


def _has_kind_name(parts: Sequence[ast.AST]) -> bool:
    constants = (one.value for part in parts for one in ast.walk(part) if isinstance(one, ast.Constant))
    return any(isinstance(value, str) and value in OUTPUT_KINDS for value in constants)


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "a value"


def test_no_module_outside_of_the_kinds_asks_what_kind_an_output_is() -> None:
    """The local stack may ask for a service's settings, because it runs the service."""
    asked = [
        f"{file.relative_to(INCLUDE)}:{line}: {what}"
        for file in others("*.py")
        for line, what in questions(file.read_text(encoding="utf-8"), SERVICES if PACKAGE in file.parents else ())
    ]
    assert asked == []


def test_no_template_asks_what_kind_an_output_is() -> None:
    asked = [
        f"{file.relative_to(INCLUDE)}:{line}: {what}"
        for file in others("*.j2")
        for line, what in questions_in_template(file.read_text(encoding="utf-8"))
    ]
    assert asked == []


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(output, TopicOutput)",
        "isinstance(pipeline.output, TopicSettings | PostgresSettings)",
        "issubclass(one, values.PostgresPublication)",
        "type(batch.plan.output) is TopicOutput",
        "batch.publication.__class__ == TablePublication",
        "match batch.publication:\n case TablePublication(): pass",
        "match plan.output:\n case TopicOutput(topic=t): pass",
        "match plan.output:\n case PlannedOutput(topic=t): pass",
        "output.kind == 'topic'",
        "'postgres' != plan.output.kind",
        "pipeline.output.kind in ('topic', 'other')",
        "kind = plan.output.kind\nif kind == 'topic': pass",
        "match pipeline.output.kind:\n case 'topic': pass",
        "{'topic': 1, 'postgres': 2}[pipeline.output.kind]",
        "settings.get('kind', 'topic')",
        "pipeline.output.topic is not None",
        "self.output.topic is not None",
        "found.output.publish == 'staged'",
        "self.pipeline.output.publish == 'staged'",
        "batch.plan.output.table",
        "announcement.table is None",
        "if one.table: pass",
        "output = pipeline.output\nif output.table: pass",
        "output = pipeline.output\nsame = output\nsame.topic",
        "def f(batch):\n one = batch.plan.output\n return one.topic is None",
        "def f(one: PlannedOutput): return one.topic is None",
        "if (one := pipeline.output) and one.topic: pass",
        "first, second = a.output, b.output\nsecond.topic",
        "[o.topic for o in (b.plan.output for b in batches)]",
        "(batch.plan.output if batch else pipeline.output).topic",
        "batch.publication.atomic",
        "batch.publication.lane",
        "batch.require_publication.lane",
        "batch.publication_under(lease).begun",
        "pipeline.output.format",
        "frozenset(pipeline.postgres.items())",
        "pipeline.connections['postgres']",
        "pipeline.connections.get('postgres')",
        "getattr(output, 'topic', None)",
        "hasattr(pipeline.output, 'table')",
        "from fencepost.outputs.postgres.output import PostgresTable",
        "from fencepost.outputs.table.values import TableOutput",
        "from fencepost.outputs import postgres",
        "import fencepost.outputs.topic.values",
        "import_module('fencepost.outputs.topic')",
        "part_of('topic', 'values', 'PLANNED')",
    ],
)
def test_a_question_about_the_kind_is_seen(code: str) -> None:
    assert questions(code) != []


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(value, Mapping)",
        "pipeline.output.records.format",
        "pipeline.output.name",
        "batch.plan.output.description",
        "written.output.topic",
        "class WriteSummary:\n def f(self): return self.output.topic",
        "batch.publication.is_unseen",
        "def f(o):\n o = plan.output\ndef g(o): return o.topic",
        "part_of(kind, 'values', 'PLANNED')",
        "column.kind == 'integer'",
        "from elsewhere import Session\ndef f(session: Session): pass",
    ],
)
def test_what_holds_for_every_kind_may_be_asked(code: str) -> None:
    assert questions(code) == []


@pytest.mark.parametrize(
    "template",
    [
        "{% if batch.plan.output.topic %}{% endif %}",
        "{{ 'copy' if b.publication.atomic else 'commit' }}",
        "{% set output = b.plan.output %}{{ output.topic }}",
        "{{ b.plan.output['topic'] }}",
        "{% if pipeline.output.kind == 'topic' %}{% endif %}",
        "{{ one.table }}",
    ],
)
def test_a_question_about_the_kind_in_a_template_is_seen(template: str) -> None:
    assert [*questions_in_template(template)] != []


@pytest.mark.parametrize("template", ["{{ b.plan.output.description }}", "{{ b.plan.source.topic }}", "{{ row.kind }}"])
def test_a_template_may_say_what_every_kind_has(template: str) -> None:
    assert [*questions_in_template(template)] == []


def test_an_announcement_names_an_output_of_any_kind_in_one_way() -> None:
    """With a field for each kind, a new kind would have to call itself by the name of an old one."""
    assert {"kind", "output"} <= Announcement.model_fields.keys()
    assert {"topic", "table", *OUTPUT_KINDS} & Announcement.model_fields.keys() == set()


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
