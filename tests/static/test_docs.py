"""The documents against the product: links, commands, targets, settings, variables, tests and examples that they name."""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
import typer
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fencepost import __version__, errors, quality
from fencepost.cli.app import app
from fencepost.config.output_settings import OutputSettings, settings_of
from fencepost.config.pipeline import NOT_IN_FILE, Pipeline, load_suite
from fencepost.config.rights import table
from fencepost.config.services.kafka import FIXED_KAFKA, KAFKA, OWN_KAFKA, check_kafka
from fencepost.config.side_tables import KINDS
from fencepost.config.source import SOURCE
from fencepost.config.sql_types import is_sql_type
from fencepost.doctor.run_check import name_of
from fencepost.errors import FencepostError
from fencepost.ledger import completeness
from fencepost.output_kinds import OUTPUT_KINDS
from fencepost.outputs import topic_settings
from fencepost.outputs.postgres import bookkeeping
from fencepost.postgres.connection import OLDEST
from fencepost.quality.report_files import FILE_MODE, FOLDER_MODE
from fencepost.steps import write_job
from fencepost.suite.catalogue import HISTORY, KNOWN

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    ROOT / "benchmarks" / "README.md",
    ROOT / "tests" / "model" / "README.md",
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
NAMES = [document.relative_to(ROOT).as_posix() for document in DOCUMENTS]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PIPELINES, EXPECTATIONS, OPERATING, EXACTLY_ONCE, SECURITY, ARCHITECTURE = (
    (ROOT / "docs" / f"{name}.md").read_text()
    for name in ("pipelines", "expectations", "operating", "exactly-once", "security-and-deployment", "architecture")
)
TABLES = (ROOT / "docs" / "tables.md").read_text()
SIDE_TABLES = (ROOT / "docs" / "side-tables.md").read_text()
CHECKS = ("doctor.settings", "doctor.certificates", "doctor.kafka", "doctor.rights", "doctor.topics", "doctor.ledger")
CHECKS += (
    "doctor.side_tables",
    "doctor.fields",
    "doctor.airflow",
    "outputs.iceberg.doctor",
    "outputs.postgres.doctor",
    "doctor.spark",
    "doctor.folder",
    "doctor.limits",
)
ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, FencepostError)
}


@pytest.fixture(params=NAMES)
def document(request: pytest.FixtureRequest) -> Path:
    """Each document in turn."""
    return ROOT / request.param


