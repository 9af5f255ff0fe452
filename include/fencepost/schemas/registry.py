"""Talks to the schema registry through confluent-kafka's client. The answers are plain values, and the errors end with
the next step.

The client and its dependencies are imported with the first request, because most pipelines have no registry.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import SecretStr

from fencepost.config.client_config import ClientConfig
from fencepost.config.services.schema_registry import CLIENT_NAMES, SCHEMA_REGISTRY, USER_INFO, RegistrySettings
from fencepost.errors import AccessDenied, FencepostError, LoginRefused, RegistryUnavailable, SettingsError
from fencepost.formats import SchemaReference

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

T = TypeVar("T")
NOT_FOUND = 404
NOT_REGISTERED = range(40400, 40500)  # the registry's own codes; an unknown path has 404, or no code
RETRIABLE = frozenset((408, 429))
RETRIES = 2
MOST_REFERENCES = 200
OTHER_NAME = frozenset((62, 64))  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH
# OpenSSL's names of alerts that a server sends, and of answers that are not TLS.
PASSING_ALERTS = frozenset(("TLSV1_ALERT_INTERNAL_ERROR", "TLSV1_ALERT_USER_CANCELLED", "SSLV3_ALERT_CLOSE_NOTIFY"))
NO_TLS = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"))


class NotRegistered(LookupError):
    """The registry has no such subject, version or id."""


class OtherType(SettingsError):
    """The registry has the schema, but with another type."""


@dataclass(frozen=True)
class SchemaVersion:
    """A schema as the registry has it."""

    id: int
    text: str
    references: tuple[SchemaReference, ...] = ()
    subject: str = ""
    version: int | None = None


class Registry:
    """One pipeline's registry, for schemas of one type. Errors name the registry's URL and the request, and no
    credential.

    Raises, from each method: RegistryUnavailable: the registry does not answer, or asks to come back later.
    AccessDenied: the registry refuses the credentials, or refuses them the subject. SettingsError: certificates cannot
    be read, or the registry refuses the request. OtherType: the schema is of another type than `schema_type`.
    NotRegistered: the registry has nothing of that name.
    """

    def __init__(self, config: ClientConfig, schema_type: str) -> None:
        assert config.schema_registry is not None, "settings without one are refused"
        config.require_resolved(SCHEMA_REGISTRY)
        self._reader, self._settings, self._type = config.label, config.schema_registry, schema_type
        self._made: SchemaRegistryClient | None = None

    @property
    def _where(self) -> str:
        return f"{self._reader}: schema registry {self._settings.url}"

    def _client(self) -> SchemaRegistryClient:
        if self._made is None:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            # These loggers log requests with their addresses.
            for name in ("httpx", "httpx2", "httpcore", "httpcore2"):
                logging.getLogger(name).setLevel(logging.WARNING)
            try:
                self._made = SchemaRegistryClient(client_conf(self._settings))
            except (OSError, ValueError) as error:
                raise SettingsError(
                    f"{self._where}: its ca_location, certificate_location or key_location cannot be used "
                    f"({getattr(error, 'strerror', None) or type(error).__name__}). They are files in PEM, readable here. A key "
                    "that is encrypted needs its key_password."
                ) from None
        return self._made

    def versions(self, subject: str) -> list[int]:
        """Returns the versions of a subject that are not deleted, in order."""
        return self._ask(subject, lambda client: sorted(int(number) for number in client.get_versions(subject)))

    def version(self, subject: str, version: int) -> SchemaVersion:
        """Returns a version of a subject."""

        def ask(client: SchemaRegistryClient) -> SchemaVersion:
            known = client.get_version(subject, version)
            return self._found(client, known.schema, known.schema_id, subject, version)

        return self._ask(f"{subject}, version {version}", ask)

    def by_id(self, schema_id: int) -> SchemaVersion:
        """Returns a schema by its id, of any subject."""

        def ask(client: SchemaRegistryClient) -> SchemaVersion:
            return self._found(client, client.get_schema(schema_id), schema_id)

        return self._ask(f"schema id {schema_id}", ask)

    def text_by_id(self, schema_id: int) -> str:
        """Returns the text of a schema by its id, of any subject, without the schemas that it refers to."""

        def ask(client: SchemaRegistryClient) -> str:
            return str(self._known(client.get_schema(schema_id), schema_id)[0].schema_str)

        return self._ask(f"schema id {schema_id}", ask)

    def of_id(self, schema_id: int) -> tuple[str, list[str]]:
        """Returns the type of the schema with this id, which may be any type, and the subjects that have the schema."""

        def ask(client: SchemaRegistryClient) -> tuple[str, list[str]]:
            kind = client.get_schema(schema_id).schema_type or "AVRO"
            return kind, sorted({str(one.subject) for one in client.get_schema_versions(schema_id)})

        return self._ask(f"schema id {schema_id}", ask)

    def of_subject(self, subject: str) -> str:
        """Returns the type of a subject's latest schema, which may be any type."""
        return self._ask(subject, lambda client: client.get_latest_version(subject).schema.schema_type or "AVRO")

    def is_compatible(self, subject: str, text: str) -> bool:
        """Returns whether the registry would accept this schema as the subject's next version. It registers nothing."""
        return self._ask(subject, lambda client: client.test_compatibility(subject, self._schema(text)))

    def register(self, subject: str, text: str) -> SchemaVersion:
        """Registers a schema. A schema that the subject has already keeps its id and version."""

        def ask(client: SchemaRegistryClient) -> SchemaVersion:
            client.register_schema(subject, self._schema(text))
            known = client.lookup_schema(subject, self._schema(text), deleted=False)
            assert known.schema_id is not None
            return SchemaVersion(known.schema_id, text, subject=subject, version=known.version)

        return self._ask(subject, ask)

    def _schema(self, text: str) -> Schema:
        from confluent_kafka.schema_registry import Schema

        return Schema(text, self._type)

    def _found(
        self, client: SchemaRegistryClient, schema: Schema | None, schema_id: int | None, *of: Any
    ) -> SchemaVersion:
        schema, schema_id = self._known(schema, schema_id)
        return SchemaVersion(schema_id, str(schema.schema_str), self._references(client, schema, {}), *of)

    def _known(self, schema: Schema | None, schema_id: int | None) -> tuple[Schema, int]:
        """Returns a schema that the registry has, of the type that the pipeline reads or writes."""
        if schema is None or schema_id is None or schema.schema_str is None:
            raise NotRegistered
        if (found := schema.schema_type or "AVRO") != self._type:
            raise OtherType(
                f"{self._where}: schema id {schema_id} is of type {found}, and the pipeline's format needs {self._type}."
            )
        return schema, schema_id

    def _references(
        self, client: SchemaRegistryClient, schema: Schema, known: dict[tuple[str, int], SchemaReference]
    ) -> tuple[SchemaReference, ...]:
        """Returns the schemas that a schema refers to. `known` has the subjects' versions that were requested already."""
        found = []
        for reference in schema.references or ():
            at = (str(reference.subject), int(reference.version or 0))
            if at not in known:
                if len(known) >= MOST_REFERENCES:
                    raise SettingsError(f"{self._where}: a schema refers to more than {MOST_REFERENCES} others.")
                known[at] = SchemaReference("", "")  # a schema that refers to itself gets no references
                one = client.get_version(*at).schema
                known[at] = SchemaReference("", str(one.schema_str), self._references(client, one, known))
            found.append(replace(known[at], name=str(reference.name)))
        return tuple(found)

    def _ask(self, what: str, ask: Callable[[SchemaRegistryClient], T]) -> T:
        client = self._client()
        from confluent_kafka.schema_registry.common._httpx_compat import httpx
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return ask(client)
        except SchemaRegistryError as error:
            raise self._refused(what, error.http_status_code, error.error_code) from None
        except httpx.TransportError as error:
            raise self._silent(error) from None
        except (httpx.HTTPError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise self._no_registry(what, type(error).__name__) from None

    def _no_registry(self, what: str, why: str) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"{self._where}: its answer about {what} is not a schema registry's ({why}). Check its url, including "
            "the path, and run again."
        )

    def _silent(self, error: Exception) -> FencepostError:
        """Returns the error for a missing answer. If TLS refused the connection, a retry is refused too. After any
        other failure a retry may succeed.
        """
        tls = _tls_error(error)
        if isinstance(tls, ssl.SSLCertVerificationError):
            if tls.verify_code in OTHER_NAME:
                return SettingsError(
                    f"{self._where}: its certificate is for another host. Correct schema_registry.url, or have a certificate "
                    "made that names this host."
                )
            return SettingsError(
                f"{self._where}: its certificate is not trusted ({tls.verify_message}). Check schema_registry.ca_location: the "
                "authority that signed the certificate has to be in that file."
            )
        reason = (tls.reason if tls else None) or ""
        if "_ALERT_" in reason and reason not in PASSING_ALERTS:
            return LoginRefused(
                f"{self._where}: refused the connection ({reason}). Check certificate_location and key_location under "
                "schema_registry: it asks for a client certificate of an authority that it trusts."
            )
        if reason in NO_TLS:
            return SettingsError(
                f"{self._where}: the server there does not use TLS ({reason}). Correct schema_registry.url."
            )
        return RegistryUnavailable(
            f"{self._where} does not answer ({type(error).__name__}). Check its url and that it runs, and run again."
        )

    def _refused(self, what: str, status: int, code: int | None) -> Exception:
        if status == NOT_FOUND:
            return NotRegistered(what) if code in NOT_REGISTERED else self._no_registry(what, f"HTTP {status}")
        if status in (401, 403):
            kind = LoginRefused if status == 401 else AccessDenied
            return kind(
                f"{self._where}: refused {what} to these credentials (HTTP {status}). Check username and password, or token, "
                "under schema_registry, and what they may read."
            )
        if status in RETRIABLE or status >= 500:
            return RegistryUnavailable(f"{self._where}: cannot answer about {what} now (HTTP {status}). Run again.")
        return SettingsError(f"{self._where}: refused {what} (HTTP {status}, code {code}). Its own log says why.")


def client_conf(settings: RegistrySettings) -> dict[str, Any]:
    """Returns the client's settings, with secrets."""
    given: dict[str, Any] = {client: _plain(getattr(settings, own)) for own, client in CLIENT_NAMES.items()}
    given |= {"max.retries": RETRIES, "retries.wait.ms": 200, "retries.max.wait.ms": 2_000}
    if settings.certificate_location is not None:
        # Otherwise OpenSSL would wait for the password of an encrypted key at the terminal.
        given["ssl.key.password"] = given["ssl.key.password"] or ""
    if settings.username is not None:
        given[USER_INFO] = f"{settings.username}:{_plain(settings.password)}"
    if settings.token is not None:
        given["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        given["bearer.auth.logical.cluster"] = settings.logical_cluster or ""
    return {name: value for name, value in given.items() if value is not None}


def _plain(value: object) -> object:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Returns the TLS error that caused one of httpx's errors."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
