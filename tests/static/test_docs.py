"""The documents against the product: links, commands, targets, settings, variables, tests and examples that they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from fencepost.cli import app
from fencepost.settings import Pipeline, load_pipeline

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


def test_every_make_target_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in code(document.read_text()):
        if found := re.match(r"^make ([a-z-]+)\b", line.strip()):
            assert found.group(1) in targets, f"{line}: no such target"


def test_every_test_and_file_that_is_named_exists(document: Path) -> None:
    for text in CODE.findall(prose(document.read_text())):
        if re.fullmatch(r"[\w.-]+/[\w./-]+\.(py|yaml|md|json|svg)", text) and "orders_hourly" not in text:
            places = [ROOT, ROOT / "tests", ROOT / "include" / "fencepost", document.parent]
            assert any((place / text).exists() for place in places), f"{text}: no such file"


def settings(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of pipeline.yaml by its path, with its default."""
    for name, field in model.model_fields.items():
        shown = f"{path}{field.alias or name}"
        kind = field.annotation
        if shown in {"name", "folder"}:
            continue
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from settings(kind, f"{shown}.")
        else:
            yield shown, field


def test_every_setting_is_in_the_table_with_its_default() -> None:
    text = (ROOT / "docs" / "pipelines.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z][\w.]*)` \| ([^|]*) \|", text, re.MULTILINE))
    fields = dict(settings(Pipeline))
    assert set(rows) == set(fields)
    for name, field in fields.items():
        default = field.default
        if isinstance(default, bool):
            default = str(default).lower()
        if isinstance(default, str | int | float) and str(default):
            shown = f"{default:g}" if isinstance(default, float) else str(getattr(default, "value", default))
            assert rows[name].startswith(f"`{shown}`"), f"{name}: the default is {shown}"


def test_every_variable_is_one_that_the_product_reads() -> None:
    sources = [*(ROOT / "include").rglob("*.py"), *(ROOT / "include").rglob("*.sh"), ROOT / "Makefile"]
    read = "".join(file.read_text() for file in sources)
    ports = re.findall(r"FENCEPOST_\{\w+[^}]*\}_PORT", read)
    for document in DOCUMENTS:
        if document.name == "CHANGELOG.md":
            continue
        for name in set(re.findall(r"`(FENCEPOST_[A-Z_]+|KAFKA_BOOTSTRAP)[`=]", document.read_text())):
            assert name in read or (ports and name.endswith("_PORT")), f"{document.name}: {name} is read nowhere"


def test_the_pipeline_of_the_front_door_loads(tmp_path: Path) -> None:
    text = README.read_text()
    folder = tmp_path / "orders_hourly"
    folder.mkdir()
    named = re.findall(r"`include/pipelines/orders_hourly/([\w.]+)`[^\n]*\n\n```\w+\n(.*?)^```$", text, re.M | re.S)
    for name, content in named:
        (folder / name).write_text(content)
    assert [name for name, _ in named] == ["pipeline.yaml", "transform.py", "expectations.yaml"]
    assert load_pipeline(folder).output.topic == "paid_orders"


def test_the_commands_of_the_front_door_name_the_pipeline_that_it_makes() -> None:
    (line,) = [line for line in code(README.read_text()) if line.startswith(".venv/bin/fencepost run ")]
    assert shlex.split(line)[2] == "orders_hourly"
