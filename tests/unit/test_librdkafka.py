"""A librdkafka that is linked in another way stops what writes, with the reason, and nothing else."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fencepost.errors import NeedsOperator
from fencepost.kafka import librdkafka
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import make_consumer, make_producer

SETTINGS = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})
CURE = "install the wheel of the version in requirements.txt"


@pytest.fixture(autouse=True)
def looked_up_anew() -> Iterator[None]:
    librdkafka.library.cache_clear()
    yield
    librdkafka.library.cache_clear()


def link(monkeypatch: pytest.MonkeyPatch, file: str | Path) -> None:
    """Let confluent-kafka be a module of this file."""
    monkeypatch.setattr(librdkafka, "cimpl", SimpleNamespace(__file__=str(file)))


def test_a_library_without_librdkafkas_functions_is_named_with_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where librdkafka is linked in statically, with its symbols hidden."""
    import _ctypes

    link(monkeypatch, _ctypes.__file__)
    with pytest.raises(NeedsOperator) as raised:
        make_producer(SETTINGS, "an-id")
    assert "rd_kafka_produceva, " in str(raised.value)
    assert _ctypes.__file__ in str(raised.value)
    assert CURE in str(raised.value)


def test_one_missing_function_is_found_when_a_producer_is_made_and_not_when_it_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Older(ctypes.PyDLL):
        def __getattr__(self, name: str) -> object:
            if name == "rd_kafka_produceva":
                raise AttributeError(name)
            return super().__getattr__(name)

    monkeypatch.setattr(ctypes, "PyDLL", Older)
    with pytest.raises(NeedsOperator, match=r"does not have these functions: rd_kafka_produceva\. "):
        make_producer(SETTINGS, "an-id")


def test_a_file_that_is_no_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    link(monkeypatch, tmp_path / "cimpl.so")
    with pytest.raises(NeedsOperator, match=r"cannot be loaded: .*cimpl\.so"):
        make_producer(SETTINGS, "an-id")


def test_another_librdkafka_than_confluent_kafkas_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "libversion", lambda: ("1.2.3", 0x010203FF))
    with pytest.raises(NeedsOperator, match=r"has another librdkafka, 0x\w+ instead of 0x10203ff"):
        make_producer(SETTINGS, "an-id")


def test_what_reads_needs_no_functions_of_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    import _ctypes

    link(monkeypatch, _ctypes.__file__)
    consumer, _ = make_consumer(SETTINGS, "a-group")
    consumer.close()


def test_importing_what_steps_and_pages_import_looks_nothing_up() -> None:
    code = (
        "import ctypes\n"
        "def refuse(*_): raise AssertionError('looked up')\n"
        "ctypes.PyDLL.__init__ = refuse\n"
        "from fencepost.ledger import reader\n"
        "from fencepost.steps import advance, plan, validate, write\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
