"""Reads any YAML 1.2 file as plain values, or raises SettingsError with the line.

In YAML 1.1, which most libraries read, `NO` is a boolean, `010` is 8, `12:30` is 750 and `1_000` is a number. This
reader reads these values as texts. The reader refuses a number that begins with 0, because YAML 1.2 would drop the 0.
Dates and times are still values, and `<<` merges.

The reader also refuses what YAML allows but nobody means: a key that occurs twice, an anchor that occurs twice, an
alias of itself, and aliases that multiply. Messages quote nothing from the file except keys, because YAML reads a
password that begins with `*`, `!` or `&` as syntax and would quote it.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.resolver import VersionedResolver

from fencepost.config.files import read_file
from fencepost.errors import SettingsError
from fencepost.suite.numbers import NumberWithText, written

NO_TEXT = re.compile("[\0\ud800-\udfff]")
LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
LARGEST = 100_000  # nodes that a file's aliases may expand to
CORE = "tag:yaml.org,2002:"
# The plain texts that have other types: YAML 1.2's core schema, with times and merges. The last column has their first
# characters.
PLAIN = {
    "null": (r"(?:~|null|Null|NULL|)\Z", "~nN"),  # the empty text too
    "bool": (r"(?:true|True|TRUE|false|False|FALSE)\Z", "tTfF"),
    "int": (r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", "-+0123456789"),
    "float": (
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z",
        "-+.0123456789",
    ),
    "timestamp": (
        r"[0-9]{4}-(?:[0-9]{2}-[0-9]{2}|[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?"
        r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)\Z",
        "0123456789",
    ),
    "merge": (r"<<\Z", "<"),
}
BY_FIRST = {
    first: [(CORE + name, re.compile(pattern)) for name, (pattern, firsts) in PLAIN.items() if first in firsts]
    for first in {"", *"".join(firsts for _, firsts in PLAIN.values())}
}


def read_yaml(file: Path) -> Any:
    """Returns the file's content.

    Raises:
        SettingsError: the file cannot be read or parsed. The message names the file, and the line if there is one.
    """
    reader = YAML(typ="safe", pure=True)
    reader.Resolver, reader.Composer, reader.Constructor = _Resolver, _Composer, _Constructor
    try:
        return reader.load(read_file(file).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: cannot be read: {error}.") from None
    except RecursionError:
        raise SettingsError(f"{file}: not valid YAML: nested too deeply.") from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{file}{where}: not valid YAML: {_problem(error)}.") from None


def _problem(error: YAMLError) -> str:
    """Describes what is wrong, in YAML's words if they quote nothing from the file."""
    if isinstance(error, Refused):
        return str(error.problem)
    if isinstance(error, ReaderError):
        return f"character {error.position + 1} of the file is a control character or not a character"
    problem = str(getattr(error, "problem", None) or "its syntax is wrong")
    # YAML's words may quote single characters and token names. They may not quote names of aliases, anchors and tags.
    for kind, sign in (("alias", "*"), ("anchor", "&"), ("tag", "!")):
        if f"{kind} '" in problem or f"{kind} handle '" in problem:
            return f"an unknown or duplicate {kind}; quote a text that begins with {sign}"
    return problem


class Refused(ConstructorError):
    """Raised for a value that this module refuses. The message quotes at most a key."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(None, None, problem, mark)


class _Resolver(VersionedResolver):
    """Reads every file as YAML 1.2, even a file that says `%YAML 1.1`."""

    @property
    def processing_version(self) -> tuple[int, int]:
        return 1, 2

    @property
    def versioned_resolver(self) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
        """Returns the tags that a plain text may have, by its first character."""
        return BY_FIRST


class _Composer(Composer):
    """Refuses endless structures."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self._sizes: dict[int, int] = {}  # nodes below a node, with aliases expanded

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        alias = isinstance(event, AliasEvent)
        if not alias and event.anchor in self.anchors:
            raise Refused("an unknown or duplicate anchor; quote a text that begins with &", event.start_mark)
        node = super().compose_node(parent, index)
        if alias and id(node) not in self._sizes:
            raise Refused("an alias inside the node that it names", event.start_mark)
        children: list[Any] = []
        if isinstance(node, MappingNode):
            children = [n for pair in node.value for n in pair]
        elif isinstance(node, SequenceNode):
            children = node.value
        size = self._sizes[id(node)] = 1 + sum(self._sizes[id(child)] for child in children)
        if self.anchors and size > LARGEST:
            raise Refused(f"its aliases expand to more than {LARGEST} values", event.start_mark)
        return node


class _Constructor(SafeConstructor):
    """Refuses duplicate keys and invalid values, and raises only YAMLError."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (YAMLError, RecursionError):
            raise
        except Exception as error:  # 2026-02-30, !!int x: ruamel.yaml does not catch Python's own errors
            kind = str(node.tag).removeprefix(CORE)
            raise Refused(f"a value looks like {kind} but is not valid", node.start_mark) from error
        if isinstance(value, str) and NO_TEXT.search(value):  # neither databases nor UTF-8 can hold this character
            raise Refused("an escape such as \\0 or \\ud800 is not a character", node.start_mark)
        if type(value) is float and isinstance(node, ScalarNode) and math.isfinite(value):
            value = written(value, node.value)
        if (
            type(value) in (int, float, NumberWithText)
            and isinstance(node, ScalarNode)
            and LEADING_ZERO.match(node.value)
        ):
            raise Refused(
                "a number begins with 0; leave the 0 out, or quote the value if it is a text", node.start_mark
            )
        return value

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key_node, _ in node.value if isinstance(node, MappingNode) else ():
            if key_node.tag == CORE + "merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool):
                if key in seen:
                    raise Refused(f"duplicate key {key!r}", key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)
