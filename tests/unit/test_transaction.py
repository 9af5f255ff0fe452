"""What a transaction says of a client that failed without saying why, and when a producer may be used again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Never

import pytest
from confluent_kafka import KafkaError, KafkaException

from fencepost.errors import FencepostError, RecordRefused, WriteFailed, WriterFenced
from fencepost.kafka import Settings
from fencepost.kafka_errors import Complaints
from fencepost.transaction import Transaction


def a_transaction(monkeypatch: pytest.MonkeyPatch, **producer: Any) -> Transaction:
    """On a producer that does nothing, but for what is given."""

    def nothing(*_: object) -> int:
        return 0

    calls = ("begin_transaction", "flush", "poll", "commit_transaction", "abort_transaction")
    made = SimpleNamespace(**{"failed": None, **dict.fromkeys(calls, nothing), **producer})
    monkeypatch.setattr("fencepost.transaction.make_producer", lambda *_: (made, Complaints()))
    return Transaction(Settings({}), "an-id", "write")


def raises(error: KafkaError) -> Any:
    def call(*_: object) -> Never:
        raise KafkaException(error)

    return call


@pytest.mark.parametrize(
    ("answer", "raised"), [(KafkaError._FENCED, WriterFenced), (KafkaError._TIMED_OUT, WriteFailed)]
)
def test_a_client_that_is_to_abort_is_asked_whether_it_was_fenced(
    answer: int, raised: type[FencepostError], monkeypatch: pytest.MonkeyPatch
) -> None:
    to_be_aborted = KafkaError(KafkaError._STATE, "current transaction failed", txn_requires_abort=True)
    transaction = a_transaction(
        monkeypatch, flush=raises(to_be_aborted), abort_transaction=raises(KafkaError(answer, "gone"))
    )
    with pytest.raises(raised, match="an-id"), transaction:
        pass


def test_a_chain_goes_on_with_a_producer_as_long_as_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = a_transaction(monkeypatch)
    for _ in range(3):
        with transaction:
            pass


@pytest.mark.parametrize("at", ["the commit", "a record"])
def test_a_producer_whose_transaction_failed_is_never_used_again(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Whatever the brokers heard of it could get into the next transaction; only a new epoch keeps it out."""
    refused = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    broken: dict[str, Any] = {"failed": refused} if at == "a record" else {"commit_transaction": raises(refused)}
    transaction = a_transaction(monkeypatch, **broken)
    with pytest.raises((RecordRefused, FencepostError)), transaction:
        pass
    with pytest.raises(AssertionError, match="never used again"), transaction:
        pass
