"""An Airflow connection as plain values, and the settings in its `extra`. This module does not import Airflow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost.config.strict_yaml import NO_TEXT
from fencepost.errors import SettingsError

Settings = Mapping[str, str]


@dataclass(frozen=True)
class Connection:
    """A connection as Airflow stores it. `extra` is JSON. The connection has secrets, so its text form shows only the name."""

    id: str
    host: str | None = field(default=None, repr=False)
    schema: str | None = field(default=None, repr=False)
    login: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    port: int | None = field(default=None, repr=False)
    extra: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ConnectionSettings:
    """The settings that a connection gives to a service, and the names of its entries that the service does not use."""

    settings: Settings
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ConnectionSettings({', '.join(sorted(self.settings))})"


def settings_without(values: Settings, unused: frozenset[str]) -> ConnectionSettings:
    """Returns the values without the unused names."""
    used = {name: value for name, value in values.items() if name not in unused}
    return ConnectionSettings(used, tuple(sorted(values.keys() - used.keys())))


def extra_of(connection: Connection) -> dict[str, str]:
    """Returns the extra's values as texts, with numbers as written and booleans in lower case. Null and empty values
    are left out.

    Raises:
        SettingsError: the extra is not a JSON object of texts, numbers and booleans. The message quotes nothing of the
            extra.
    """
    where = f"connection {connection.id}: its extra"
    try:
        # Numbers stay as written: a float would turn 10000000000000001 or 0.10 into another text.
        values = json.loads(connection.extra or "{}", parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        raise SettingsError(f"{where} is not JSON.") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{where} is not a JSON object, with a name for each setting.")
    texts: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, bool):
            texts[name] = str(value).lower()
        elif isinstance(value, str):
            if NO_TEXT.search(value):
                raise SettingsError(f"{where}: {name} contains a character that no setting can have.")
            texts[name] = str(value)
        elif value is not None:
            raise SettingsError(f"{where} has an object or a list as {name}; allowed are texts, numbers and booleans.")
    return {name: value for name, value in texts.items() if value != ""}


class _Number(str):
    """A JSON number as written. `1e3` and `5.0` become whole numbers, because librdkafka reads only these."""

    def __new__(cls, text: str) -> _Number:
        if re.search(r"[.eE]", text) and len(text) < 20 and float(text).is_integer():
            return super().__new__(cls, int(float(text)))
        return super().__new__(cls, text)
