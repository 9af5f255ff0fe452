"""What a transaction says of a client that failed without saying why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Never

import pytest
from confluent_kafka import KafkaError, KafkaException

from fencepost.errors import FencepostError, WriteFailed, WriterFenced
from fencepost.kafka import Complaints, Settings
from fencepost.transaction import Transaction


def fails_without_a_cause(*_: object) -> Never:
    """As confluent-kafka does, now and then, when the client is fenced while it serves callbacks *(measured)*."""
    raise SystemError("returned NULL without setting an exception")


@pytest.mark.parametrize(
    ("answer", "raised"), [(KafkaError._FENCED, WriterFenced), (KafkaError._TIMED_OUT, WriteFailed)]
)
@pytest.mark.parametrize("while_waiting", [True, False], ids=["waiting for room", "delivering"])
def test_a_client_that_failed_is_asked_whether_it_was_fenced(
    answer: int, raised: type[FencepostError], *, while_waiting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def abort(timeout: float) -> Never:
        raise KafkaException(KafkaError(answer))

    producer = SimpleNamespace(
        produce=None,
        begin_transaction=lambda: None,
        poll=fails_without_a_cause,
        flush=fails_without_a_cause,
        abort_transaction=abort,
    )
    monkeypatch.setattr("fencepost.transaction.make_producer", lambda *_: (producer, Complaints()))
    transaction = Transaction(Settings({}), "an-id", "write")

    def write() -> None:
        with transaction:
            if while_waiting:
                transaction.wait_for_room()

    with pytest.raises(raised, match="an-id"):
        write()
