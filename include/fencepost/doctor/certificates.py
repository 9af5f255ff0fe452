"""Checks until when the certificates of a cluster with TLS are valid. The check covers the client's own certificate and
a broker's.

librdkafka does not show these times. For a broker's expired certificate it only says that the certificate could not be
verified.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.doctor.inspection import Inspection
from fencepost.errors import AccessDenied
from fencepost.findings import Finding, error, ok, warning

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, Name

WAIT = 3.0  # seconds for a broker's certificate
OWN = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")


def check_certificates(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the client's certificate and the first broker's are valid now. Only a login shows whether each side
    trusts the other.
    """
    values = inspection.cluster.settings.values
    if "ssl" not in values.get("security.protocol", "plaintext").lower():
        yield ok("the pipeline uses no TLS")
        return
    setting = next((name for name in OWN if name in values), None)
    own, broker = _own(values), _brokers(values)
    if setting is None:
        yield ok("the pipeline has no client certificate; a broker that requires one refuses it")
    elif own is None:
        yield warning(
            f"The client's certificate in {setting} cannot be read.", "Give a file or text in PEM, or PKCS#12."
        )
    else:
        yield _validity(own, f"client's certificate in {setting} ({_name(own.subject)})", "Renew it.", inspection.now)
    if broker is None:
        yield warning(
            f"{inspection.bootstrap} presents no certificate.", "Check bootstrap.servers and security.protocol."
        )
    else:
        names = f"{_name(broker.subject)}, issued by {_name(broker.issuer)}"
        yield _validity(broker, f"broker's certificate ({names})", "Renew it on the broker.", inspection.now)


def _validity(certificate: Certificate, what: str, do: str, now: datetime) -> Finding:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if end < now:
        return error(f"The {what} expired on {_at(end)}.", do, kind=AccessDenied)
    if begin > now:
        return error(f"The {what} is valid only from {_at(begin)} on, by this machine's clock.", do, kind=AccessDenied)
    return ok(f"the {what} is valid until {_at(end)}")


def _own(values: Mapping[str, str]) -> Certificate | None:
    """Returns the client's certificate. Returns None if there is none, or if it cannot be read."""
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
    """Returns the first broker's certificate without verifying it. Returns None if the broker presents none."""
    host, _, port = values.get("bootstrap.servers", "").partition(",")[0].strip().rpartition(":")
    with suppress(OSError, ValueError):  # an SSLError is an OSError
        from cryptography import x509

        return x509.load_pem_x509_certificate(
            ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=WAIT).encode()
        )
    return None


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _name(name: Name) -> str:
    return name.rfc4514_string() or "without a name"