def anchor(heading: str) -> str:
    """The fragment under which a heading is linked."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def prose(text: str) -> str:
    """The text without its code blocks."""
    return FENCE.sub("", text)


def code(text: str) -> Iterator[str]:
    """What stands in code: the lines of its blocks without a language, and its inline code."""
    for language, block in FENCE.findall(text):
        if language in {"", "sh"}:
            yield from block.splitlines()
    yield from CODE.findall(prose(text))


def test_the_front_door_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 200


def test_every_link_leads_somewhere(document: Path) -> None:
    text = document.read_text()
    for target in LINK.findall(prose(text)):
        if re.match(r"https?:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), f"{target}: no such file"
        if fragment:
            anchors = {anchor(heading) for heading in HEADING.findall(prose(file.read_text()))}
            assert fragment in anchors, f"{target}: no such heading"


def test_set_up_packages_and_documents_name_the_same_versions_of_python() -> None:
    setup = (ROOT / "include/fencepost_stack/setup.sh").read_text()
    (newest_first,) = re.findall(r"^supported=\((.*)\)$", setup, re.MULTILINE)
    versions = newest_first.split()[::-1]
    said = f"Python {', '.join(versions[:-1])} or {versions[-1]}"
    assert [said in text for text in (README.read_text(), SECURITY, setup)] == [True] * 3
    for file in ("pyproject.toml", "include/pyproject.toml"):
        project = tomllib.loads((ROOT / file).read_text())["project"]
        assert project["requires-python"] == f">={versions[0]}"
        python = "Programming Language :: Python :: "
        assert [one.removeprefix(python) for one in project["classifiers"] if one.startswith(python)] == versions


def test_no_table_is_cut_in_two(document: Path) -> None:
    """A row behind an empty line is a table of its own, which needs a line of dashes."""
    lines = ["", *prose(document.read_text()).splitlines(), ""]
    begins = [n for n, line in enumerate(lines) if line.startswith("|") and not lines[n - 1].startswith("|")]
    assert [lines[n][:60] for n in begins if not re.match(r"^\|( *:?-+:? *\|)+$", lines[n + 1])] == []


def test_an_administrator_makes_the_two_tables_as_fencepost_does() -> None:
    documented = [
        block for language, block in FENCE.findall(TABLES) if language == "sql" and "fencepost_batches (" in block
    ]
    made = (("fencepost_tables", bookkeeping.TABLES), ("fencepost_batches", bookkeeping.BATCHES))
    assert documented == ["\n\n".join(f"CREATE TABLE {name} {columns};" for name, columns in made) + "\n"]


def test_the_oldest_server_that_is_taken_is_the_one_that_the_page_names() -> None:
    assert f"The server is PostgreSQL {OLDEST} or a later one" in TABLES


def test_every_page_is_linked_from_the_front_door() -> None:
    linked = {target.partition("#")[0] for target in LINK.findall(README.read_text())}
    assert {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md")} <= linked


def test_every_command_is_one_of_the_command_line(document: Path) -> None:
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line in code(document.read_text()):
        found = re.match(r"^(?:\S*/)?fencepost ([a-z][\w-]*)(.*)$", line.strip())
        if found is None:
            continue
        name, rest = found.groups()
        names = [name]
        if rest.startswith(","):  # `fencepost up, down, services`
            names += re.findall(r"[a-z]+", rest.split("   ")[0])
            rest = ""
        for one in names:
            assert one in commands, f"{line}: there is no command {one}"
        known = {option for parameter in commands[name].params for option in parameter.opts}
        for option in re.findall(r"--[a-z][\w-]*", rest.split("   ")[0]):
            assert option in known, f"{line}: {name} has no option {option}"


@pytest.mark.parametrize(
    ("page", "heading"), [("README.md", "Commands"), ("docs/operating.md", "Commands and exit codes")]
)
def test_every_command_is_in_the_lists_of_commands(page: str, heading: str) -> None:
    (block,) = FENCE.findall((ROOT / page).read_text().split(f"## {heading}\n")[1].split("\n## ")[0])
    listed = re.findall(r"^fencepost (\w+(?:, \w+)*)", block[1], re.MULTILINE)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {name for line in listed for name in line.split(", ")} == set(commands)


def test_every_make_target_exists(document: Path) -> None:
    for line in code(document.read_text()):
        if found := re.match(r"^make ([a-z-]+)\b", line.strip()):
            assert found.group(1) in TARGETS, f"{line}: no such target"


def test_every_command_in_a_message_is_one() -> None:
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {option for one in commands.values() for parameter in one.params for option in parameter.opts}
    found = 0
    for file in (ROOT / "include" / "fencepost").rglob("*.py"):
        for program, name, rest in re.findall(r"`(fencepost|make) ([a-z][\w-]*)([^`\n]*)`", file.read_text()):
            found += 1
            assert name in (commands if program == "fencepost" else TARGETS), f"{file.name}: {program} {name}"
            assert set(re.findall(r"--[a-z][\w-]*", rest)) <= known, f"{file.name}: {program} {name}{rest}"
    assert found > 20


def test_every_script_and_version_in_a_block_of_commands_exists(document: Path) -> None:
    """Of modules and scripts that Python is given, packages that pip is given, and files that are copied."""
    pinned = (ROOT / "requirements.txt").read_text()
    for line in code(document.read_text()):
        for script in re.findall(r"\bpython ([\w./-]+\.py)\b", line):
            assert (ROOT / script).exists(), f"{line}: no such script"
        for module in re.findall(r"\bpython -m ([\w.]+)", line):
            assert importlib.util.find_spec(module), f"{line}: no such module"
        for version in re.findall(r"fencepost-([\d.]+)-py3", line):
            assert version == __version__, line
        for package in re.findall(r"[\w-]+==[\d.]+", line):
            assert package in pinned, f"{line}: not the version that is tested"
        for file in re.findall(r"^cp (\S+)", line):
            assert (ROOT / file).exists(), f"{line}: no such file"


def test_every_test_and_file_that_is_named_exists(document: Path) -> None:
    for text in CODE.findall(prose(document.read_text())):
        if re.fullmatch(r"[\w.-]+/[\w./-]+\.(py|yaml|md|json|svg)", text) and "paid_orders" not in text:
            places = [ROOT, ROOT / "tests", ROOT / "include", ROOT / "include" / "fencepost", document.parent]
            assert any((place / text).exists() for place in places), f"{text}: no such file"
        elif re.fullmatch(r"(?!kafka-)[\w-]+\.(py|sh|properties)", text):
            assert text in files(), f"{text}: no file has this name"
        elif re.fullmatch(r"(tests|docs|include|benchmarks|dags)/[\w./-]+", text) and "paid_orders" not in text:
            assert (ROOT / text).exists(), f"{text}: no such folder"


@functools.cache
def files() -> frozenset[str]:
    """The names of the repository's own files."""
    places = (ROOT / name for name in ("include", "tests", "benchmarks", "docs", "dags", "examples"))
    return frozenset(file.name for place in places for file in place.rglob("*.*"))


