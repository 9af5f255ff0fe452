"""librdkafka's settings in the names of Kafka's Java client, for Spark's reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fencepost.config.kafka_options import JAVA_NAMES, LOGIN_MODULES, UNLOCKED
from fencepost.errors import SettingsError


def java_settings(values: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings as Java's, for Spark's reader. Tuning of librdkafka itself has no counterpart.

    Java takes certificate and key as PEM in one file or as texts; so two PEM files are read here, and travel as texts.

    Raises:
        SettingsError: a file is not there, or its key is of a kind Java cannot read.
    """
    java = {JAVA_NAMES[k]: v for k, v in values.items() if k in JAVA_NAMES}
    if "security.protocol" in java:
        java["security.protocol"] = java["security.protocol"].upper()
    if java.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    if "ssl.ca.location" in values:
        _read_pem("ssl.ca.location", values)
    if "ssl.ca.location" in values or "ssl.ca.pem" in values:
        java["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.location" in values:
        java["ssl.keystore.type"] = "PKCS12"
    if "ssl.certificate.location" in values:
        java["ssl.keystore.certificate.chain"] = _read_pem("ssl.certificate.location", values)
    if "ssl.key.location" in values:
        java["ssl.keystore.key"] = _read_pem("ssl.key.location", values)
    if "ssl.keystore.key" in java:
        java["ssl.keystore.type"] = "PEM"
        if "-----BEGIN ENCRYPTED PRIVATE KEY-----" in java["ssl.keystore.key"]:
            raise SettingsError(f"kafka.ssl.key.*: found a locked key, which Spark's reader cannot open; {UNLOCKED}.")
        if "-----BEGIN PRIVATE KEY-----" not in java["ssl.keystore.key"]:
            raise SettingsError(
                "kafka.ssl.key.*: found no key in PKCS#8, the only kind that Spark's Kafka reader takes ('BEGIN PRIVATE KEY'). "
                "`openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW` makes one of another kind."
            )
    if values.get("security.protocol", "").lower().startswith("sasl"):
        user, password = (_quoted(values.get(f"sasl.{part}", "")) for part in ("username", "password"))
        module = LOGIN_MODULES[java["sasl.mechanism"]]
        java["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    return java


def _read_pem(name: str, values: Mapping[str, str]) -> str:
    try:
        return Path(values[name]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a PEM file"
        raise SettingsError(f"kafka.{name}: the file {values[name]} cannot be read: {reason}.") from None


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
