"""Loads a pipeline from its folder. The result is a frozen value, or an error that names file, field and fix.

A folder holds `pipeline.yaml`, `transform.py` or `transform.sql`, and `expectations.yaml`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import (
    BaseModel,
    ValidationError,
)

from fencepost.config import side_tables
from fencepost.config.client_config import CHECKS
from fencepost.config.files import open_file, pipeline_folders, unreadable
from fencepost.config.names import PIPELINE_NAME
from fencepost.config.output_settings import kind_of, settings_of
from fencepost.config.pipeline import NOT_IN_FILE, Pipeline
from fencepost.config.references import NOT_SET, References, in_service
from fencepost.config.secret_names import SECRET_KEYS
from fencepost.config.services import SERVICES
from fencepost.config.services.postgres import POSTGRES
from fencepost.config.strict_yaml import read_yaml
from fencepost.errors import SettingsError, printable
from fencepost.paths import pipelines_folder


def load_pipelines(
    folder: Path | None = None, *, at_parse: bool = False
) -> tuple[dict[str, Pipeline], dict[str, SettingsError]]:
    """Returns all pipelines of a folder by name, and the error of each pipeline that could not be loaded. `at_parse`
    has the meaning of `load_pipeline`.
    """
    good: dict[str, Pipeline] = {}
    bad: dict[str, SettingsError] = {}
    for entry in pipeline_folders(folder or pipelines_folder()):
        try:
            good[entry.name] = load_pipeline(entry, at_parse=at_parse)
        except SettingsError as error:
            bad[printable(entry.name)] = error
    return good, bad


def find_pipeline(name: str) -> Pipeline:
    """Returns the pipeline of that name. The error for an unknown name lists the existing names."""
    return load_pipeline(folder_of(name))


def folder_of(name: str) -> Path:
    """Returns the folder of the pipeline of that name. Raises SettingsError with the existing names if there is none."""
    there = {entry.name: entry for entry in pipeline_folders(pipelines_folder())}
    if name not in there:
        raise SettingsError(f"no pipeline {name!r} in {pipelines_folder()}; there are: {', '.join(there) or 'none'}.")
    return there[name]


NO_SERVICES = {name: service.placeholder for name, service in SERVICES.items()}


def load_pipeline(folder: Path, *, offline: bool = False, at_parse: bool = False) -> Pipeline:
    """Reads and checks one pipeline's folder.

    `offline` is for callers that connect neither to Kafka nor to a registry. The sections of services are not read, and
    in the other sections a variable may be unset.

    `at_parse` is for the parse of a DAG file, which does not need the sections for services and Spark. A section that
    names an unset variable is then not read. The process of a task needs the section and reads it again.

    Raises:
        SettingsError: names file, field, what was found and what is allowed.
    """
    if not PIPELINE_NAME.fullmatch(folder.name):
        raise SettingsError(
            f"{folder}: the name of a pipeline's folder has at most 63 of a-z, 0-9 and _, and begins with a letter: it becomes "
            "the id of the DAG, and part of groups and transactional ids."
        )
    try:
        folder.stat()
    except OSError as error:
        raise unreadable(folder, error) from None
    raw = read_settings(folder)
    if offline:
        raw = _with_servers(raw, lambda name, value: NO_SERVICES[name])
    pipeline = pipeline_of_values(folder.name, folder, raw, unset=NOT_SET if offline else None, at_parse=at_parse)
    scripts = [f.name for f in (folder / "transform.py", folder / "transform.sql") if os.path.lexists(f)]
    if len(scripts) != 1:
        found = "both" if scripts else "neither"
        raise SettingsError(f"{folder}: expected one of transform.py and transform.sql, found {found}.")
    if not os.path.lexists(pipeline.expectations_file):
        raise SettingsError(
            f"{pipeline.expectations_file}: does not exist. Without expectations everything would pass; declare one."
        )
    for needed in (pipeline.transform_file, pipeline.expectations_file):
        open_file(needed).close()
    return pipeline


def read_settings(folder: Path) -> dict[str, Any]:
    """Returns the content of `pipeline.yaml`, as written. Raises SettingsError if it is not a mapping."""
    file = folder / "pipeline.yaml"
    raw = read_yaml(file)
    if not isinstance(raw, dict):
        raise SettingsError(
            f"{file}: expected a mapping with source, output and schedule, found {type(raw).__name__}; "
            "write a field as 'name: value', with a space."
        )
    return raw


def pipeline_of_values(
    name: str,
    folder: Path,
    raw: Mapping[Any, Any],
    *,
    unset: str | None = None,
    readable: Container[str] | None = None,
    at_parse: bool = False,
) -> Pipeline:
    """Returns the pipeline with these fields, and values from the environment.

    `unset`, with the variable's name, replaces a variable that is not set. `readable` limits the variables that are read.
    Without it, all variables except Airflow's own are read. `at_parse` has the meaning of `load_pipeline`.

    Raises:
        SettingsError: see `load_pipeline`.
    """
    file = folder / "pipeline.yaml"
    _check_fields(raw, file)
    references = References(file, unset, readable, at_parse)
    values = references.resolved(raw)
    values |= {section: NO_SERVICES.get(section, {}) for section in references.not_read}
    try:
        return Pipeline.model_validate(
            {**_without_empty(values), "name": name, "folder": folder}, by_alias=True, by_name=False
        )
    except ValidationError as error:
        raise SettingsError(_explain(error, file, references.secrets, values)) from None


def _check_fields(raw: Mapping[Any, Any], file: Path) -> None:
    for name in raw:
        if name in ("name", "folder"):
            raise SettingsError(f"{file}: {name}: not allowed here; the folder names the pipeline.")
        if name in NOT_IN_FILE:
            raise SettingsError(
                f"{file}: {name}: not allowed here. `connection` may be set only in the sections {', '.join(SERVICES)}."
            )
        if not isinstance(name, str):
            raise SettingsError(
                f"{file}: {_shown(name)}: unknown field; allowed here are {', '.join(_fields(Pipeline))}."
            )


def _with_servers(values: Mapping[str, Any], replaced: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Returns the values with each service's section replaced, also those of side tables."""
    found = {name: replaced(name, value) if name in SERVICES else value for name, value in values.items()}
    if isinstance(tables := values.get("tables"), dict):
        found["tables"] = {
            name: {k: replaced(k, v) if k == POSTGRES.name else v for k, v in table.items()}
            if isinstance(table, dict)
            else table
            for name, table in tables.items()
        }
    return found


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values without empty settings of services. So `${NAME:-}` omits a setting if the variable is not set."""

    def filled(name: str, section: Any) -> Any:
        if name not in CHECKS or not isinstance(section, dict):
            return section
        return {k: v for k, v in section.items() if v != ""}

    return _with_servers(values, filled)


def _explain(error: ValidationError, file: Path, secrets: set[str], values: Mapping[str, Any]) -> str:
    """Returns a line for each error, with its field, the value and what is allowed. Secrets are masked. `values` has
    the fields of the file.
    """
    lines = []
    for one in map(_in_file, error.errors(include_url=False)):
        where = ".".join(str(p) for p in one["loc"]) or "(whole file)"
        message = one["msg"].removeprefix("Value error, ")
        if one["type"] == "extra_forbidden":
            message = f"unknown field; allowed here are {', '.join(_siblings(one['loc'], values))}"
        elif one["type"] == "missing":
            message = "required but missing"
        elif one["type"] == "model_type":
            message = f"not a section; its fields are {', '.join(_siblings((*one['loc'], ''), values))}"
        elif one["type"] == "dict_type":
            message = "not a section of names and values"
        elif one["type"] in {"list_type", "tuple_type"}:
            message = "not a list"
        found = one["input"]
        if not _hidden(one["loc"], one):  # mask secrets first: a shortened one would not be recognised
            message += f" (found {_shown(_without(secrets, found) if isinstance(found, str) else found)})"
        lines.append(f"{file}: {where}: {message}")
    return _without(secrets, ";\n".join(lines) + ".")


def _in_file(one: Any) -> Any:
    """Returns the error with its place in the file. For example, `connections.kafka` in the model is kafka.connection
    in the file.
    """
    loc = one["loc"]
    if loc[:1] == ("several",) and one["type"] != "extra_forbidden":  # its default has no place in the file
        loc = ("sources", *loc[1:])
    elif loc[:1] == ("tables",) and loc[2:4] == (POSTGRES.name, POSTGRES.name):
        loc = (*loc[:3], *loc[4:])
    elif loc[:1] == ("tables",) and loc[3:4] == ("connections",):
        loc = (*loc[:3], "connection")
    elif loc[:1] == ("connections",):
        loc = (*loc[1:], "connection")
    return {**one, "loc": loc}


def _without(secrets: set[str], text: str) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _hidden(loc: tuple[int | str, ...], one: Any) -> bool:
    """Returns whether the message omits the value. It does if the value is a secret, or a section that may contain a
    secret.
    """
    names = [str(part) for part in loc]
    if (
        one["type"] == "missing"
        or (names and in_service(tuple(names))[0] in SERVICES)
        or SECRET_KEYS.search(".".join(names))
    ):
        return True
    return isinstance(one["input"], dict | list) and not (names[:1] == ["spark"] and len(names) > 1)


def _siblings(loc: tuple[int | str, ...], values: Mapping[str, Any]) -> list[str]:
    """Returns the fields that are allowed in the place of an unknown field. The fields that an output or a side table needs
    come first.
    """
    model: Any = Pipeline
    parts = [part for part in loc[:-1] if isinstance(part, str)]
    if parts[:1] == ["output"] and (kind := kind_of(values.get("output", {}))) is not None:
        model, parts = settings_of(kind), parts[1:]
    elif parts[:1] == ["tables"] and (of_table := side_tables.kind_of(values["tables"].get(parts[1]))) is not None:
        model, parts = side_tables.KINDS[of_table], parts[2:]
    if model is not Pipeline and not parts:
        fields = model.model_fields
        return [fields[n].alias or n for n in sorted(fields, key=lambda name: not fields[name].is_required())]
    while parts:
        name = parts.pop(0)
        annotation = next(field.annotation for n, field in model.model_fields.items() if name in (n, field.alias))
        kinds = get_args(annotation) or (annotation,)
        if get_origin(annotation) is dict:
            parts.pop(0)  # the key
            kinds = kinds[1:]
        model = next(kind for kind in kinds if kind is not type(None))  # a section may be optional
    return _fields(model)


def _fields(model: type[BaseModel]) -> list[str]:
    names = [f.alias or n for n, f in model.model_fields.items()]
    return [n for n in names if n not in NOT_IN_FILE] if model is Pipeline else names


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