@functools.cache
def sources() -> str:
    """Everything that says what a name means: the package, its tests, and the files beside them."""
    kinds = {".py", ".yaml", ".toml", ".txt", ".sh", ".properties", ".json"}
    places = (ROOT / name for name in ("include", "tests", "benchmarks", "dags"))
    found = [file for place in places for file in sorted(place.rglob("*")) if file.suffix in kinds]
    beside = (
        ROOT / name for name in ("Makefile", "Dockerfile", "docker-compose.yaml", ".env.example", "pyproject.toml")
    )
    return "\n".join(file.read_text() for file in [*found, *beside] if file != Path(__file__))


# Names of other programs, and names that stand for any.
ELSEWHERE = {
    "spark-defaults.conf",
    "spark.ssl.*",
    "spark.authenticate.secret",
    "executor_callbacks/",
    "rd_kafka_produce_batch",
    "try_cast",
}
# Settings, values and functions of Debezium, of Kafka Connect and of the databases.
OF_CONNECTORS = set(
    """time.precision.mode decimal.handling.mode interval.handling.mode binary.handling.mode hstore.handling.mode
    bigint.unsigned.handling.mode money.fraction.digits include.unknown.datatypes lob.enabled json.serialization.mode
    capture.mode change_streams_update_full unavailable.value.placeholder skipped.operations delete.tombstone.handling.mode
    add.fields decimal.format binlog_row_image bytea_output lc_monetary adaptive_time_microseconds sql_variant
    pg_logical_emit_message P1Y2M3DT4H5M6.78S BINARY_FLOAT BINARY_DOUBLE""".split()
)
CLASSES = re.compile(r"(io\.debezium|org\.apache\.kafka\.connect)\..+")


def test_every_name_in_code_is_in_the_sources(document: Path) -> None:
    """Functions, columns, settings, topics: the whole name, or the last part of a dotted one. Files and variables: see above."""
    for text in CODE.findall(prose(document.read_text())):
        if text in ELSEWHERE | OF_CONNECTORS or CLASSES.fullmatch(text):
            continue
        if not re.fullmatch(r"_?[A-Za-z][A-Za-z0-9-]*([._][A-Za-z0-9-]+)+", text):
            continue
        if text.startswith("FENCEPOST_") or text in files():
            continue
        last = text.rpartition(".")[2]
        names = {text, last} if "_" in last else {text}
        assert any(re.search(rf"{re.escape(name)}(?!\w)", sources()) for name in names), f"{text}: nowhere"


def test_every_setting_that_is_named_exists(document: Path) -> None:
    if document.name == "CHANGELOG.md":  # it names what is no longer there
        return
    known = {name for name, _ in settings(Pipeline)} | {f"source.{field}" for field in ("schema",)}
    for text in CODE.findall(prose(document.read_text())):
        if found := re.match(r"((?:source|output|schedule|quality)\.[a-z_]+)(?![\w.*])", text):
            assert found[1] in known, f"{text}: no such setting"
        if found := re.match(r"kafka\.([a-z.]+)\b", text):
            assert found[1] in KAFKA.settings.keys() | OWN_KAFKA.keys(), f"{text}: no such setting"


def test_every_example_in_python_imports_what_exists(document: Path) -> None:
    for language, block in FENCE.findall(document.read_text()):
        for node in ast.walk(ast.parse(block)) if language == "python" else ():
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fencepost"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), f"{ast.unparse(node)}: no such name"


