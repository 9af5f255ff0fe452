"""Drafts the sections of `pipeline.yaml` for Kafka and the registry. The sections come from another pipeline, from
options, or from the services on this machine. The file gets no secret: the name of a variable takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fencepost.config.files import read_file
from fencepost.config.loading import folder_of
from fencepost.config.references import is_reference
from fencepost.config.services.kafka import KAFKA
from fencepost.config.services.schema_registry import SCHEMA_REGISTRY
from fencepost.config.services.service import Service
from fencepost.config.strict_yaml import read_yaml
from fencepost.drafting.writing import block, scalar
from fencepost.errors import SettingsError

LOCAL_KAFKA = "bootstrap.servers: ${KAFKA_BOOTSTRAP:-127.0.0.1:9092}"
LOCAL_REGISTRY = "url: ${SCHEMA_REGISTRY_URL:-http://127.0.0.1:8081/apis/ccompat/v7}"


@dataclass(frozen=True)
class DraftConnection:
    """The text of the section `kafka`, of `schema_registry` if a registry is known, and of `spark` if another pipeline
    has that section.

    `given` says that a person has named the registry. Otherwise the registry is the one on this machine, if one runs.
    """

    kafka: str
    registry: str
    spark: str = ""
    given: bool = False


def connection_of(like: str | None, kafka: Sequence[str], registry: Sequence[str]) -> DraftConnection:
    """Returns the connection that `--like`, or `--kafka` and `--registry`, describe. The default are the services on
    this machine.

    Raises:
        SettingsError: the options exclude each other, are not `NAME=VALUE`, or contain a secret.
    """
    if like is not None and (kafka or registry):
        raise SettingsError(
            "--like takes all settings from another pipeline: give either --like, or --kafka and --registry."
        )
    if like is not None:
        return _like(folder_of(like) / "pipeline.yaml")
    of_kafka = _given("--kafka", KAFKA, kafka)
    of_registry = _given("--registry", SCHEMA_REGISTRY, registry)
    return DraftConnection(
        kafka=_section("kafka", of_kafka) if of_kafka else f"kafka:\n  {LOCAL_KAFKA}\n",
        registry=_section("schema_registry", of_registry)
        if of_registry
        else ("" if of_kafka else f"schema_registry:\n  {LOCAL_REGISTRY}\n"),
        given=bool(of_registry),
    )


def _given(option: str, service: Service, texts: Sequence[str]) -> dict[str, str]:
    given = dict[str, str]()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"{option} {name}: not NAME=VALUE, such as bootstrap.servers=broker:9092.")
        if name != "connection" and name not in service.settings:
            close = get_close_matches(name, service.settings, 1)
            hint = f"did you mean {close[0]}?" if close else f"allowed are {', '.join(service.settings)}."
            raise SettingsError(f"{option} {name}: unknown; {hint}")
        if name != "connection" and service.is_secret(name) and not is_reference(value):
            raise SettingsError(
                f"{option} {name}: a secret. Other users of this machine can see arguments, and pipeline.yaml would "
                f"keep the secret. Put the secret into an environment variable, and name the variable: {option} "
                f"'{name}=${{KAFKA_PASSWORD}}', in single quotes."
            )
        if name in given:
            raise SettingsError(f"{option} {name}: given twice.")
        given[name] = value
    return given


def _section(name: str, values: Mapping[str, str]) -> str:
    return f"{name}:\n" + "".join(f"  {scalar(key)}: {scalar(value)}\n" for key, value in values.items())


def _like(file: Path) -> DraftConnection:
    raw = read_yaml(file)
    if not isinstance(raw, dict) or not isinstance(raw.get("kafka"), dict):
        raise SettingsError(f"{file}: it has no section kafka to take. Give --kafka NAME=VALUE instead.")
    text = read_file(file).decode("utf-8-sig")
    found = {
        name: _as_written(text, name, raw[name]) for name in ("kafka", "schema_registry", "spark") if raw.get(name)
    }
    return DraftConnection(
        found["kafka"], found.get("schema_registry", ""), found.get("spark", ""), given="schema_registry" in found
    )


def _as_written(text: str, name: str, value: Any) -> str:
    """Returns the lines of an outermost section with their comments. If these lines alone do not have the section's
    values, it returns the values.
    """
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if re.match(rf"{name}\s*:", line)), None)
    if begin is not None:
        end = next((n for n in range(begin + 1, len(lines)) if lines[n][:1] not in ("", " ", "\t")), len(lines))
        section = "\n".join(lines[begin:end]).rstrip() + "\n"
        if block(section) == {name: value}:
            return section
    return _section(
        name,
        {str(k): v if isinstance(v, str) else str(v).lower() if isinstance(v, bool) else v for k, v in value.items()},
    )
