"""Certificates made on the spot."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from fencepost_stack.ports import LOOPBACK

PASSWORD = "hunter2-key"


def make_certificates(folder: Path, host: str = LOOPBACK) -> None:
    """An authority, a server's and a client's certificate; as PEM and as PKCS#12, the keys also encrypted.

    The server's is for `host`, by default an address of this machine. Those that begin with `expired-` have expired, and
    `other-ca.pem` is of an authority that has signed none.
    """
    authority_key, other_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = certificate("authority", authority_key, "authority", authority_key)
    (folder / "ca.pem").write_bytes(authority.public_bytes(Encoding.PEM))
    other = certificate("other", other_key, "other", other_key)
    (folder / "other-ca.pem").write_bytes(other.public_bytes(Encoding.PEM))
    secret = BestAvailableEncryption(PASSWORD.encode())
    for name in ("server", "client", "expired-server", "expired-client"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = name.removeprefix("expired-")
        signed = certificate(subject, key, "authority", authority_key, host, expired=subject != name)
        store = pkcs12.serialize_key_and_certificates(name.encode(), key, signed, [authority], secret)
        (folder / f"{name}.p12").write_bytes(store)
        (folder / f"{name}.pem").write_bytes(signed.public_bytes(Encoding.PEM))
        for ending, encryption in (("key", NoEncryption()), ("encrypted.key", secret)):
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
            (folder / f"{name}.{ending}").write_bytes(pem)


def certificate(
    subject: str, key: Any, issuer: str, issuer_key: Any, host: str = LOOPBACK, *, expired: bool = False
) -> x509.Certificate:
    """A certificate for a day, or an authority's if it is its own issuer; an expired one ended an hour ago."""

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now - timedelta(hours=1) if expired else now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=subject == issuer, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
