"""What a connection of Airflow's means as settings, in the forms of Airflow's own Kafka, Postgres and HTTP providers.

A pipeline names a connection in a section, and holds nothing else of it. Whoever starts a step looks it up and merges here; the
result is checked as settings in `pipeline.yaml` are. Nothing here knows Airflow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import SecretStr, ValidationError

from fencepost.config.asker import Asker
from fencepost.config.kafka_options import (
    COMMON,
    CONSUMER_ONLY,
    EXCLUSIVE,
    PRODUCER_ONLY,
    SHOWN_KAFKA,
    check_kafka,
)
from fencepost.config.postgres_options import SHOWN_POSTGRES, check_postgres
from fencepost.config.registry import SHOWN_REGISTRY, RegistrySettings
from fencepost.config.secret_names import HARMLESS
from fencepost.config.strict_yaml import NO_TEXT
from fencepost.errors import FencepostError, LoginRefused, Retriable, SettingsError

Settings = Mapping[str, str]
Who = TypeVar("Who", bound=Asker)

# What a connection of a plain consumer or producer has and no client of ours uses.
OF_PLAIN_CLIENTS = frozenset(
    """auto.commit.interval.ms auto.offset.reset debug enable.auto.commit enable.auto.offset.store enable.partition.eof
    error_cb group.id group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms
    isolation.level log_cb max.poll.interval.ms on_commit on_delivery partition.assignment.strategy session.timeout.ms
    statistics.interval.ms stats_cb throttle_cb""".split()
)
# What the Postgres provider itself, or Python's driver, makes of an extra; and what Fencepost sets in each session.
OF_PYTHON_DRIVERS = frozenset(
    """application_name autocommit aws_conn_id client_encoding cluster-identifier cursor cursor_factory fallback_application_name
    prepare_threshold row_factory sqlalchemy_query sqlalchemy_scheme workgroup-name""".split()
)
TEMPORARY_LOGINS = ("iam", "redshift", "redshift-serverless", "azure_conn_id")
# Names of confluent-kafka's client for a registry, and ours.
REGISTRY_NAMES = {
    "url": "url",
    "bearer.auth.token": "token",
    "bearer.auth.logical.cluster": "logical_cluster",
    "bearer.auth.identity.pool.id": "identity_pool",
    "ssl.ca.location": "ca_location",
    "ssl.certificate.location": "certificate_location",
    "ssl.key.location": "key_location",
    "ssl.key.password": "key_password",
    "timeout": "timeout_seconds",
}
USER_INFO = "basic.auth.user.info"
SOURCES = {"basic.auth.credentials.source": ("USER_INFO", "URL"), "bearer.auth.credentials.source": ("STATIC_TOKEN",)}
OF_REGISTRY_CLIENTS = frozenset(
    "auto.register.schemas cache.capacity cache.latest.ttl.sec max.retries normalize.schemas retries.max.wait.ms retries.wait.ms "
    "use.latest.version".split()
)
GOOGLE = re.compile(r"managedkafka\S*cloud\.goog|cloud\.goog\S*managedkafka")
AMAZON = re.compile(r"\.kafka(-serverless)?\.[a-z0-9-]+\.amazonaws\.com", re.IGNORECASE)


@dataclass(frozen=True)
class Connection:
    """A connection as Airflow has it. `extra` is JSON. It holds secrets, and shows only its name."""

    id: str
    host: str | None = field(default=None, repr=False)
    schema: str | None = field(default=None, repr=False)
    login: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    port: int | None = field(default=None, repr=False)
    extra: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Found:
    """What a connection gives to a section, and the names in it that the section has no use for."""

    settings: Settings
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Found({', '.join(sorted(self.settings))})"


def kafka_of(connection: Connection) -> Found:
    """The settings in the extra of a connection of type `kafka`, in librdkafka's names.

    Raises:
        SettingsError: the extra is no JSON object of texts, numbers and booleans, or logs in by a token.
    """
    values = _extra(connection)
    _refuse_tokens(values, connection.id)
    return _apart(values, OF_PLAIN_CLIENTS)


def _refuse_tokens(values: Settings, name: str) -> None:
    """Refuse what asks for a token: Spark's reader has no counterpart of the provider's callbacks."""
    brokers = values.get("bootstrap.servers", "")
    mechanism = values.get("sasl.mechanism", values.get("sasl.mechanisms", "")).upper()
    by_token = "oauth_cb" in values or mechanism == "OAUTHBEARER"
    if GOOGLE.search(brokers) and (by_token or not mechanism):
        how = "Google's Managed Kafka, to which Airflow's provider logs in by a token"
    elif AMAZON.search(brokers) and by_token:
        how = "Amazon MSK by IAM"
    elif "oauth_cb" in values:
        how = "oauth_cb, a function of Python's"
    elif by_token:
        how = "OAUTHBEARER"
    else:
        return
    raise SettingsError(
        f"kafka.connection {name}: it logs in by {how}; Spark's Kafka reader, a Java client, could not. Use a connection with "
        "sasl.mechanism PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or with a client certificate."
    )


def postgres_of(connection: Connection) -> Found:
    """The settings of a connection of type `postgres`, in libpq's names.

    Raises:
        SettingsError: the extra is no JSON object of texts, numbers and booleans, or asks for a login of a few minutes.
    """
    extra = _extra(connection)
    for name in TEMPORARY_LOGINS:
        if extra.get(name, "false").lower() not in {"false", "0", ""}:
            raise SettingsError(
                f"postgres.connection {connection.id}: {name} asks for a login that holds for minutes, which Fencepost cannot "
                "ask for. Use a connection with user and password, or with a client certificate."
            )
    given = {
        "host": connection.host,
        "user": connection.login,
        "password": connection.password,
        "dbname": connection.schema,
        "port": None if connection.port is None else str(connection.port),
    }
    found = _apart(
        {k: v for k, v in extra.items() if k not in TEMPORARY_LOGINS},
        OF_PYTHON_DRIVERS,
    )
    return Found({**{k: v for k, v in given.items() if v}, **found.settings}, found.left_out)


def registry_of(connection: Connection) -> Found:
    """The settings of a registry: host, login and password as of a connection of type `http`, and an extra in the names of
    confluent-kafka's client.

    Raises:
        SettingsError: the extra is no JSON object of texts, numbers and booleans, or has what Fencepost does not pass on.
    """
    where, extra = f"schema_registry.connection {connection.id}", dict(_extra(connection))
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
    found = _apart(extra, OF_REGISTRY_CLIENTS)
    for name, value in found.settings.items():
        if name not in REGISTRY_NAMES:
            raise SettingsError(
                f"{where}: {name} is not allowed. Allowed are {', '.join(sorted([*REGISTRY_NAMES, *SOURCES, USER_INFO]))}."
            )
        settings[REGISTRY_NAMES[name]] = value
    return Found(settings, found.left_out)


def _apart(values: Settings, left_out: frozenset[str]) -> Found:
    used = {name: value for name, value in values.items() if name not in left_out}
    return Found(used, tuple(sorted(values.keys() - used.keys())))


def _extra(connection: Connection) -> dict[str, str]:
    """The extra's values as texts: numbers as they are written, true and false in small letters. Null and empty leave out."""
    where = f"connection {connection.id}: its extra"
    try:
        # Numbers stay as they are written: a float would turn 10000000000000001 or 0.10 into another text.
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
                raise SettingsError(f"{where} has a character as part of {name} that no setting can have.")
            texts[name] = str(value)
        elif value is not None:
            raise SettingsError(f"{where} has an object or a list as {name}; allowed are texts, numbers and booleans.")
    return {name: value for name, value in texts.items() if value != ""}


