"""Declares the service of a schema registry, with its address and login. To add a setting, add a field with its
`Visibility` to `RegistrySettings`.
"""

from __future__ import annotations

import re
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fencepost.config.secret_names import NOT_BESIDE
from fencepost.config.services.connection import Connection, ConnectionSettings, Settings, extra_of, settings_without
from fencepost.config.services.service import Service, Visibility, declared_by
from fencepost.errors import SettingsError

BESIDE_CONNECTION = frozenset(
    """username password token logical_cluster identity_pool certificate_location key_location key_password timeout_seconds
    auto_register""".split()
)


class RegistrySettings(BaseModel):
    """A registry with Confluent's REST interface. Locations are PEM files. Settings that a connection provides may be
    missing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: str | None = None
    url: Annotated[str, Visibility.SHOWN] = Field(default="", validate_default=True)
    username: Annotated[str | None, Visibility.PRIVATE] = None
    password: Annotated[SecretStr | None, Visibility.SECRET] = None
    token: Annotated[SecretStr | None, Visibility.SECRET] = None  # with a bearer token
    logical_cluster: Annotated[str | None, Visibility.PRIVATE] = None  # Confluent Cloud requires it with a token
    identity_pool: Annotated[str | None, Visibility.PRIVATE] = None
    ca_location: Annotated[str | None, Visibility.PRIVATE] = None
    certificate_location: Annotated[str | None, Visibility.LOGIN_FILE] = None
    key_location: Annotated[str | None, Visibility.LOGIN_FILE] = None
    key_password: Annotated[SecretStr | None, Visibility.SECRET] = None
    timeout_seconds: Annotated[float, Visibility.PRIVATE] = Field(default=10, gt=0, le=300)
    # Whether a write may register the schema of the transform's result. Otherwise a person registers it.
    auto_register: Annotated[bool, Visibility.PRIVATE] = False

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str, about: ValidationInfo) -> str:
        if not url and about.data.get("connection") is not None:
            return url
        if not url:
            raise PydanticCustomError("missing", "required but missing")
        try:
            parts = urlsplit(url)
            said = (parts.scheme in ("http", "https"), parts.hostname, parts.port is None or parts.port > 0)
        except ValueError:
            said = (False, None, False)
        if "@" in url:
            raise ValueError(
                "the URL contains a user, and messages show the URL; set username and password, or token, instead"
            )
        if not all(said) or re.search(r"[\s,?#]", url):
            raise ValueError("not a URL such as https://registry:8081")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _credentials_are_whole(self) -> Self:
        if self.connection is not None:
            given = (name for name in type(self).model_fields if name in self.model_fields_set)
            if refused := [name for name in given if name not in BESIDE_CONNECTION | {"connection"}]:
                raise ValueError(f"{' and '.join(refused)} {NOT_BESIDE}")
            return self
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together; one of them is missing")
        if self.username is not None and ":" in self.username:
            raise ValueError("username contains a colon, which HTTP's basic authentication cannot carry")
        if self.username is not None and self.token is not None:
            raise ValueError("give username and password, or token, and not both")
        if self.key_location is not None and self.certificate_location is None:
            raise ValueError("key_location needs certificate_location")
        if self.key_password is not None and self.certificate_location is None:
            raise ValueError("key_password needs certificate_location")
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token.get_secret_value()):
            raise ValueError(
                "token is empty, or holds a space, a line break or another character that HTTP cannot carry"
            )
        if self.token is None and (self.logical_cluster or self.identity_pool):
            raise ValueError("logical_cluster and identity_pool need a token")
        for name in ("ca_location", "certificate_location", "key_location"):
            if "-----BEGIN" in (getattr(self, name) or ""):  # a message would show the text as if it were a path
                raise ValueError(f"{name} holds the text of a certificate or key, allowed is the path of a file")
        return self


# Fencepost's names, and those of confluent-kafka's client for a registry.
CLIENT_NAMES = {
    "url": "url",
    "token": "bearer.auth.token",
    "logical_cluster": "bearer.auth.logical.cluster",
    "identity_pool": "bearer.auth.identity.pool.id",
    "ca_location": "ssl.ca.location",
    "certificate_location": "ssl.certificate.location",
    "key_location": "ssl.key.location",
    "key_password": "ssl.key.password",
    "timeout_seconds": "timeout",
}
USER_INFO = "basic.auth.user.info"
SOURCES = {"basic.auth.credentials.source": ("USER_INFO", "URL"), "bearer.auth.credentials.source": ("STATIC_TOKEN",)}
UNUSED = frozenset(
    "auto.register.schemas cache.capacity cache.latest.ttl.sec max.retries normalize.schemas retries.max.wait.ms retries.wait.ms "
    "use.latest.version".split()
)


def registry_of(connection: Connection) -> ConnectionSettings:
    """Returns the settings of a registry from a connection of type `http`. The settings are the connection's host,
    login and password, and those in its extra, in the names of confluent-kafka's client.

    Raises:
        SettingsError: the extra is not a JSON object of texts, numbers and booleans, or has settings that Fencepost does not pass
        on.
    """
    where, extra = f"schema_registry.connection {connection.id}", extra_of(connection)
    for name, allowed in SOURCES.items():
        if (source := extra.pop(name, allowed[0]).upper()) not in allowed:
            raise SettingsError(f"{where}: {name} is {source}, allowed is {allowed[0]}.")
    settings: dict[str, str] = {}
    if connection.host:
        at = connection.host
        if "://" not in at:
            at = f"{connection.schema or 'http'}://{at}"
        settings["url"] = f"{at}:{connection.port}" if connection.port else at
    if connection.login is not None and connection.password is not None:
        settings |= {"username": connection.login, "password": connection.password}
    if USER_INFO in extra:
        user, colon, password = extra.pop(USER_INFO).partition(":")
        if not colon:
            raise SettingsError(f"{where}: {USER_INFO} has no colon; it is user:password.")
        settings |= {"username": user, "password": password}
    found = settings_without(extra, UNUSED)
    own_names = {client: own for own, client in CLIENT_NAMES.items()}
    for name, value in found.settings.items():
        if name not in own_names:
            raise SettingsError(
                f"{where}: {name} is not allowed. Allowed are {', '.join(sorted([*own_names, *SOURCES, USER_INFO]))}."
            )
        settings[own_names[name]] = value
    return ConnectionSettings(settings, found.left_out)


def _replaced_by(own: Settings) -> frozenset[str]:
    """Returns the connection's settings for a login, if the pipeline's own settings choose another way to log in."""
    replaced: set[str] = set()
    if "token" in own:
        replaced |= {"username", "password"}
    if own.keys() & {"username", "password"}:
        replaced |= {"token", "logical_cluster", "identity_pool"}
    return frozenset(replaced)


SCHEMA_REGISTRY = Service(
    name="schema_registry",
    library="confluent-kafka",
    settings=declared_by(RegistrySettings),
    beside_connection=BESIDE_CONNECTION,
    placeholder={"url": "http://127.0.0.1:1"},
    of_connection=registry_of,
    checked=RegistrySettings.model_validate,
    replaced_by=_replaced_by,
    decides_output=frozenset({"url"}),  # the same id is another schema in another registry
)
