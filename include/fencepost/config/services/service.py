"""A service is a section of settings. Each setting is declared once, with who may see its value.

Masks, messages, pages, drafts, the settings that a DAG carries, and the use of Airflow's connections all follow this declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import get_args

from pydantic import BaseModel, SecretStr

from fencepost.config.services.connection import Connection, ConnectionSettings, Settings


class Visibility(Enum):
    """Who may see the value of a setting. Logs mask every value that is not `SHOWN`."""

    # Not a secret. Messages and pages show it, so it may not refer to a variable whose name looks like a secret's.
    SHOWN = auto()
    # Not a secret, and not shown. A DAG carries it.
    PRIVATE = auto()
    # The path of a file with a login. A DAG carries it, but a process that reads the DAG refuses it.
    LOGIN_FILE = auto()
    # A DAG carries at most the name of a variable.
    SECRET = auto()


@dataclass(frozen=True)
class Service:
    """A service, and everything that Fencepost knows about its settings.

    - `name` is the section in pipeline.yaml, `library` the client library.
    - `settings` has each setting. Any other is refused.
    - `beside_connection` has the settings that may stand beside a connection. They say who logs in and how, but never
      where the connection's secret is sent.
    - `decides_output` has the settings that count in a batch's digests.
    - `placeholder` replaces settings that are not read. The placeholder leads to no server.
    - `of_connection` takes settings from a connection. `replaced_by` names those that a pipeline's own settings
      replace.
    - `checked` checks whole settings and returns them in the form that a pipeline has. Wrong settings raise ValueError.
    - `where_carried` and `needed_where_carried` are for settings that a DAG carries, without a connection. The first
      returns settings that replace the pipeline's, and the second names those that are required. Otherwise the library
      would use what the reading process itself has.

    Raises:
        ValueError: one of these names a setting that `settings` does not declare.
    """

    name: str
    library: str
    settings: Mapping[str, Visibility]
    beside_connection: frozenset[str]
    placeholder: Settings
    of_connection: Callable[[Connection], ConnectionSettings]
    checked: Callable[[Settings], object]
    replaced_by: Callable[[Settings], frozenset[str]] = lambda own: frozenset()
    decides_output: frozenset[str] = frozenset()
    where_carried: Callable[[Settings], Settings] = lambda own: {}
    needed_where_carried: Callable[[Settings], frozenset[str]] = lambda own: frozenset()

    def __post_init__(self) -> None:
        used = {*self.beside_connection, *self.placeholder, *self.decides_output}
        if undeclared := sorted(used - self.settings.keys()):
            raise ValueError(f"service {self.name}: not declared: {', '.join(undeclared)}")

    def named(self, *visibilities: Visibility) -> frozenset[str]:
        """Returns the settings with one of these visibilities."""
        return frozenset(name for name, visibility in self.settings.items() if visibility in visibilities)

    def is_secret(self, name: str) -> bool:
        """Returns whether a setting is a secret. An undeclared setting counts as a secret."""
        return self.settings.get(name, Visibility.SECRET) is Visibility.SECRET


def declared(
    *, shown: Iterable[str], private: Iterable[str], login_files: Iterable[str], secret: Iterable[str]
) -> dict[str, Visibility]:
    """Returns the settings of a service that uses the names of its client library.

    Raises:
        ValueError: a setting is declared twice.
    """
    given = {
        Visibility.SHOWN: shown,
        Visibility.PRIVATE: private,
        Visibility.LOGIN_FILE: login_files,
        Visibility.SECRET: secret,
    }
    settings: dict[str, Visibility] = {}
    for visibility, names in given.items():
        for name in names:
            if name in settings:
                raise ValueError(f"{name} is declared twice: {settings[name].name} and {visibility.name}")
            settings[name] = visibility
    return settings


def declared_by(model: type[BaseModel]) -> dict[str, Visibility]:
    """Returns the settings of a service that are the fields of a model. `connection` is not a setting.

    Raises:
        ValueError: a field has no `Visibility` in its annotation, or several, or a secret is not a `SecretStr`.
    """
    settings: dict[str, Visibility] = {}
    for name, one in model.model_fields.items():
        if name == "connection":
            continue
        found = [mark for mark in one.metadata if isinstance(mark, Visibility)]
        if len(found) != 1:
            raise ValueError(f"{model.__name__}.{name}: annotate it with one Visibility; it has {len(found)}")
        if (found[0] is Visibility.SECRET) != (SecretStr in (one.annotation, *get_args(one.annotation))):
            raise ValueError(f"{model.__name__}.{name}: SecretStr is for secrets, and only for them")
        settings[name] = found[0]
    return settings


def checked_by(check: Callable[[Settings], None]) -> Callable[[Settings], dict[str, SecretStr]]:
    """Returns `Service.checked` of a service whose settings are in its library's names. `check` raises ValueError."""

    def checked(settings: Settings) -> dict[str, SecretStr]:
        check(settings)
        return hidden(settings)

    return checked


def hidden(settings: Settings) -> dict[str, SecretStr]:
    """Returns the settings in the form that a pipeline has. The text form of the settings shows no value."""
    return {name: SecretStr(value) for name, value in settings.items()}
