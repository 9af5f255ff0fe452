"""What a service is: a section of settings, each declared once with who may see its value.

Masks, messages, pages, drafts, what a DAG carries, and the use of Airflow's connections all follow this declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import get_args

from pydantic import BaseModel, SecretStr

from fencepost.config.services.connection import Connection, ConnectionSettings, Settings


class Visibility(Enum):
    """Who may see the value of a setting. Logs mask every value that is not `SHOWN`."""

    SHOWN = auto()  # No secret. Messages and pages show it, so it takes no variable that is called like a secret.
    PRIVATE = auto()  # No secret. A DAG carries it.
    LOGIN_FILE = auto()  # The path of a file to log in with. A DAG carries it, and whoever reads the DAG refuses it.
    SECRET = auto()  # A DAG carries the name of a variable at most.


@dataclass(frozen=True)
class Service:
    """A service, and all that Fencepost knows of its settings.

    - `name` is that of its section in pipeline.yaml, `library` that of the clients' library.
    - `settings` has each setting. Another one is refused.
    - `beside_connection`: settings that may stand beside a connection. They say who logs in and how, and never where the
      connection's secret goes.
    - `decides_output`: settings that count in a batch's digests.
    - `placeholder` stands for settings that are not read. It leads to no server.
    - `of_connection` takes settings from a connection. `replaced_by` names those that a pipeline's own settings replace.
    - `checked` puts whole settings into the form that a pipeline has them in; ValueError if they are wrong.
    - Settings without a connection, in a DAG that carries them, get `where_carried` over their own, and need
      `needed_where_carried`: what the library would otherwise take from the process that reads the DAG.

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
    where_carried: Settings = field(default_factory=dict)
    needed_where_carried: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        used = {*self.beside_connection, *self.placeholder, *self.decides_output, *self.where_carried}
        if undeclared := sorted((used | self.needed_where_carried) - self.settings.keys()):
            raise ValueError(f"service {self.name}: not declared: {', '.join(undeclared)}")

    def named(self, *visibilities: Visibility) -> frozenset[str]:
        """The settings that these may see."""
        return frozenset(name for name, visibility in self.settings.items() if visibility in visibilities)

    def is_secret(self, name: str) -> bool:
        """Whether a setting is a secret. One that is not declared counts as one."""
        return self.settings.get(name, Visibility.SECRET) is Visibility.SECRET


def declared(
    *, shown: Iterable[str], private: Iterable[str], login_files: Iterable[str], secret: Iterable[str]
) -> dict[str, Visibility]:
    """The settings of a service that has them by the names of its client library.

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
    """The settings of a service that has them as fields of a model. `connection` is none.

    Raises:
        ValueError: a field has no `Visibility` in its annotation, or several, or a secret is no `SecretStr`.
    """
    settings: dict[str, Visibility] = {}
    for name, one in model.model_fields.items():
        if name == "connection":
            continue
        found = [mark for mark in one.metadata if isinstance(mark, Visibility)]
        if len(found) != 1:
            raise ValueError(f"{model.__name__}.{name}: annotate it with one Visibility; it has {len(found)}")
        if (found[0] is Visibility.SECRET) != (SecretStr in (one.annotation, *get_args(one.annotation))):
            raise ValueError(f"{model.__name__}.{name}: a secret, and nothing else, is a SecretStr")
        settings[name] = found[0]
    return settings


def hidden(settings: Settings) -> dict[str, SecretStr]:
    """The settings in the form that a pipeline has them: no text of them shows a value."""
    return {name: SecretStr(value) for name, value in settings.items()}
