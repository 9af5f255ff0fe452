"""Merges the settings of Airflow connections into those of a pipeline or a reader.

A pipeline's section has only the name of a connection. The process that starts a step looks the connection up and
merges its settings into the section. The result is checked like settings in `pipeline.yaml`. This module does not
import Airflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pydantic import ValidationError

from fencepost.config.client_config import ClientConfig
from fencepost.config.secret_names import HARMLESS
from fencepost.config.services import SERVICES
from fencepost.config.services.connection import Connection, ConnectionSettings, Settings
from fencepost.config.services.service import Service, Visibility
from fencepost.errors import FencepostError, LoginRefused, Retriable, SettingsError

AnyConfig = TypeVar("AnyConfig", bound=ClientConfig)


def resolved(
    config: AnyConfig, look_up: Callable[[str], Connection]
) -> tuple[AnyConfig, dict[str, ConnectionSettings]]:
    """Returns the pipeline or reader with the settings of its connections merged in, and the settings that each
    connection gave.

    Raises:
        SettingsError: says what is wrong with the merged settings. The message names section, connection and setting,
            and never a secret.
    """
    given = {
        section: _service_of(section).of_connection(look_up(name)) for section, name in config.all_connections.items()
    }
    return with_settings(config, {section: one.settings for section, one in given.items()}), given


def with_settings(config: AnyConfig, given: Mapping[str, Settings]) -> AnyConfig:
    """Returns the pipeline or reader with these settings merged into its own, by section. The config's own settings
    take precedence, whatever name of a setting they use.

    Raises:
        SettingsError: see `resolved`.
    """
    within = {
        at: with_settings(
            one, {section: given[f"{at}.{section}"] for section in one.connections if f"{at}.{section}" in given}
        )
        for at, one in config.within.items()
    }
    whole: dict[str, object] = {}
    for section, name in config.connections.items():
        if (settings := given.get(section)) is None:
            continue
        service = SERVICES[section]
        where = f"{config.written_in}: {config.place(service)}.connection {name}"
        own = config.own(service)
        replaced = service.replaced_by(own)
        try:
            whole[section] = config.checked(service, {k: v for k, v in settings.items() if k not in replaced} | own)
        except ValidationError as error:  # the error's own text quotes values
            raise SettingsError(f"{where}: {'; '.join(_reasons(error))}.") from None
        except ValueError as error:
            raise SettingsError(f"{where}, with the settings beside it: {error}.") from None
    return config.with_within(within).model_copy(update={**whole, "resolved": True})


def _service_of(section: str) -> Service:
    """Returns the service of a section, which may be one of a side table, such as `tables.rates.postgres`."""
    return SERVICES[section.rpartition(".")[2]]


def _reasons(error: ValidationError) -> Iterator[str]:
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        name = ".".join(map(str, one["loc"]))
        yield f"{name}{': ' if name else ''}{one['msg'].removeprefix('Value error, ')}"


def settings_of(config: ClientConfig) -> dict[str, dict[str, str]]:
    """Returns the whole settings of each section that has a connection. The settings are plain texts with their
    secrets, for `with_settings`.
    """
    own = {section: config.own(SERVICES[section]) for section in config.connections}
    within = {
        f"{at}.{section}": found for at, one in config.within.items() for section, found in settings_of(one).items()
    }
    return {**own, **within}


def secrets_of(config: ClientConfig) -> list[str]:
    """Returns every value of these settings that logs have to mask. A text of several lines is masked line by line,
    because logs have lines.

    A login equal to the pipeline's name is not masked, because that would also hide the DAG's id in the logs.
    """
    values = [
        value
        for section, settings in settings_of(config).items()
        for name, value in settings.items()
        if _service_of(section).settings.get(name) is not Visibility.SHOWN
        and not HARMLESS.fullmatch(value)
        and value != config.name
    ]
    lines = (line for value in values if "\n" in value for line in value.splitlines() if not line.startswith("-----"))
    return [*values, *lines]


def is_worth_a_retry(error: BaseException, config: ClientConfig) -> bool:
    """Returns whether a new attempt may succeed. It looks the connection up again, and may get the password that a
    login now needs.
    """
    return isinstance(error, Retriable) or (isinstance(error, LoginRefused) and bool(config.all_connections))


def message_with_connections(error: FencepostError, config: ClientConfig) -> str:
    """Returns the error's message. For a refused login it adds the connections that the login may have come from."""
    if not isinstance(error, LoginRefused) or not config.all_connections:
        return str(error)
    names = ", ".join(sorted(set(config.all_connections.values())))
    return f"{error} Settings come from Airflow's connection {names}; the next attempt looks it up again."
