"""Makes certificates for a cluster on this machine: an authority, and the certificates that it has signed.

Every file is PEM. A key's file also has its certificate, because Java reads both from one file. Only its owner can read
it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from fencepost_stack.ports import LOOPBACK
from fencepost_stack.state_folder import write_private

VALID = timedelta(days=365)
RENEWED = timedelta(days=30)  # before the end
AUTHORITY = "ca"
LOCAL = (LOOPBACK, "localhost")

Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def authority_file(folder: Path) -> Path:
    """Returns the authority's certificate, which clients trust."""
    return folder / f"{AUTHORITY}.pem"


def pair_file(folder: Path, name: str) -> Path:
    """Returns the file with a certificate and its key."""
    return folder / f"{name}-pair.pem"


def ensure_certificates(folder: Path, names: Sequence[str], hosts: Iterable[str] = ()) -> bool:
    """Creates an authority, and a certificate for each name. The certificates are for 127.0.0.1, localhost and `hosts`.
    Returns whether any certificate was new.

    Existing certificates are kept until a month before they expire. Then all are created again, so that all have the
    same authority.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hold(folder, names):
        return False
    make_certificates(folder, names, hosts)
    return True


def make_certificates(folder: Path, names: Iterable[str], hosts: Iterable[str] = ()) -> Pair:
    """Creates an authority, and a certificate for each name, as in `ensure_certificates`. Returns the authority, so
    that it can sign more.
    """
    authority = sign("Fencepost local authority", None)
    authority_file(folder).write_bytes(authority[0].public_bytes(Encoding.PEM))
    for name in names:
        write_pair(folder, name, sign(name, authority, dict.fromkeys((*LOCAL, *hosts))))
    return authority


def write_pair(folder: Path, name: str, pair: Pair) -> None:
    """Writes a certificate and its key to one file that only its owner can read."""
    certificate, key = pair
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private(pair_file(folder, name), (secret + certificate.public_bytes(Encoding.PEM)).decode())


def hold(folder: Path, names: Sequence[str]) -> bool:
    """Returns whether all certificates exist, and none expires within a month."""
    files = [authority_file(folder), *(pair_file(folder, name) for name in names)]
    return all(file.exists() and _holds(file) for file in files)


def read_pair(folder: Path, name: str) -> tuple[str, str]:
    """Returns the certificate and the key of a name, each as PEM. librdkafka takes them separately."""
    text = pair_file(folder, name).read_bytes()
    certificate = x509.load_pem_x509_certificate(text).public_bytes(Encoding.PEM)
    key = load_pem_private_key(text, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.decode(), key.decode()


def _holds(file: Path) -> bool:
    return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc > datetime.now(UTC) + RENEWED


def sign(subject: str, issuer: Pair | None, hosts: Iterable[str] = LOCAL, valid: timedelta = VALID) -> Pair:
    """Returns a certificate from this issuer, with its new key. Without an issuer it is an authority's own certificate.

    The certificate is valid from yesterday on, for the duration `valid`, which may be negative.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    signer = issuer[1] if issuer else key
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer[0].subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(_usage(issuer is None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    )
    return builder.sign(signer, hashes.SHA256()), key


def _usage(is_authority: bool) -> x509.KeyUsage:
    """Returns the permitted uses of a key. Python requires them from version 3.13 on."""
    others = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
    )
    return x509.KeyUsage(
        **others, digital_signature=True, key_cert_sign=is_authority, encipher_only=False, decipher_only=False
    )


def _host(text: str) -> x509.GeneralName:
    """Returns an address or a host name in the form of a certificate."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
