"""Each setting of a service is declared once, with who may see it. What nobody declared counts as a secret."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel, SecretStr

from fencepost.config.client_config import ClientConfig
from fencepost.config.connections import secrets_of
from fencepost.config.java_options import ALSO_TRANSLATED, JAVA_NAMES
from fencepost.config.public_settings import public_settings
from fencepost.config.services import SERVICES
from fencepost.config.services.connection import ConnectionSettings
from fencepost.config.services.kafka import TUNING
from fencepost.config.services.schema_registry import RegistrySettings
from fencepost.config.services.service import Service, Visibility, declared, declared_by

PACKAGE = Path(__file__).parents[2] / "include" / "fencepost"
SECRETS = {
    "kafka": "sasl.password ssl.ca.pem ssl.certificate.pem ssl.key.pem ssl.keystore.password",
    "schema_registry": "key_password password token",
    "postgres": "password sslpassword",
    "iceberg": "credential password s3.access-key-id s3.secret-access-key s3.session-token token",
}
LOGIN_FILES = {
    "kafka": "ssl.certificate.location ssl.key.location ssl.keystore.location",
    "schema_registry": "certificate_location key_location",
    "postgres": "passfile sslcert sslkey",
    "iceberg": "passfile",
}
# Of Kafka's, tuning is shown too: it has no names of people, places or files.
SHOWN = {
    "kafka": "bootstrap.servers sasl.mechanism sasl.mechanisms security.protocol",
    "schema_registry": "url",
    "postgres": "dbname host port sslmode user",
    "iceberg": "name prefix s3.endpoint s3.region sslmode type uri warehouse",
}


@pytest.mark.parametrize("name", SERVICES)
def test_these_are_a_services_secrets_its_login_files_and_what_everybody_sees(name: str) -> None:
    service = SERVICES[name]
    assert sorted(service.named(Visibility.SECRET)) == SECRETS[name].split()
    assert sorted(service.named(Visibility.LOGIN_FILE)) == LOGIN_FILES[name].split()
    shown = service.named(Visibility.SHOWN)
    assert sorted(shown - TUNING if name == "kafka" else shown) == SHOWN[name].split()


def values_of(service: Service) -> dict[str, str]:
    """A value for each setting, which nothing else has."""
    return {setting: f"hunter2 of {service.name} {setting}" for setting in service.settings}


def test_a_dag_carries_each_setting_but_secrets_which_it_names(tmp_path: Path) -> None:
    content = {name: values_of(service) for name, service in SERVICES.items()}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(content))
    folder: Any = SimpleNamespace(folder=tmp_path)
    carried = public_settings(folder)
    secrets = {name: set(SECRETS[name].split()) for name in SERVICES}
    assert sorted(carried["left_out"]) == sorted(f"{name}.{one}" for name in SERVICES for one in secrets[name])
    assert carried["settings"] == {
        name: {setting: value for setting, value in content[name].items() if setting not in secrets[name]}
        for name in SERVICES
    }


def test_logs_mask_each_value_that_is_not_shown() -> None:
    values: dict[str, dict[str, Any]] = {name: values_of(service) for name, service in SERVICES.items()}
    values["schema_registry"] |= {"timeout_seconds": 299.5, "auto_register": True}  # true and false are never masked
    config = ClientConfig.model_construct(
        name="orders",
        connections=dict.fromkeys(SERVICES, "prod"),
        schema_registry=RegistrySettings.model_construct(None, **values["schema_registry"]),
        **{name: {k: SecretStr(v) for k, v in values[name].items()} for name in ("kafka", "postgres", "iceberg")},
    )
    shown = {name: {*SHOWN[name].split(), *(TUNING if name == "kafka" else ())} for name in SERVICES}
    hidden = {str(value) for name in SERVICES for setting, value in values[name].items() if setting not in shown[name]}
    assert set(secrets_of(config)) == hidden - {"True"}


def test_the_services_are_the_sections_that_a_client_reads() -> None:
    assert set(SERVICES) == ClientConfig.model_fields.keys() - {"name", "connections", "resolved"}


def test_a_setting_that_nobody_declared_counts_as_a_secret() -> None:
    assert all(service.is_secret("brand.new") for service in SERVICES.values())


class Undeclared(BaseModel):
    """A field that is neither shown nor secret."""

    url: Annotated[str, Visibility.SHOWN]
    proxy: str


class Twice(BaseModel):
    """A field that is both."""

    url: Annotated[str, Visibility.SHOWN, Visibility.SECRET]


class Plain(BaseModel):
    """A secret that its own repr would show."""

    token: Annotated[str | None, Visibility.SECRET]


class Shown(BaseModel):
    """A secret that is declared as shown."""

    token: Annotated[SecretStr | None, Visibility.SHOWN]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Undeclared, r"Undeclared\.proxy: annotate it with one Visibility; it has 0"),
        (Twice, r"Twice\.url: annotate it with one Visibility; it has 2"),
        (Plain, r"Plain\.token: SecretStr is for secrets, and only for them"),
        (Shown, r"Shown\.token: SecretStr is for secrets, and only for them"),
    ],
)
def test_a_field_that_is_not_declared_as_shown_or_secret_is_refused(model: type[BaseModel], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        declared_by(model)


def test_a_setting_that_is_declared_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="token is declared twice: SHOWN and SECRET"):
        declared(shown=["token"], private=[], login_files=[], secret=["token"])


@pytest.mark.parametrize("field", ["beside_connection", "decides_output"])
def test_a_service_uses_no_setting_that_it_does_not_declare(field: str) -> None:
    undeclared = {"beside_connection": frozenset[str]()} | {field: frozenset({"token"})}
    with pytest.raises(ValueError, match="service s: not declared: token"):
        Service(
            name="s",
            library="lib",
            settings={"url": Visibility.SHOWN},
            placeholder={"url": ""},
            of_connection=lambda connection: ConnectionSettings({}),
            checked=lambda settings: settings,
            **undeclared,
        )


def test_each_kafka_setting_but_tuning_reaches_sparks_reader() -> None:
    """Tuning is of librdkafka. Without its login or its certificate, a reader would be another user, or none."""
    assert SERVICES["kafka"].settings.keys() - TUNING == JAVA_NAMES.keys() | ALSO_TRANSLATED


# A client's own door: the translation for Java, and the doctor's look at certificates.
DOORS = {"config/java_options.py", "doctor/certificates.py"}


def test_no_other_module_knows_which_setting_is_a_secret() -> None:
    """`password` alone is also a word of Airflow's API."""
    names = {
        setting
        for service in SERVICES.values()
        for setting in service.named(Visibility.SECRET, Visibility.LOGIN_FILE)
        if setting not in {"password", "token"}
    }
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE).as_posix()
        if place.startswith("config/services/") or place in DOORS:
            continue
        texts = (node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant))
        assert names.isdisjoint(text for text in texts if isinstance(text, str)), place
