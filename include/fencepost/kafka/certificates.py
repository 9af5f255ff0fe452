"""Says what is wrong with a certificate, once TLS was refused: which one it is, and until when it was valid.

librdkafka tells neither: of an expired certificate of a broker it says that it could not be verified.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

WAIT = 3.0  # seconds for a broker's certificate


def explain_certificates(values: Mapping[str, str], now: datetime | None = None) -> str:
    """What to do about refused TLS, for a client with these librdkafka settings: a sentence or two. Asks one broker."""
    now = now or datetime.now(UTC)
    names = [name for name in _OWN if name in values]
    own = _own(values)
    if own is not None and (told := _not_valid(own, now)):
        return f"The client's certificate in {names[0]} ({_subject(own)}) {told}: renew it."
    broker = _brokers(values)
    if broker is not None and (told := _not_valid(broker, now)):
        return f"The broker's certificate ({_subject(broker)}) {told}: it has to be renewed on the broker."
    found = ""
    if broker is not None:
        found = f" The broker's certificate ({_subject(broker)}) was issued by {_name(broker.issuer.rfc4514_string())}."
    if own is None:
        return (
            "Check that ssl.ca.location or ssl.ca.pem has the authority of the broker's certificate, and whether the broker asks "
            f"for a client's certificate (ssl.certificate.* and ssl.key.*), which the pipeline does not have.{found}"
        )
    return (
        "Check that ssl.ca.location or ssl.ca.pem has the authority of the broker's certificate, and that the broker trusts the "
        f"client's in {names[0]} ({_subject(own)}).{found}"
    )


_OWN = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")


def _own(values: Mapping[str, str]) -> Certificate | None:
    """The client's certificate; None if there is none, or it cannot be read."""
    with suppress(OSError, ValueError, TypeError):
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import pkcs12

        if "ssl.certificate.pem" in values:
            return x509.load_pem_x509_certificate(values["ssl.certificate.pem"].encode())
        if "ssl.certificate.location" in values:
            return x509.load_pem_x509_certificate(Path(values["ssl.certificate.location"]).read_bytes())
        if "ssl.keystore.location" in values:
            password = values.get("ssl.keystore.password", "").encode() or None
            return pkcs12.load_key_and_certificates(Path(values["ssl.keystore.location"]).read_bytes(), password)[1]
    return None


def _brokers(values: Mapping[str, str]) -> Certificate | None:
    """The certificate of the first broker, unverified; None if it shows none."""
    host, _, port = values.get("bootstrap.servers", "").partition(",")[0].strip().rpartition(":")
    with suppress(OSError, ValueError):  # an SSLError is an OSError
        from cryptography import x509

        return x509.load_pem_x509_certificate(
            ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=WAIT).encode()
        )
    return None


def _not_valid(certificate: Certificate, now: datetime) -> str | None:
    if certificate.not_valid_after_utc < now:
        return f"expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if certificate.not_valid_before_utc > now:
        return f"is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on, by this machine's clock"
    return None


def _subject(certificate: Certificate) -> str:
    return _name(certificate.subject.rfc4514_string())


def _name(text: str) -> str:
    return text or "without a name"
