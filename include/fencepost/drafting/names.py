"""Names of columns for the fields of records, and of sources for topics, whatever the fields and topics are called."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping

from fencepost.config.source import SOURCE
from fencepost.formats.column_names import without_case

LONGEST_NAME = 255  # bytes
LONGEST_SOURCE = 63  # characters of a source's name


def why_not_read(field: str) -> str | None:
    """Returns the reason why no column can be read from a field of this name, or None."""
    if "\0" in field:
        return "a name with a NUL character cannot be read"
    return f"its name is longer than {LONGEST_NAME} bytes" if len(field.encode()) > LONGEST_NAME else None


def column_names(fields: Mapping[str, int]) -> dict[str, str]:
    """Returns the name of the column of each field. `fields` has the number of records of each field.

    A field has its own name if a column can have it; of names that differ only in case, the most frequent one. Each other
    field gets a similar name. The names do not depend on the order of the fields.
    """
    found, taken = dict[str, str](), set[str]()
    for field in sorted(fields, key=lambda one: (-fields[one], one)):
        if is_column_name(field) and without_case(field) not in taken:
            found[field] = free(field, taken)
    for field in sorted(fields.keys() - found.keys()):
        found[field] = free(similar(field), taken)
    return {field: found[field] for field in fields}


def is_column_name(name: str) -> bool:
    """Returns whether `source.schema` may declare a column of this name."""
    return re.fullmatch(r"\w+", name) is not None and not name.startswith("_")


def similar(name: str) -> str:
    """Returns a column's name that is like this name."""
    return re.sub(r"\W+", "_", name).strip("_") or "field"


def free(name: str, taken: set[str], longest: int | None = None) -> str:
    """Returns the name, or the first similar name that is not taken, and adds it to `taken`. `longest` is in characters."""
    number, found = 1, name[:longest]
    while without_case(found) in taken:
        number += 1
        end = f"_{number}"
        found = f"{name if longest is None else name[: longest - len(end)]}{end}"
    taken.add(without_case(found))
    return found


def source_names(topics: Iterable[str]) -> dict[str, str]:
    """Returns a name in `sources` for each topic. A name is like its topic, and is the name of an argument and of a view."""
    found, taken = dict[str, str](), set[str]()
    for topic in topics:
        name = re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")
        if not name[:1].isalpha():
            name = f"topic_{name}".rstrip("_")
        if keyword.iskeyword(name) or name == SOURCE:
            name = f"{name}_topic"
        found[topic] = free(name, taken, LONGEST_SOURCE)
    return found
