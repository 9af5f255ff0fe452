"""A pipeline's schema registry: where it is, and who asks."""

from __future__ import annotations

import re
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fencepost.config.secret_names import NOT_BESIDE

NOT_BESIDE_CONNECTION = ("url", "ca_location")  # they decide who gets the connection's login


class RegistrySettings(BaseModel):
    """A registry with Confluent's REST interface. Locations are files in PEM. What `connection` has need not be here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: str | None = None
    url: str = Field(default="", validate_default=True)
    username: str | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None  # of a bearer
    logical_cluster: str | None = None  # Confluent Cloud asks for it beside a token
    identity_pool: str | None = None
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: SecretStr | None = None
    timeout_seconds: float = Field(default=10, gt=0, le=300)
    # Whether a write may register the schema of the transform's result. Otherwise a person registers it.
    auto_register: bool = False

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
            raise ValueError("holds a user, and messages show it; give username and password, or token")
        if not all(said) or re.search(r"[\s,?#]", url):
            raise ValueError("not a URL such as https://registry:8081")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _credentials_are_whole(self) -> Self:
        if self.connection is not None:
            if refused := [name for name in NOT_BESIDE_CONNECTION if name in self.model_fields_set]:
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
            raise ValueError("logical_cluster and identity_pool go with a token")
        for name in ("ca_location", "certificate_location", "key_location"):
            if "-----BEGIN" in (getattr(self, name) or ""):  # a message would show it as a path
                raise ValueError(f"{name} holds the text of a certificate or key, allowed is the path of a file")
        return self


SHOWN_REGISTRY = ("url",)  # messages show the values of these
