"""Translates librdkafka's settings into those of Kafka's Java client, for Spark's reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fencepost.errors import SettingsError

# librdkafka's names on the left, Java's on the right.
JAVA_NAMES = {
    "bootstrap.servers": "bootstrap.servers",
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "client.rack": "client.rack",
    "client.dns.lookup": "client.dns.lookup",
}
# These are translated below, not only renamed.
ALSO_TRANSLATED = frozenset("sasl.username sasl.password ssl.certificate.location ssl.key.location".split())
LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
UNLOCKED = "give the key without a password, or certificate and key as PKCS#12 (ssl.keystore.location and .password)"


def java_settings(values: Mapping[str, str]) -> dict[str, str]:
    """Returns the Java client's settings for these librdkafka settings. Settings that only tune librdkafka are left
    out.

    Java accepts certificate and key as one PEM file, or as texts. So this function reads two PEM files and returns
    their texts.

    Raises:
        SettingsError: a file does not exist, or Java cannot read its kind of key.
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
            raise SettingsError(
                f"kafka.ssl.key.*: the key has a password, and Spark's reader cannot open it; {UNLOCKED}."
            )
        if "-----BEGIN PRIVATE KEY-----" not in java["ssl.keystore.key"]:
            raise SettingsError(
                "kafka.ssl.key.*: found no PKCS#8 key, the only kind that Spark's Kafka reader takes ('BEGIN PRIVATE KEY'). "
                "`openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW` converts a key."
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
