"""Merges the settings of Airflow's connections into those of a pipeline or a reader.

A pipeline names a connection in a section, and holds nothing else of it. Whoever starts a step looks it up and merges here; the
result is checked as settings in `pipeline.yaml` are. Nothing here knows Airflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pydantic import ValidationError

from fencepost.config.client_config import ClientConfig
from fencepost.config.secret_names import HARMLESS
from fencepost.config.services import SERVICES
from fencepost.config.services.connection import Connection, ConnectionSettings, Settings
from fencepost.config.services.service import Visibility
from fencepost.errors import FencepostError, LoginRefused, Retriable, SettingsError

AnyConfig = TypeVar("AnyConfig", bound=ClientConfig)


def resolved(
    config: AnyConfig, look_up: Callable[[str], Connection]
) -> tuple[AnyConfig, dict[str, ConnectionSettings]]:
    """The settings of a pipeline or reader with those of its connections under its own, and what each connection gave.

    Raises:
        SettingsError: what is wrong with the whole; names section, connection and setting, and never a secret.
    """
    given = {section: SERVICES[section].of_connection(look_up(name)) for section, name in config.connections.items()}
    return with_settings(config, {section: one.settings for section, one in given.items()}), given


def with_settings(config: AnyConfig, given: Mapping[str, Settings]) -> AnyConfig:
    """The settings of a pipeline or reader with these under its own, by section. Its own win, under whatever name they have.

    Raises:
        SettingsError: as `resolved`.
    """
    whole: dict[str, object] = {}
    for section, settings in given.items():
        where = f"{config.written_in}: {section}.connection {config.connections[section]}"
        service = SERVICES[section]
        own = config.own(service)
        replaced = service.replaced_by(own)
        try:
            whole[section] = service.checked({k: v for k, v in settings.items() if k not in replaced} | own)
        except ValidationError as error:  # its own text quotes what was given
            raise SettingsError(f"{where}: {'; '.join(_reasons(error))}.") from None
        except ValueError as error:
            raise SettingsError(f"{where}, with the settings beside it: {error}.") from None
    return config.model_copy(update={**whole, "resolved": True})


def _reasons(error: ValidationError) -> Iterator[str]:
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        name = ".".join(map(str, one["loc"]))
        yield f"{name}{': ' if name else ''}{one['msg'].removeprefix('Value error, ')}"


def settings_of(config: ClientConfig) -> dict[str, dict[str, str]]:
    """The whole settings of each section that has a connection, with their secrets in plain text, for `with_settings`."""
    return {section: config.own(SERVICES[section]) for section in config.connections}


def secrets_of(config: ClientConfig) -> list[str]:
    """Every value of these settings that logs have to mask; of a text of several lines each line too: logs have lines.

    A login that is called as the pipeline is none: masking it would mask the DAG's id in each line of its logs.
    """
    values = [
        value
        for section in config.connections
        for name, value in config.own(SERVICES[section]).items()
        if SERVICES[section].settings.get(name) is not Visibility.SHOWN
        and not HARMLESS.fullmatch(value)
        and value != config.name
    ]
    lines = (line for value in values if "\n" in value for line in value.splitlines() if not line.startswith("-----"))
    return [*values, *lines]


def is_worth_a_retry(error: BaseException, config: ClientConfig) -> bool:
    """Whether a new attempt may succeed. One that looks a connection up again may find the password that a login now needs."""
    return isinstance(error, Retriable) or (isinstance(error, LoginRefused) and bool(config.connections))


def message_with_connections(error: FencepostError, config: ClientConfig) -> str:
    """The error's message; of a refused login with the connections that it may have come from."""
    if not isinstance(error, LoginRefused) or not config.connections:
        return str(error)
    names = ", ".join(sorted(set(config.connections.values())))
    return f"{error} Settings come from Airflow's connection {names}; the next attempt looks it up again."
