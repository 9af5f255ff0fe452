"""Certificates as clients hold them, and some that do not hold; those of a cluster are from `fencepost_stack.certificates`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from fencepost_stack.certificates import make_certificates, sign
from fencepost_stack.ports import LOOPBACK
from fencepost_stack.secured_kafka import ADMIN, BROKER

PASSWORD = "hunter2-key"
AUTHORITY = "CN=Fencepost local authority"


def make_all_certificates(folder: Path, host: str = LOOPBACK) -> None:
    """What a secured cluster has; a server's certificate for `host`, and a client's; as PEM and PKCS#12, keys also encrypted.

    Those that begin with `expired-` have expired, and `other-ca.pem` is of an authority that has signed none.
    """
    authority = make_certificates(folder, (BROKER, ADMIN))
    other, _ = sign("other", None)
    (folder / "other-ca.pem").write_bytes(other.public_bytes(Encoding.PEM))
    secret = BestAvailableEncryption(PASSWORD.encode())
    for name in ("server", "client", "expired-server", "expired-client"):
        subject = name.removeprefix("expired-")
        valid = timedelta(days=1) if subject == name else -timedelta(hours=1)
        certificate, key = sign(subject, authority, [host], valid)
        store = pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, [authority[0]], secret)
        (folder / f"{name}.p12").write_bytes(store)
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        for ending, encryption in (("key", NoEncryption()), ("encrypted.key", secret)):
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
            (folder / f"{name}.{ending}").write_bytes(pem)
