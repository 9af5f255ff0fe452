"""A port the user insists on is taken, or its owner named; any other gives way."""

import os
import socket
from collections.abc import Iterator

import pytest

from fencepost_stack.errors import LocalStackError, PortTaken
from fencepost_stack.ports import any_free_port, choose_port


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that this process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_process_gets_no_port_twice() -> None:
    """The kernel gives a port again as soon as nobody listens on it: among so many draws it certainly does."""
    many = 2000
    assert len({any_free_port() for _ in range(many)}) == many


def test_a_taken_explicit_port_is_named_with_its_owner(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_KAFKA_PORT", str(taken))
    with pytest.raises(PortTaken, match=rf"port {taken} for kafka.*FENCEPOST_KAFKA_PORT.*process {os.getpid()} \("):
        choose_port("kafka", "FENCEPOST_KAFKA_PORT", [9092])


def test_a_free_explicit_port_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    port = any_free_port()
    monkeypatch.setenv("FENCEPOST_KAFKA_PORT", str(port))
    assert choose_port("kafka", "FENCEPOST_KAFKA_PORT", [9092]) == port


def test_a_taken_usual_port_gives_way(taken: int) -> None:
    free = any_free_port()
    assert choose_port("kafka", "FENCEPOST_KAFKA_PORT", [taken, free]) == free
    assert choose_port("kafka", "FENCEPOST_KAFKA_PORT", [taken]) not in {taken, 0}


@pytest.mark.parametrize("value", ["http", "0", "70000", "-1"])
def test_a_port_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_KAFKA_PORT", value)
    with pytest.raises(LocalStackError, match=f"FENCEPOST_KAFKA_PORT={value}: not a port"):
        choose_port("kafka", "FENCEPOST_KAFKA_PORT", [9092])