def test_every_example_in_yaml_is_taken(document: Path, tmp_path: Path) -> None:
    for language, block in FENCE.findall(document.read_text()):
        content = yaml.safe_load(block) if language == "yaml" else {}
        if "kafka" in content:
            given = {name: re.sub(r"\$\{.*\}", "kafka:9092", str(v)) for name, v in content["kafka"].items()}
            check_kafka(given, whole=given.pop("connection", None) is None)
        if "expectations" in content:
            (tmp_path / "expectations.yaml").write_text(block)
            assert {one.type for one in load_suite(tmp_path / "expectations.yaml").expectations} <= {*KNOWN, *HISTORY}


def test_no_section_is_empty(document: Path) -> None:
    text = document.read_text()
    for title, body in re.findall(r"^#{2,6} ([^\n]+)\n(.*?)(?=^#{1,6} |\Z)", prose_kept(text), re.M | re.S):
        below = re.search(rf"^## {re.escape(title)}\n\s*^###", text, re.MULTILINE)
        assert body.strip() or below, f"{title}: nothing is said"


def prose_kept(text: str) -> str:
    """The text with its code blocks, in which no line looks like a heading."""
    return FENCE.sub(lambda block: re.sub(r"^#", "_", block.group(0), flags=re.MULTILINE), text)


def settings(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every field of pipeline.yaml by its path, with its default."""
    for name, field in model.model_fields.items():
        shown = f"{path}{field.alias or name}"
        kind = field.annotation
        if shown in NOT_IN_FILE:
            continue
        models = [found for found in map(plain, (kind, *get_args(kind))) if isinstance(found, type)]
        models = [found for found in models if issubclass(found, BaseModel)] if not path else []
        if models and (len(models) > 1 or models[0] is kind or shown == SOURCE):  # which may be left out, for `sources`
            if models == [OutputSettings]:
                models = [settings_of(one) for one in OUTPUT_KINDS]
            for found in reversed(models):  # of a field in several, the first one's default is told
                yield from settings(found, f"{shown}.")
        else:
            yield shown, field


def plain(kind: Any) -> Any:
    """The type in an annotated one."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def rows_under(text: str, heading: str) -> list[list[str]]:
    """The cells of the tables in a section, heads left out."""
    section = re.split(rf"^#+ {re.escape(heading)}\n", text, flags=re.MULTILINE)[1]
    section = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    lines = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)
    heads = {n - 1 for n, line in enumerate(lines) if set(line) <= set("-| ")}
    return [
        [cell.strip() for cell in line.split(" | ")]
        for n, line in enumerate(lines)
        if n not in heads and not set(line) <= set("-| ")
    ]


def choices(kind: Any) -> Iterator[str]:
    """The values that a setting is one of."""
    if get_origin(kind) is Literal:
        yield from map(str, get_args(kind))
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        yield from (str(one.value) for one in kind)
    elif kind is bool:
        yield "true"


def test_every_choice_and_bound_of_a_setting_is_in_its_row() -> None:
    rows = {cells[0].strip("`"): cells for cells in rows_under(PIPELINES, "Settings")}
    for name, field in settings(Pipeline):
        told = " | ".join(rows[name][1:])
        for choice in choices(field.annotation):
            assert f"`{choice}`" in told, f"{name}: {choice} is not told of"
        for bound in field.metadata:
            limit: Any = getattr(bound, "ge", getattr(bound, "gt", getattr(bound, "le", None)))
            if limit is not None and limit <= 10_000:
                assert re.search(rf"\b{limit:,}\b", told), f"{name}: its bound {limit} is not told of"


def test_kafka_settings_are_refused_and_fixed_as_the_table_says() -> None:
    own, fixed, native, _ = (
        re.findall(r"`([^`]+)`", " ".join(cells)) for cells in rows_under(PIPELINES, "Kafka settings")
    )
    assert {"transactional.id", "group.id"} <= set(own) <= OWN_KAFKA.keys()
    names = [name for name in fixed if "." in name or name == "acks"]
    assert set(names) <= FIXED_KAFKA.keys()
    assert [v for v in fixed if v not in names] == [FIXED_KAFKA[name][0][0] for name in names]
    assert set(native) - {"transform.py"} <= OWN_KAFKA.keys()
    assert not (set(own) | set(native)) & KAFKA.settings.keys()