class _Number(str):
    """A number of JSON, as it is written; `1e3` and `5.0` as the whole numbers that they are: librdkafka reads no others."""

    def __new__(cls, text: str) -> _Number:
        if re.search(r"[.eE]", text) and len(text) < 20 and float(text).is_integer():
            return super().__new__(cls, int(float(text)))
        return super().__new__(cls, text)


READ: dict[str, Callable[[Connection], Found]] = {
    "kafka": kafka_of,
    "schema_registry": registry_of,
    "postgres": postgres_of,
}


def resolved(asker: Who, look_up: Callable[[str], Connection]) -> tuple[Who, dict[str, Found]]:
    """The asker with the settings of its connections under its own, and what each section was given.

    Raises:
        SettingsError: what is wrong with the whole; names section, connection and setting, and never a secret.
    """
    found = {section: READ[section](look_up(name)) for section, name in asker.connections.items()}
    return with_settings(asker, {section: one.settings for section, one in found.items()}), found


def with_settings(asker: Who, given: Mapping[str, Settings]) -> Who:
    """The asker with these settings, by section, under its own. Its own win, under whatever name they have.

    Raises:
        SettingsError: as `resolved`.
    """
    whole: dict[str, object] = {}
    for section, settings in given.items():
        where = f"{asker.written_in}: {section}.connection {asker.connections[section]}"
        try:
            whole[section] = WHOLE[section](asker, settings)
        except ValidationError as error:  # its own text quotes what was given
            raise SettingsError(f"{where}: {'; '.join(_told(error))}.") from None
        except ValueError as error:
            raise SettingsError(f"{where}, with the settings beside it: {error}.") from None
    return asker.model_copy(update={**whole, "resolved": True})


