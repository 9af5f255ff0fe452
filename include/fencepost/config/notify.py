"""The settings for notifications: whom a pipeline notifies about its batches, and who may answer its questions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from fencepost.config.secret_names import looks_secret

Event = Literal["rejected", "failed", "late", "awaiting", "quarantined", "recovered"]
EVENTS: tuple[Event, ...] = get_args(Event)


class Notify(BaseModel):
    """An Airflow notifier, by its import path, and the events that it sends.

    `kwargs` are the notifier's own arguments: texts and names of connections, never secrets. Arguments that the
    notifier renders as templates get `fencepost`. `above` is for the event `quarantined`: up to this many quarantined
    records, the event is not sent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: tuple[Event, ...] = Field(min_length=1)
    notifier: str
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    above: int = Field(default=0, ge=0)
    backfills: bool = False

    @field_validator("on")
    @classmethod
    def _once_each(cls, on: tuple[Event, ...]) -> tuple[Event, ...]:
        if len(set(on)) != len(on):
            raise ValueError("names an event twice; name each once")
        return on

    @field_validator("notifier")
    @classmethod
    def _is_class(cls, path: str) -> str:
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", path):
            raise ValueError(
                "not the import path of a notifier, such as "
                "airflow.providers.slack.notifications.slack_webhook.SlackWebhookNotifier"
            )
        return path

    @field_validator("kwargs")
    @classmethod
    def _no_secrets(cls, kwargs: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name, text in _texts(kwargs):
            if "{{" not in text and looks_secret(name, text):
                raise ValueError(
                    f"{name} looks like a secret. Put it into an Airflow connection, and give the connection's "
                    "name: most notifiers have an argument ..._conn_id"
                )
        return kwargs

    @model_validator(mode="after")
    def _above_is_for_quarantined(self) -> Self:
        if self.above and "quarantined" not in self.on:
            raise ValueError("above works only with the event quarantined; add quarantined to on, or remove above")
        return self


class User(BaseModel):
    """An Airflow user."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1)
    name: str = Field(min_length=1)


class Ask(BaseModel):
    """The users who may answer the question about a rejected batch. Without `users`, everybody may answer who may
    answer questions of the DAG.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    assigned_users: tuple[User, ...] = ()


def _texts(value: JsonValue, name: str = "") -> Iterator[tuple[str, str]]:
    """Yields all texts within a value, each with its name."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, name)
    elif isinstance(value, str):
        yield name, value
