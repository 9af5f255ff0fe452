"""Reads values from the environment for `${NAME}` and `${NAME:-default}` in `pipeline.yaml`, and decides which settings
may have them.

A variable whose name looks like a secret's may not be used in a setting that messages or pages show.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from fencepost.config.output_settings import settings_of
from fencepost.config.pipeline import Pipeline
from fencepost.config.secret_names import OF_AIRFLOW, SECRET_NAMES, URL_WITH_PASSWORD
from fencepost.config.sections import Mark, marked
from fencepost.config.services import SERVICES
from fencepost.config.services.postgres import POSTGRES
from fencepost.config.services.service import Visibility
from fencepost.config.side_tables import KINDS
from fencepost.config.spark_options import ARGUMENTS
from fencepost.errors import SettingsError
from fencepost.output_kinds import OUTPUT_KINDS

NOT_SET = "not-set"
# The variable that lists which variables may be read for a DAG that carries its settings.
PAGES_ENVIRONMENT = "FENCEPOST_PAGES_ENVIRONMENT"
# Sections whose every value may be a reference.
ANY_VALUE = frozenset((*SERVICES, "spark"))
# Sections that may have references, and that the parse of a DAG file does not need.
MAY_BE_UNREAD = ANY_VALUE | {"tables"}
A_NAME = "<name>"  # in a path, in the place of the name of a source or a side table
NAMED = ("sources", "tables")  # sections that have a section for each name

# A reference, the escaped text `${`, or, if no name is found, a mistake.
REFERENCE = re.compile(r"\$?\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:(?!\$\{)[^}])*))?\})?")


def is_reference(value: object) -> bool:
    """Returns whether a value is exactly one reference. A reference with a default does not count, because the default
    may be a secret.
    """
    found = REFERENCE.fullmatch(value) if isinstance(value, str) and value.startswith("${") else None
    return found is not None and found["name"] is not None and not found["default"]


def _models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yields the models in a section's annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_of(part)


def from_environment() -> set[tuple[str, ...]]:
    """Returns the settings outside services that may have a reference, by section and name. It has the output settings
    of every kind, and of sections within them.
    """
    sections: list[tuple[tuple[str, ...], type[BaseModel]]]
    fields = {of.alias or name: of.annotation for name, of in Pipeline.model_fields.items()}
    sections = [
        ((name, A_NAME) if name in NAMED else (name,), model) for name, of in fields.items() for model in _models_of(of)
    ]
    for model in map(settings_of, OUTPUT_KINDS):
        sections.append((("output",), model))
        sections += [
            (("output", name), own) for name, of in model.model_fields.items() for own in _models_of(of.annotation)
        ]
    sections += [(("tables", A_NAME), model) for model in KINDS.values()]
    return {(*section, name) for section, model in sections for name in marked(model, Mark.FROM_ENVIRONMENT)}


def in_service(path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the path of a setting of a side table's own server as the path of that setting in the service's own section.
    Other paths are unchanged, but the name of a source or a side table is left out.
    """
    if path[0] not in NAMED or len(path) < 3:
        return path
    return path[2:] if path[0] == "tables" and path[2] == POSTGRES.name else (path[0], A_NAME, *path[2:])


def is_shown(path: tuple[str, ...]) -> bool:
    """Returns whether messages and pages show the value of this setting. The question arises only for settings that may
    have a reference.
    """
    path = in_service(path)
    service = SERVICES.get(path[0])
    if service is None:
        return path in from_environment()
    return path[1:] in {(name,) for name in ("connection", *service.named(Visibility.SHOWN))}


@dataclass(frozen=True)
class References:
    """Replaces `${NAME}` and `${NAME:-default}` from the environment. `$${` gives the text `${`. With `unset`, a variable that is
    not set is replaced by this text and its name.

    The value of a variable such as DB_PASSWORD is added to `secrets`, so that no message shows it. At the parse of a DAG file, a
    section with a variable that is not set is added to `not_read`.
    """

    file: Path
    unset: str | None
    readable: Container[str] | None
    at_parse: bool = False
    secrets: set[str] = field(default_factory=set)
    not_read: set[str] = field(default_factory=set)  # at a parse: the sections with a variable that is not set

    def resolved(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """Returns the value with its references replaced.

        Raises:
            SettingsError: a reference is not allowed in this place, is not set, or would show a secret.
        """
        if isinstance(value, dict):
            return {k: self.resolved(v, (*path, str(k))) for k, v in value.items()}
        if isinstance(value, list):
            return [self.resolved(v, (*path, str(i))) for i, v in enumerate(value)]
        return REFERENCE.sub(lambda match: self._one(match, path), value) if isinstance(value, str) else value

    def _one(self, match: re.Match[str], path: tuple[str, ...]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        name, where = match["name"], f"{self.file}: {'.'.join(path)}"
        if refusal := _refused_reference(path, name):
            raise SettingsError(f"{where}: {refusal} Write $${{ for the text ${{ itself.")
        if self.readable is not None and name not in self.readable:
            raise SettingsError(
                f"{where}: ${{{name}}} is not read here, because {PAGES_ENVIRONMENT} does not list it. Take the "
                f"setting from a connection. Or add {name} to {PAGES_ENVIRONMENT} in the environment of the API "
                f"server and the triggerer. Then any author of a DAG can have the value of {name} sent anywhere."
            )
        unset = None if self.unset is None else f"{self.unset}-{name}"  # two topics stay two
        found = os.environ.get(name, unset if match["default"] is None else match["default"])
        if found is None and self.at_parse and path[0] in MAY_BE_UNREAD:
            self.not_read.add(path[0])
            return NOT_SET
        if found is None:
            raise SettingsError(
                f"{where}: ${{{name}}} is not set in the environment; set it, or write ${{{name}:-default}}."
            )
        if URL_WITH_PASSWORD.search(found) and (is_shown(path) or path[0] == "spark"):
            raise SettingsError(
                f"{where}: ${{{name}}} holds a URL with a password, but messages, pages or a process's arguments "
                "show this field. Use another variable."
            )
        if SECRET_NAMES.search(name) and len(found) > 2:
            self.secrets.add(found)
        return found


def _refused_reference(path: tuple[str, ...], name: str | None) -> str | None:
    """Returns the reason why this field cannot take its value from that environment variable, or None."""
    if name is None:
        return "found ${ without the name of a variable, as in ${NAME} or ${NAME:-default}."
    if not is_shown(path) and in_service(path)[0] not in ANY_VALUE:
        return (
            f"${{{name}}} is not allowed here; only values under {', '.join(SERVICES)}, tables.{A_NAME}.{POSTGRES.name} and "
            f"spark, and {', '.join(sorted(map('.'.join, from_environment())))}, may come from the environment."
        )
    if is_shown(path) and SECRET_NAMES.search(name):
        return f"${{{name}}} looks like a secret, but messages and pages show this field; use another variable."
    if path[0] == "spark" and SECRET_NAMES.search(name):
        return f"${{{name}}} {ARGUMENTS}."
    if OF_AIRFLOW.match(name):
        return (
            f"${{{name}}} is one of Airflow's own settings, connections and variables, which pipelines may not use. "
            "Name a connection, or use another variable."
        )
    return None