def test_every_type_in_the_table_of_json_is_one() -> None:
    named = [n for cells in rows_under(PIPELINES, "JSON records") for n in re.findall(r"`([^`]+)`", cells[0])]
    assert {"bigint", "timestamp_ntz", "array", "map", "struct"} <= set(named)
    within = {
        "array": "array<int>",
        "map": "map<string, int>",
        "struct": "struct<a: int>",
        "decimal(p, s)": "decimal(5, 2)",
    }
    for name in named:
        assert is_sql_type(within.get(name, name)), f"{name}: no type of a schema"


def test_every_setting_is_in_the_table_with_its_default() -> None:
    rows = {cells[0].strip("`"): cells[1] for cells in rows_under(PIPELINES, "Settings")}
    fields = dict(settings(Pipeline))
    assert set(rows) == set(fields)
    for name, field in fields.items():
        default = field.default
        if isinstance(default, bool):
            default = str(default).lower()
        if isinstance(default, str | int | float) and str(default):
            shown = f"{default:g}" if isinstance(default, float) else str(getattr(default, "value", default))
            assert rows[name].startswith(f"`{shown}`"), f"{name}: the default is {shown}"
        if field.is_required():
            assert rows[name].startswith("required"), f"{name}: it is required"


def test_every_setting_of_a_side_table_is_in_its_table_with_its_default() -> None:
    rows = {name: cells for cells in rows_under(SIDE_TABLES, "Settings") for name in re.findall(r"`(\w+)`", cells[0])}
    fields = {field.alias or name: field for kind in KINDS.values() for name, field in kind.model_fields.items()}
    assert set(rows) == set(fields)
    for name, field in fields.items():
        if isinstance(field.default, bool | int):
            assert rows[name][2] == f"`{str(field.default).lower()}`", name
        if field.is_required():
            assert rows[name][2] == "required", name


def test_every_type_that_can_be_used_is_listed_and_no_other() -> None:
    section = EXPECTATIONS.split("## Types\n")[1].split("## Rules\n")[0]
    assert f"These {len(KNOWN)} types" in section
    listed = re.findall(r"`(expect_\w+)`", section)
    assert len(listed) == len(set(listed))
    assert set(listed) == KNOWN.keys() | set(HISTORY)


def test_the_number_of_types_is_the_same_on_every_page(document: Path) -> None:
    for number in re.findall(r"\b(\d+) (?:expectation )?types\b", document.read_text()):
        assert int(number) == len(KNOWN)


