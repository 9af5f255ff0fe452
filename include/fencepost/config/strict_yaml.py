"""Reads any YAML file as plain values, or raises SettingsError with the line.

It refuses what YAML allows but nobody means: a key given twice, an alias of itself, aliases that multiply. Messages quote
nothing from the file but its keys: YAML reads a password that begins with `*`, `!` or `&` as syntax and would quote it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from fencepost.config.files import read_file
from fencepost.errors import SettingsError

NO_TEXT = re.compile("[\0\ud800-\udfff]")
LARGEST = 100_000  # nodes that a file's aliases may expand to


def read_yaml(file: Path) -> Any:
    """The file's content.

    Raises:
        SettingsError: the file cannot be read or parsed; names the file, and the line if there is one.
    """
    try:
        return yaml.load(read_file(file).decode("utf-8"), Loader=_Strict)  # noqa: S506 - a SafeLoader
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: cannot be read: {error}.") from None
    except RecursionError:
        raise SettingsError(f"{file}: not valid YAML: nested too deeply.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{file}{where}: not valid YAML: {_problem(error)}.") from None


def _problem(error: yaml.YAMLError) -> str:
    """What is wrong, in YAML's words if they quote nothing from the file."""
    if isinstance(error, Refused):
        return str(error.problem)
    if isinstance(error, yaml.reader.ReaderError):
        return f"character {error.position + 1} of the file is a control character or not a character"
    problem = str(getattr(error, "problem", None) or "its syntax is wrong")
    # YAML quotes single characters and token names, which may stay, and names of aliases, anchors and tags, which may not.
    for kind, sign in (("alias", "*"), ("anchor", "&"), ("tag", "!")):
        if f"{kind} '" in problem or f"{kind} handle '" in problem:
            return f"an unknown or duplicate {kind}; quote a text that begins with {sign}"
    return problem


class Refused(ConstructorError):
    """Raised for what `_Strict` refuses; its message quotes nothing but a key."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(None, None, problem, mark)


class _Strict(yaml.SafeLoader):
    """A SafeLoader that refuses duplicate keys and endless structures, and raises nothing but YAMLError."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}  # nodes below a node, with aliases expanded

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        alias = isinstance(event, yaml.AliasEvent)
        node = super().compose_node(parent, index)
        if alias and id(node) not in self._sizes:
            raise Refused("an alias inside the node that it names", event.start_mark)
        children: list[Any] = []
        if isinstance(node, yaml.MappingNode):
            children = [n for pair in node.value for n in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        size = self._sizes[id(node)] = 1 + sum(self._sizes[id(child)] for child in children)
        if self.anchors and size > LARGEST:
            raise Refused(f"its aliases expand to more than {LARGEST} values", event.start_mark)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:  # 2026-02-30, !!int x: PyYAML lets Python's own errors through
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            raise Refused(f"a value looks like {kind} but is not valid", node.start_mark) from error
        if isinstance(value, str) and NO_TEXT.search(value):  # neither databases nor UTF-8 can hold it
            raise Refused("an escape such as \\0 or \\ud800 stands for no character", node.start_mark)
        return value

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool):
                if key in seen:
                    raise Refused(f"duplicate key {key!r}", key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)
