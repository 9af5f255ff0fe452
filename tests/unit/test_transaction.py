"""What a transaction says of a client that failed without saying why, and when a producer may be used again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Never

import pytest
from confluent_kafka import KafkaError, KafkaException

from fencepost.errors import AccessDenied, CommitStateUnknown, FencepostError, RecordRefused, WriteFailed, WriterFenced
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.errors import Complaints
from fencepost.kafka.transaction import Transaction


def a_transaction(monkeypatch: pytest.MonkeyPatch, **producer: Any) -> Transaction:
    """On a producer that does nothing, but for what is given."""

    def nothing(*_: object) -> int:
        return 0

    calls = "begin_transaction flush poll send_offsets_to_transaction commit_transaction abort_transaction".split()
    made = SimpleNamespace(**{"failed": None, "failed_topic": "out", **dict.fromkeys(calls, nothing), **producer})
    monkeypatch.setattr("fencepost.kafka.transaction.make_producer", lambda *_: (made, Complaints()))
    return Transaction(ClientSettings({}), "an-id", "write")


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


def test_an_init_that_nobody_answers_hears_that_the_login_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the error callback is told, which a call of ours has to serve."""
    silent = raises(KafkaError(KafkaError._TIMED_OUT, "timed out", retriable=True))
    refused = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
    transaction = a_transaction(monkeypatch, init_transactions=silent, poll=lambda _: transaction._complaints(refused))
    with pytest.raises(AccessDenied, match=r"an-id: init_transactions: .* refused access: wrong password"):
        transaction.init()


def test_a_chain_goes_on_with_a_producer_as_long_as_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    transaction = a_transaction(
        monkeypatch,
        begin_transaction=lambda: calls.append("begin"),
        commit_transaction=lambda _: calls.append("commit"),
    )
    for _ in range(3):
        with transaction:
            pass
    assert calls == ["begin", "commit"] * 3


TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
TO_BE_ABORTED = KafkaError(KafkaError._STATE, "current transaction failed", txn_requires_abort=True)
# What goes wrong: what the producer does then, and the error.
WRONG: dict[str, tuple[dict[str, Any], type[BaseException]]] = {
    "a record": ({"failed": TOO_LARGE}, RecordRefused),
    "the delivery": ({"flush": raises(TO_BE_ABORTED)}, WriteFailed),
    "the offsets": ({"send_offsets_to_transaction": raises(TO_BE_ABORTED)}, WriteFailed),
    "the commit, unknown": ({"commit_transaction": raises(KafkaError(KafkaError._FAIL))}, CommitStateUnknown),
    "the commit, to be aborted": ({"commit_transaction": raises(TO_BE_ABORTED)}, WriteFailed),
    "the commit, fenced": ({"commit_transaction": raises(KafkaError(KafkaError._FENCED))}, WriterFenced),
    "the block": ({}, ZeroDivisionError),
    "the interpreter": ({}, KeyboardInterrupt),
}


def use(transaction: Transaction, error: type[BaseException] | None) -> None:
    with transaction:
        transaction.add_offsets([], "a-group")
        if error is not None:
            raise error


@pytest.mark.parametrize("what", WRONG)
def test_a_producer_whose_transaction_failed_is_never_used_again(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Whatever the brokers heard of it could get into the next transaction; only a new epoch keeps it out."""
    broken, error = WRONG[what]
    begun: list[None] = []
    transaction = a_transaction(monkeypatch, begin_transaction=lambda: begun.append(None), **broken)
    with pytest.raises(error):
        use(transaction, error if what in {"the block", "the interpreter"} else None)
    with pytest.raises(AssertionError, match="an-id: a producer whose transaction failed is never used again"):
        use(transaction, None)
    assert len(begun) == 1