@pytest.mark.parametrize(
    ("page", "word"),
    [
        *((README, word) for word in ("revision", "mark", "receipt", "frontier")),
        (ROOT / "docs" / "pipelines.md", "lane"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_word_of_ones_own_is_defined_where_it_first_appears(page: Path, word: str) -> None:
    """In running text; a picture of the output, a list of commands and a table of settings name it before."""
    text = prose(page.read_text())
    first = re.search(rf"(?<![\w`]){word}s?\b(?!`)", text)
    assert first, word
    assert text[first.start() - 1 : first.end() + 1] == f"*{word}*"


def test_the_exit_codes_are_those_of_the_errors() -> None:
    told = [int(cells[0]) for cells in rows_under(OPERATING, "Commands and exit codes")]
    assert told == sorted({0, *(kind.exit_code for kind in ERRORS.values())})


def test_every_error_that_ends_a_task_has_a_row_and_every_row_an_error() -> None:
    """The classes that others derive from are told of by those; `NeedsOperator` is raised itself as well."""
    named = {n for cells in rows_under(OPERATING, "A red task") for n in re.findall(r"`([A-Z]\w+)`", cells[1])}
    assert named <= ERRORS.keys()
    kinds = {name for name, kind in ERRORS.items() if not kind.__subclasses__()}
    assert kinds <= named, f"no row: {sorted(kinds - named)}"


def test_every_check_of_the_doctor_has_a_row_and_every_row_a_check() -> None:
    """Checks are the functions of that name in its modules; the command itself asks whether there is an Airflow."""
    named = {name for cells in rows_under(OPERATING, "Doctor") for name in cells[0].split(", ")}
    modules = [importlib.import_module(f"fencepost.{module}") for module in CHECKS]
    checks = {
        name_of(value)
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("check_") and value.__module__ == module.__name__
    }
    assert named == checks - {"pipeline", "before plan", "limits"} | {"airflow"}


def test_every_error_that_a_document_names_exists(document: Path) -> None:
    for name in re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", prose(document.read_text())):
        if name.endswith(
            ("Error", "Fenced", "Unavailable", "Unknown", "Denied", "Failed", "Lost", "Unreadable", "Refused")
        ):
            assert name in ERRORS, f"{name}: no such error"


def test_the_tree_at_the_top_of_the_errors_names_each() -> None:
    tree = set(re.findall(r"\b[A-Z][a-z]\w+", errors.__doc__ or ""))
    assert ERRORS.keys() <= tree


def test_the_quality_folder_lists_its_modules() -> None:
    listed = set(re.findall(r"^(\w+\.py) ", quality.__doc__ or "", re.MULTILINE))
    assert listed == {file.name for file in Path(quality.__file__).parent.glob("*.py")} - {"__init__.py"}


def test_every_room_and_module_is_on_the_page_of_architecture() -> None:
    """Of some rooms the page tells what is in them; of the others, and of the rooms within them, it names each module."""
    package = ROOT / "include" / "fencepost"
    tree = ARCHITECTURE.split("```")[1]
    assert set(re.findall(r"\w+\.py", tree)) == {file.name for file in package.glob("*.py")} - {"__init__.py"}
    rooms, within = (dict(re.findall(rf"^ {{{n}}}(\w+)/ +(.*)$", tree, re.MULTILINE)) for n in (2, 4))
    assert set(rooms) == {folder.name for folder in package.iterdir() if (folder / "__init__.py").exists()}
    for room in set(rooms) - {"airflow", "local", "pages", "quality"}:
        named = set(re.findall(r"\w+", rooms[room])) - {"with"}
        assert named == {file.stem for file in (package / room).glob("*.py")} - {"__init__"}, room
    folders = {file.parent.name: file.parent for file in package.glob("*/*/__init__.py")}
    assert set(within) == set(folders)
    for room, folder in folders.items():
        named = set(re.findall(r"\w+", within[room].rpartition(": ")[2]))
        assert named == {file.stem for file in folder.glob("*.py")} - {"__init__"}, room


def test_the_layers_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    rows = re.findall(r"^\| \d+ \| (.*) \|$", ARCHITECTURE, re.MULTILINE)
    assert [set(re.findall(r"\w+", row)) for row in rows] == [set(re.findall(r"\w+", layer)) for layer in layers]


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (EXACTLY_ONCE, f"The newest {completeness.LOOKED_AT:,} offsets"),
        (
            EXACTLY_ONCE,
            "for six hours" if timedelta(hours=6) == topic_settings.KEPT_FOR else str(topic_settings.KEPT_FOR),
        ),
        (PIPELINES, f"each {write_job.ROWS_A_PARTITION:,} offsets"),
        (PIPELINES, f"never more than {write_job.SPARKS_DEFAULT}"),
        (SECURITY, f"files have mode {FILE_MODE:04o} and folders {FOLDER_MODE:04o}"),
    ],
)
def test_a_number_that_is_named_is_the_codes(page: str, told: str) -> None:
    assert told in page


def test_the_table_of_rights_is_the_lists() -> None:
    """To renew it, put what `fencepost.config.rights.table` gives between the two comments."""
    (shown,) = re.findall(r"<!-- generated: rights -->\n(.*?)<!-- end -->", SECURITY, re.DOTALL)
    assert shown == table()


def test_every_variable_is_one_that_the_product_reads() -> None:
    sources = [*(ROOT / "include").rglob("*.py"), *(ROOT / "include").rglob("*.sh"), ROOT / "Makefile"]
    sources.append(ROOT / "tests" / "chromium.py")
    read = "".join(file.read_text() for file in sources)
    ports = re.findall(r"FENCEPOST_\{\w+[^}]*\}_PORT", read)
    for document in DOCUMENTS:
        if document.name == "CHANGELOG.md":
            continue
        for name in set(re.findall(r"`(FENCEPOST_[A-Z_]+|KAFKA_BOOTSTRAP)[`=]", document.read_text())):
            found = re.search(rf"\b{name}\b", read) or (ports and name.endswith("_PORT"))
            assert found, f"{document.name}: {name} is read nowhere"


def test_the_commands_of_the_front_door_name_the_pipeline_that_they_make() -> None:
    lines = [line for line in code(README.read_text()) if re.match(r"\.venv/bin/fencepost (new|try|run) ", line)]
    assert [shlex.split(line)[1] for line in lines] == ["new", "try", "run"]
    assert {shlex.split(line)[2] for line in lines} == {"paid_orders"}