def _told(error: ValidationError) -> Iterator[str]:
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        name = ".".join(map(str, one["loc"]))
        yield f"{name}{': ' if name else ''}{one['msg'].removeprefix('Value error, ')}"


def _kafka(asker: Asker, given: Settings) -> dict[str, SecretStr]:
    own = _plain(asker.kafka)
    hidden = {name for names in EXCLUSIVE if own.keys() & set(names) for name in names}
    if "ssl.keystore.location" in hidden:
        hidden.add("ssl.keystore.password")
    merged = {name: value for name, value in given.items() if name not in hidden} | own
    check_kafka(merged)
    return _hidden(merged)


def _postgres(asker: Asker, given: Settings) -> dict[str, SecretStr]:
    merged = {**given, **_plain(asker.postgres)}
    check_postgres(merged)
    return _hidden(merged)


def _registry(asker: Asker, given: Settings) -> RegistrySettings:
    beside = asker.schema_registry
    own = beside.model_dump(exclude_unset=True, exclude={"connection"}) if beside is not None else {}
    hidden: set[str] = set()
    if "token" in own:
        hidden |= {"username", "password"}
    if own.keys() & {"username", "password"}:
        hidden |= {"token", "logical_cluster", "identity_pool"}
    return RegistrySettings(**{k: v for k, v in given.items() if k not in hidden} | own)


WHOLE: dict[str, Callable[[Asker, Settings], object]] = {
    "kafka": _kafka,
    "schema_registry": _registry,
    "postgres": _postgres,
}


def settings_of(asker: Asker) -> dict[str, dict[str, str]]:
    """The whole settings of each section that has a connection, with their secrets in plain text, for `with_settings`."""
    return {section: dict(_section(asker, section)) for section in asker.connections}


TUNING = COMMON | PRODUCER_ONLY | CONSUMER_ONLY


def secrets_of(asker: Asker) -> list[str]:
    """Every value of these settings that no message may show; of a text of several lines each line too: logs have lines.

    Tuning is none, and neither is the pipeline's own name as a login's: masked, they would be masked wherever else they stand, as
    numbers of rows, and as the DAG's id in each line of its logs.
    """
    shown = {"kafka": SHOWN_KAFKA | TUNING, "schema_registry": SHOWN_REGISTRY, "postgres": SHOWN_POSTGRES}
    values = [
        value
        for section in asker.connections
        for name, value in _section(asker, section).items()
        if name not in shown[section] and not HARMLESS.fullmatch(value) and value != asker.name
    ]
    lines = (line for value in values if "\n" in value for line in value.splitlines() if not line.startswith("-----"))
    return [*values, *lines]


def _section(asker: Asker, section: str) -> Settings:
    if section != "schema_registry":
        return _plain(asker.kafka if section == "kafka" else asker.postgres)
    assert asker.schema_registry is not None
    values = asker.schema_registry.model_dump(exclude_unset=True, exclude={"connection"})
    return {k: v.get_secret_value() if isinstance(v, SecretStr) else str(v) for k, v in values.items() if v is not None}


def _plain(settings: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in settings.items()}


def _hidden(settings: Settings) -> dict[str, SecretStr]:
    return {name: SecretStr(value) for name, value in settings.items()}


def is_worth_a_retry(error: BaseException, asker: Asker) -> bool:
    """Whether a new attempt may succeed. One that looks a connection up again may find the password that a login now needs."""
    return isinstance(error, Retriable) or (isinstance(error, LoginRefused) and bool(asker.connections))


def told_with_connections(error: FencepostError, asker: Asker) -> str:
    """The error's message; of a refused login with the connections that it may have come from."""
    if not isinstance(error, LoginRefused) or not asker.connections:
        return str(error)
    names = ", ".join(sorted(set(asker.connections.values())))
    return f"{error} Settings come from Airflow's connection {names}; the next attempt looks it up again."
