"""What compose's brokers start with, without an engine."""

from __future__ import annotations

import socket
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from fencepost_stack import certificates
from fencepost_stack.compose import PORTS, prepare

HOST = "127.0.0.4"  # no other test listens there


def test_certificates_that_end_are_made_again_only_while_no_broker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker keeps the certificate that it began with, and clients would no longer trust it."""
    for name in ("cluster", "broker", "authority", "spark"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("FENCEPOST_CLUSTER", str(tmp_path / "cluster"))
    monkeypatch.setenv("FENCEPOST_BROKER", str(tmp_path / "broker"))
    monkeypatch.setenv("FENCEPOST_KAFKA_HOSTS", ",".join([HOST] * 3))
    monkeypatch.setenv("FENCEPOST_KAFKA_PORT", "9092")
    monkeypatch.setenv("KAFKA_CA_LOCATION", str(tmp_path / "authority" / "ca.pem"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "spark"))

    def made() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.rglob("*.pem")}

    prepare()
    first = made()
    assert set(first) == {"ca.pem", "broker-pair.pem", "admin-pair.pem"}
    with closing(socket.create_server((HOST, PORTS["clients"]))):
        prepare()
        assert made() == first, "they hold for a year"
        monkeypatch.setattr(certificates, "RENEWED", certificates.VALID + timedelta(days=1))
        with pytest.raises(SystemExit, match="docker compose down"):
            prepare()
        assert made() == first
    prepare()
    assert not set(first.values()) & set(made().values())
