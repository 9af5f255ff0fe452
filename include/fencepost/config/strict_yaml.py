"""A YAML file as plain values, or a SettingsError with the line; whatever stands in the file.

What YAML allows and nobody means is refused: a key given twice, an alias of itself, aliases that multiply. Messages show
no text of the file but its keys: a password that begins with `*`, `!` or `&` is YAML's own syntax, and would be quoted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from fencepost.errors import SettingsError

NO_TEXT = re.compile("[\0\ud800-\udfff]")
LARGEST = 100_000  # nodes that a file's aliases may stand for


def read_yaml(file: Path) -> Any:
    """The file's content.

    Raises:
        SettingsError: it cannot be read or parsed; names the file, and the line where there is one.
    """
    try:
        return yaml.load(file.read_text(encoding="utf-8"), Loader=_Strict)  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        raise SettingsError(f"{file}: not there.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}.") from None
    except RecursionError:
        raise SettingsError(f"{file}: not valid YAML: nested too deeply.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{file}{where}: not valid YAML: {_problem(error)}.") from None


def _problem(error: yaml.YAMLError) -> str:
    """What is wrong, in YAML's words where they quote nothing of the file."""
    if isinstance(error, Refused):
        return str(error.problem)
    if isinstance(error, yaml.reader.ReaderError):
        return f"character {error.position + 1} of the file is a control character or none at all"
    problem = str(getattr(error, "problem", None) or "its syntax is wrong")
    # YAML quotes single characters and token names, which may stay; and names of aliases, anchors and tags.
    for kind, sign in (("alias", "*"), ("anchor", "&"), ("tag", "!")):
        if f"{kind} '" in problem or f"{kind} handle '" in problem:
            return f"an unknown or doubled {kind}; a text that begins with {sign} has to be quoted"
    return problem


class Refused(ConstructorError):
    """What `_Strict` refuses; its words quote nothing but a key."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(None, None, problem, mark)


class _Strict(yaml.SafeLoader):
    """SafeLoader that refuses doubled keys and what would never end, and raises nothing but YAMLError."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}  # nodes below a node, aliases written out

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        alias = isinstance(event, yaml.AliasEvent)
        node = super().compose_node(parent, index)
        if alias and id(node) not in self._sizes:
            raise Refused("an alias inside of what it names", event.start_mark)
        children: list[Any] = []
        if isinstance(node, yaml.MappingNode):
            children = [n for pair in node.value for n in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        size = self._sizes[id(node)] = 1 + sum(self._sizes[id(child)] for child in children)
        if self.anchors and size > LARGEST:
            raise Refused(f"its aliases stand for more than {LARGEST} values", event.start_mark)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:  # 2026-02-30, !!int x: PyYAML lets Python's own errors through
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            raise Refused(f"a value reads as {kind}, and is none", node.start_mark) from error
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
