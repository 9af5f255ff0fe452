"""A pipeline's settings as its DAG carries them to where its folder is not: as they are written, and without a secret.

References to the environment stay references. What is a secret, or may be one, is left out by name; whoever needs it is told how
to give it instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from fencepost.config.asker import CONNECTED
from fencepost.config.kafka_options import COMMON, CONSUMER_ONLY, PRODUCER_ONLY, SHOWN_KAFKA
from fencepost.config.loading import REFERENCE, pipeline_of_values, read_settings
from fencepost.config.pipeline import Pipeline
from fencepost.config.postgres_options import SHOWN_POSTGRES
from fencepost.config.registry import SHOWN_REGISTRY
from fencepost.errors import SettingsError

# Sections that a plain reader of a pipeline's ledger needs. Transform, suite and Spark belong to jobs, which have the folder.
SECTIONS = ("description", "source", "output", "schedule", "quality", "lanes", "airflow", "notify")
PLAIN = {
    "kafka": SHOWN_KAFKA
    | COMMON
    | PRODUCER_ONLY
    | CONSUMER_ONLY
    | {"sasl.username", "client.rack", "client.dns.lookup"},
    "schema_registry": {
        *SHOWN_REGISTRY,
        "username",
        "timeout_seconds",
        "auto_register",
        "logical_cluster",
        "identity_pool",
    },
    "postgres": {*SHOWN_POSTGRES, "hostaddr", "passfile", "sslrootcert", "sslcert", "sslkey", "connect_timeout"},
}


def public_settings(pipeline: Pipeline) -> dict[str, Any]:
    """The settings in the pipeline's folder that hold no secret, as JSON can have them, and the names of those left out."""
    raw = read_settings(pipeline.folder)
    kept: dict[str, Any] = {name: _json(raw[name]) for name in SECTIONS if raw.get(name) is not None}
    left_out: list[str] = []
    for section in CONNECTED:
        if isinstance(values := raw.get(section), Mapping):
            kept[section] = {k: _json(v) for k, v in values.items() if _is_plain(section, str(k), v)}
            left_out += [f"{section}.{name}" for name in values if name not in kept[section]]
    return {"name": pipeline.name, "settings": kept, "left_out": left_out}


def _is_plain(section: str, name: str, value: object) -> bool:
    if name == "connection" or name in PLAIN[section] or name.endswith((".location", "_location")):
        return True
    found = REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return found is not None and found["name"] is not None and not found["default"]


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    return value.isoformat() if isinstance(value, datetime | date) else value


def pipeline_of_public(public: Mapping[str, Any]) -> Pipeline:
    """The pipeline of these settings, with the environment of this process. It has no folder: it can be looked at, not run.

    Raises:
        SettingsError: a variable is not set here, or a secret is missing that the folder has.
    """
    name, left_out = str(public["name"]), list(public["left_out"])
    nowhere = Path("/nonexistent") / name
    try:
        return pipeline_of_values(name, nowhere, dict(public["settings"]))
    except SettingsError as error:
        hint = "".join(_hints(left_out))
        raise SettingsError(f"{str(error).replace(str(nowhere), name)}{hint}") from None


def _hints(left_out: list[str]) -> Iterator[str]:
    if left_out:
        yield (
            f" A DAG carries no secret, so these are not here: {', '.join(left_out)}. Take them from a connection, or write them "
            "as ${NAME} and set the variable here too."
        )
