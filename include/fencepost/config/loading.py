"""A pipeline from its folder: one frozen value, or an error that names file, field and cure.

A folder holds `pipeline.yaml`, `transform.py` or `transform.sql`, and `expectations.yaml`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, get_args

from pydantic import (
    BaseModel,
    ValidationError,
)

from fencepost.config.kafka_options import SHOWN_KAFKA
from fencepost.config.pipeline import PIPELINE_NAME, Pipeline
from fencepost.config.secret_names import SECRET_KEYS, SECRET_NAMES, URL_WITH_PASSWORD
from fencepost.config.strict_yaml import read_yaml
from fencepost.errors import SettingsError
from fencepost.paths import pipelines_folder


def load_pipelines(folder: Path | None = None) -> tuple[dict[str, Pipeline], dict[str, SettingsError]]:
    """All pipelines of a folder by name, and beside them what is wrong with each that could not be loaded."""
    folder = folder or pipelines_folder()
    if not folder.is_dir():
        raise SettingsError(f"{folder}: no such folder. Set FENCEPOST_PIPELINES to the folder that holds pipelines.")
    good: dict[str, Pipeline] = {}
    bad: dict[str, SettingsError] = {}
    for entry in sorted(folder.iterdir()):
        if not entry.is_dir() or entry.name.startswith((".", "_")):
            continue
        try:
            good[entry.name] = load_pipeline(entry)
        except SettingsError as error:
            bad[entry.name] = error
    return good, bad


def find_pipeline(name: str) -> Pipeline:
    """The pipeline of that name; the error lists the names there are."""
    folder = pipelines_folder()
    if not PIPELINE_NAME.fullmatch(name) or not (folder / name).is_dir():
        there = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        raise SettingsError(f"no pipeline {name!r} in {folder}; there are: {', '.join(there) or 'none'}.")
    return load_pipeline(folder / name)


def load_pipeline(folder: Path) -> Pipeline:
    """Read and check one pipeline's folder.

    Raises:
        SettingsError: naming file, field, what was found and what is allowed.
    """
    file = folder / "pipeline.yaml"
    if not PIPELINE_NAME.fullmatch(folder.name):
        raise SettingsError(
            f"{folder}: a pipeline's folder is named with a-z, 0-9 and _, beginning with a letter, 63 at most; "
            "the name becomes its DAG, group and transactional ids."
        )
    raw = read_yaml(file)
    if not isinstance(raw, dict):
        raise SettingsError(
            f"{file}: expected a mapping with source, output and schedule, found {type(raw).__name__}; "
            "a field is written 'name: value', with a space."
        )
    for field in raw:
        if field in ("name", "folder"):
            raise SettingsError(f"{file}: {field}: not allowed here; a pipeline is named by its folder.")
        if not isinstance(field, str):
            raise SettingsError(
                f"{file}: {_shown(field)}: unknown field; allowed here are {', '.join(_fields(Pipeline))}."
            )
    secrets: set[str] = set()
    try:
        values = _with_environment(raw, file, secrets)
        pipeline = Pipeline(name=folder.name, folder=folder, **values)
    except ValidationError as error:
        raise SettingsError(_explain(error, file, secrets)) from None
    scripts = [f.name for f in (folder / "transform.py", folder / "transform.sql") if f.exists()]
    if len(scripts) != 1:
        found = "both" if scripts else "neither"
        raise SettingsError(f"{folder}: expected one of transform.py and transform.sql, found {found}.")
    if not pipeline.expectations_file.exists():
        raise SettingsError(
            f"{pipeline.expectations_file}: not there. A pipeline without expectations would pass everything; declare one."
        )
    return pipeline


# A reference, the escaped text `${`, or, without a name, what is neither.
REFERENCE = re.compile(r"\$?\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:(?!\$\{)[^}])*))?\})?")
# They show in messages and on pages.
PUBLIC = {
    ("source", "topic"),
    ("output", "topic"),
    ("quality", "quarantine_topic"),
    *(("kafka", name) for name in SHOWN_KAFKA),
}


def _with_environment(value: Any, file: Path, secrets: set[str], path: tuple[str, ...] = ()) -> Any:
    """`${NAME}` and `${NAME:-default}` replaced from the environment, where they are allowed; `$${` is the text `${`.

    What came from a name such as DB_PASSWORD is added to `secrets`, so that no message shows it.

    Raises:
        SettingsError: a reference stands where none is allowed, is not set, or would show a secret.
    """
    if isinstance(value, dict):
        return {k: _with_environment(v, file, secrets, (*path, str(k))) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_environment(v, file, secrets, (*path, str(i))) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def resolve(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        name = match["name"]
        if refusal := _refused_reference(path, name):
            raise SettingsError(f"{file}: {'.'.join(path)}: {refusal} The text ${{ itself is written $${{.")
        found = os.environ.get(name, match["default"])
        if found is None:
            raise SettingsError(
                f"{file}: {'.'.join(path)}: ${{{name}}} is not set in the environment; set it, or write ${{{name}:-default}}."
            )
        if URL_WITH_PASSWORD.search(found) and (path in PUBLIC or path[0] == "spark"):
            raise SettingsError(
                f"{file}: {'.'.join(path)}: ${{{name}}} holds a URL with a password, and this field shows in messages, on pages "
                "or among a process's arguments; take another variable."
            )
        if SECRET_NAMES.search(name) and len(found) > 2:
            secrets.add(found)
        return found

    return REFERENCE.sub(resolve, value)


def _refused_reference(path: tuple[str, ...], name: str | None) -> str | None:
    """Why this field takes no value from that variable of the environment."""
    if name is None:
        return "found ${ without a name of the environment behind it, as in ${NAME} or ${NAME:-default}."
    if path not in PUBLIC and path[0] not in {"kafka", "spark"}:
        return (
            f"${{{name}}} is not allowed here; the environment is taken for values under kafka and spark, source.topic, "
            "output.topic and quality.quarantine_topic."
        )
    if path in PUBLIC and SECRET_NAMES.search(name):
        return f"${{{name}}} looks like a secret, and this field shows in messages and on pages; take another variable."
    if path[0] == "spark" and (SECRET_NAMES.search(name) or SECRET_KEYS.search(path[-1])):
        return (
            f"${{{name}}} looks like a secret, and spark settings are arguments of spark-submit, which everybody on the machine "
            "can read; take it from os.environ in transform.py, or set it in Spark's own spark-defaults.conf."
        )
    return None


def _explain(error: ValidationError, file: Path, secrets: set[str]) -> str:
    """Every error with its field, what was found and what is allowed; without secrets."""
    lines = []
    for one in error.errors(include_url=False):
        where = ".".join(str(p) for p in one["loc"]) or "(whole file)"
        message = one["msg"].removeprefix("Value error, ")
        if one["type"] == "extra_forbidden":
            message = f"unknown field; allowed here are {', '.join(_siblings(one['loc']))}"
        elif one["type"] == "missing":
            message = "required, and missing"
        found = one["input"]
        if not _hidden(one["loc"], one):  # a secret is taken out first: shortened, it would not be known again
            message += f" (found {_shown(_without(secrets, found) if isinstance(found, str) else found)})"
        lines.append(f"{file}: {where}: {message}")
    return _without(secrets, ";\n".join(lines) + ".").encode("utf-8", "backslashreplace").decode()


def _without(secrets: set[str], text: str) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _hidden(loc: tuple[int | str, ...], one: Any) -> bool:
    """Whether an error is told without the value: a secret, or a section as a whole, which may hold one."""
    names = [str(part) for part in loc]
    if one["type"] == "missing" or "kafka" in names[:1] or SECRET_KEYS.search(".".join(names)):
        return True
    return isinstance(one["input"], dict | list) and not (names[:1] == ["spark"] and len(names) > 1)


def _siblings(loc: tuple[int | str, ...]) -> list[str]:
    """The fields allowed beside an unknown one."""
    model: Any = Pipeline
    for part in loc[:-1]:
        field = model.model_fields[part].annotation
        model = next(
            kind for kind in get_args(field) or (field,) if kind is not type(None)
        )  # a section may be optional
    return _fields(model)


def _fields(model: type[BaseModel]) -> list[str]:
    names = [f.alias or n for n, f in model.model_fields.items()]
    return [n for n in names if n not in {"name", "folder"}] if model is Pipeline else names


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
