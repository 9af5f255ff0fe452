"""Reads what Kafka Connect's converter says in a JSON Schema about the values of properties: Connect's type, and in the
title the name that says what a number or text means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.formats.connect_json import Declaration, declaration_of


def row_properties(schema: Mapping[str, Any], *, envelope: bool) -> dict[str, Any]:
    """Returns the properties of the rows that a JSON Schema describes: its own, or with an envelope those of `after`."""
    if not envelope:
        return dict(schema.get("properties", {}))
    return dict(_not_null(schema, schema.get("properties", {}).get("after")).get("properties", {}))


def encoded_properties(schema: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Declaration]:
    """Returns how the properties are declared whose values mean something else than their type in JSON says."""
    found = dict[str, Declaration]()
    for name, one in properties.items():
        value = _not_null(schema, one)
        said = {
            "name": value.get("title"),
            "type": value.get("connect.type"),
            "parameters": value.get("connect.parameters"),
        }
        declaration = declaration_of(said) if isinstance(said["name"], str) else None
        if declaration is not None and declaration.encoding is not None:
            is_number = value.get("type") == "number"  # the converter's decimal.format is NUMERIC
            found[name] = Declaration(declaration.sql, None, declaration.note) if is_number else declaration
    return found


def _not_null(schema: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """Returns the schema of a value that is not null. It is empty if there is no such schema, or more than one."""
    if not isinstance(value, Mapping):
        return {}
    if isinstance(reference := value.get("$ref"), str):
        return _not_null(schema, _within(schema, reference))
    for word in ("oneOf", "anyOf"):
        if isinstance(branches := value.get(word), list):
            others = [one for one in branches if not (isinstance(one, Mapping) and one.get("type") == "null")]
            return _not_null(schema, others[0]) if len(others) == 1 else {}
    return value


def _within(schema: Mapping[str, Any], reference: str) -> Any:
    found: Any = schema if reference.startswith("#/") else None
    for part in reference.split("/")[1:]:
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is schema else found
