"""The settings that a pipeline's DAG carries to machines without the pipeline's folder. The settings are carried as
written, without secrets.

References to the environment stay references. For a setting that is or may be a secret, only its name is carried. An
error that needs the setting says how to provide it.

The author of a DAG decides what the DAG carries, and may use other code than this module. The API server and the
triggerer read it with their own environment and files. So a DAG's settings get only the variables that the operator
lists, and no login from a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from fencepost.config.client_config import ClientConfig
from fencepost.config.loading import pipeline_of_values, read_settings
from fencepost.config.names import PIPELINE_NAME
from fencepost.config.pipeline import Pipeline
from fencepost.config.references import PAGES_ENVIRONMENT, is_reference
from fencepost.config.services import SERVICES
from fencepost.config.services.postgres import POSTGRES
from fencepost.config.services.service import Service, Visibility
from fencepost.errors import SettingsError

# Sections that a reader of a pipeline's ledger needs, besides those of services. Only jobs need transform, suite and
# Spark, and jobs have the folder.
SECTIONS = ("description", "source", "sources", "tables", "output", "schedule", "quality", "lanes", "airflow", "notify")


def public_settings(pipeline: Pipeline) -> dict[str, Any]:
    """Returns the settings in the pipeline's folder that contain no secret, and the names of the settings that are left
    out. The form fits JSON.
    """
    raw = read_settings(pipeline.folder)
    kept: dict[str, Any] = {name: _json(raw[name]) for name in SECTIONS if raw.get(name) is not None}
    left_out: list[str] = []
    for name, service in SERVICES.items():
        if isinstance(values := raw.get(name), Mapping):
            kept[name] = _carried(service, values)
            left_out += [f"{name}.{setting}" for setting in values if setting not in kept[name]]
    for at, table in _tables_with_servers(kept):
        values = table[POSTGRES.name]
        table[POSTGRES.name] = _carried(POSTGRES, values)
        left_out += [f"{at}.{POSTGRES.name}.{setting}" for setting in values if setting not in table[POSTGRES.name]]
    return {"settings": kept, "left_out": left_out}


def _carried(service: Service, values: Mapping[str, Any]) -> dict[str, Any]:
    return {str(k): _json(v) for k, v in values.items() if _is_carried(service, str(k), v)}


def _tables_with_servers(settings: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the side tables that have a server of their own, with their place in the settings."""
    tables = settings.get("tables")
    for name, table in tables.items() if isinstance(tables, Mapping) else ():
        if isinstance(table, dict) and isinstance(table.get(POSTGRES.name), Mapping):
            yield f"tables.{name}", table


def _is_carried(service: Service, name: str, value: object) -> bool:
    return name == "connection" or not service.is_secret(name) or is_reference(value)


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    return value.isoformat() if isinstance(value, datetime | date) else value


def pipeline_of_public(public: Mapping[str, Any], dag_id: str) -> Pipeline:
    """Returns the pipeline with the settings that this DAG carries. The pipeline's name is the DAG's id. It has no
    folder, so pages can show it but nothing can run it.

    The pipeline may use only the environment variables that `FENCEPOST_PAGES_ENVIRONMENT` lists. The pipeline may use
    no files of this machine except certificates of authorities.

    Raises:
        SettingsError: a variable is not listed or not set on this machine, a login is in a file, or the folder has a
            secret that is missing in the DAG.
    """
    settings, left_out = public.get("settings"), public.get("left_out")
    if not PIPELINE_NAME.fullmatch(dag_id) or not isinstance(settings, Mapping) or not isinstance(left_out, list):
        raise SettingsError(f"DAG {dag_id}: it carries no valid settings of a pipeline. Build it with build_dags.")
    listed = frozenset(name.strip() for name in os.environ.get(PAGES_ENVIRONMENT, "").split(","))
    nowhere = Path("/nonexistent") / dag_id
    settings = _json(settings)
    services = [(settings, service) for service in SERVICES.values()]
    for section, service in [*services, *((table, POSTGRES) for _, table in _tables_with_servers(settings))]:
        if isinstance(values := section.get(service.name), Mapping) and "connection" not in values:
            section[service.name] = {**values, **service.where_carried(values)}
    try:
        pipeline = pipeline_of_values(dag_id, nowhere, settings, readable=listed)
        for one in (pipeline, *pipeline.within.values()):
            _check_logins(one, nowhere / "pipeline.yaml")
    except SettingsError as error:
        hint = "".join(_hints(left_out))
        raise SettingsError(f"{str(error).replace(str(nowhere), dag_id)}{hint}") from None
    return pipeline


def _check_logins(config: ClientConfig, file: Path) -> None:
    """Refuses logins from this process's own files, and from sources that a client library would use by default."""
    for name, service in SERVICES.items():
        given = config.own(service)
        if files := sorted(given.keys() & service.named(Visibility.LOGIN_FILE)):
            raise SettingsError(
                f"{file}: {config.place(service)}.{files[0]}: a file of this machine, which is not used for a DAG that carries "
                "its settings. Take the login from a connection."
            )
        missing = sorted(service.needed_where_carried(given) - given.keys())
        if given and name not in config.connections and missing:
            raise SettingsError(
                f"{file}: {config.place(service)}.{missing[0]}: required here, because {service.library} would otherwise take it "
                "from this process's own environment or files. Take the login from a connection."
            )


def _hints(left_out: list[Any]) -> Iterator[str]:
    if left_out:
        yield (
            f" A DAG carries no secret, so these settings are missing here: {', '.join(map(str, left_out))}. Take "
            f"them from a connection. Or write them as ${{NAME}}, set the variable here, and list it in "
            f"{PAGES_ENVIRONMENT}."
        )
