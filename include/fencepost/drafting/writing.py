"""Writes the texts of YAML in a drafted pipeline. They are read exactly as meant, whatever the names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fencepost.config.source import SourceColumn
from fencepost.config.strict_yaml import read_yaml
from fencepost.errors import SettingsError

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
PLAIN_TYPE = re.compile(r"[A-Za-z0-9_<>:(),]+( not null)?")
WORDS_OF_YAML = frozenset("true false null yes no on off y n nan inf".split())
LISTED = 20  # left-out names that are listed in comments


def scalar(text: Any) -> str:
    """Returns a YAML value that is read back as this text, number or boolean."""
    if not isinstance(text, str):
        return json.dumps(text)
    if PLAIN.fullmatch(text) and text.lower() not in WORDS_OF_YAML:
        return text
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65_536 else f"\\U{code:08x}"


def printable(text: str) -> str:
    """Returns a record's text without characters that could end a line or change a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def in_comment(text: str) -> str:
    """Returns a record's name, printable and shortened, for a comment."""
    shown = printable(text) or '""'
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def block(text: str) -> Any:
    """Returns the content of a YAML text on its own, or None if it cannot be read."""
    with TemporaryDirectory(prefix="fencepost-") as folder:
        file = Path(folder) / "section.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            return read_yaml(file)
        except SettingsError:
            return None


def with_comments(lines: Sequence[tuple[str, str]], indent: str) -> str:
    """Returns the lines with aligned comments. After a long line the comment is not aligned."""
    width = min(34, max((len(line) for line, comment in lines if comment), default=0))
    return "".join(
        f"{indent}{line:{width}}  # {comment}\n" if comment else f"{indent}{line}\n" for line, comment in lines
    )


def column_line(name: str, column: SourceColumn) -> str:
    """Returns a column's declaration in YAML: its type alone, or a mapping of everything that is declared about it."""
    settings = column.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if settings.keys() == {"type"} and column.type is not None:
        return f"{scalar(name)}: {column.type if PLAIN_TYPE.fullmatch(column.type) else scalar(column.type)}"
    ordered = {part: settings[part] for part in ("field", *settings) if part in settings}
    return f"{scalar(name)}: {{{', '.join(f'{part}: {scalar(value)}' for part, value in ordered.items())}}}"


def listed(names: Mapping[str, str]) -> str:
    """Returns the names that are left out, each in a comment with its reason."""
    lines = [f"    # left out: {in_comment(name)}: {why}\n" for name, why in list(names.items())[:LISTED]]
    if len(names) > LISTED:
        lines.append(f"    # left out: {len(names) - LISTED:,} more names\n")
    return "".join(lines)


def suite_yaml(checks: Sequence[Mapping[str, Any]], records: int) -> str:
    lines = [
        f"# Drafted from {records:,} sampled records: each check held for all of them. A warning is reported and stops "
        "nothing.\n# Make it `critical` to reject a batch, or `quarantine` to send a row to quarantine. "
        "docs/expectations.md lists the types.\nexpectations:\n"
    ]
    for check in checks:
        lines.append(f"  - type: {check['type']}\n    severity: {check['severity']}\n")
        lines.append(f"    description: {scalar(check['description'])}\n    kwargs:\n")
        for name, value in check["kwargs"].items():
            text = f"[{', '.join(map(scalar, value))}]" if isinstance(value, list) else scalar(value)
            lines.append(f"      {name}: {text}\n")
    return "".join(lines)
