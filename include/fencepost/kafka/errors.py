"""What Kafka's errors mean: every code has a class, and a sentence that says what to do.

A code is a broker's answer (positive, and -1: unknown) or librdkafka's own word (negative). Silence is told apart from
answers: only where nobody answered is the broker asked after. What is retried is what Kafka's own clients retry, and what a
new producer mends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException

from fencepost.errors import (
    AccessDenied,
    FencepostError,
    KafkaRefused,
    KafkaUnavailable,
    RecordRefused,
    SettingsError,
    Terminal,
    TopicMissing,
    WriteFailed,
    WriterFenced,
)

K = KafkaError
AGAIN = "Run again."


class Meaning(NamedTuple):
    """The class of an error, and what to say of it behind Kafka's own words."""

    kind: type[FencepostError]
    advice: str


def _all(kind: type[FencepostError], advice: str, *codes: int) -> dict[int, Meaning]:
    return dict.fromkeys(codes, Meaning(kind, advice))


# Nobody answered. What librdkafka's error callback heard last says more than the time-out itself.
SILENCE = {
    K._TRANSPORT,
    K._TIMED_OUT,
    K._TIMED_OUT_QUEUE,
    K._MSG_TIMED_OUT,
    K._ALL_BROKERS_DOWN,
    K._RESOLVE,
    K._FAIL,
    K._DESTROY_BROKER,
    K._WAIT_COORD,
    K._WAIT_CACHE,
    K._ISR_INSUFF,
    K._UNKNOWN_BROKER,
    K._NODE_UPDATE,
    K._RETRY,
    K._INTR,
    K.NETWORK_EXCEPTION,
}
DENIED = {
    K._AUTHENTICATION,
    K._SSL,
    K.SASL_AUTHENTICATION_FAILED,
    K.TOPIC_AUTHORIZATION_FAILED,
    K.GROUP_AUTHORIZATION_FAILED,
    K.CLUSTER_AUTHORIZATION_FAILED,
    K.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    K.UNSUPPORTED_SASL_MECHANISM,
    K.ILLEGAL_SASL_STATE,
    K.SECURITY_DISABLED,
    K.DELEGATION_TOKEN_AUTH_DISABLED,
    K.DELEGATION_TOKEN_NOT_FOUND,
    K.DELEGATION_TOKEN_OWNER_MISMATCH,
    K.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    K.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    K.DELEGATION_TOKEN_EXPIRED,
    K.INVALID_PRINCIPAL_TYPE,
    K.UNACCEPTABLE_CREDENTIAL,
    K.PRINCIPAL_DESERIALIZATION_FAILURE,
}
FENCED = {K._FENCED, K.PRODUCER_FENCED, K.INVALID_PRODUCER_EPOCH, K.INVALID_PRODUCER_ID_MAPPING}
LEADER_MOVED = {
    K.NOT_LEADER_FOR_PARTITION,
    K.LEADER_NOT_AVAILABLE,
    K.FENCED_LEADER_EPOCH,
    K.UNKNOWN_LEADER_EPOCH,
}
# Said too while a new cluster makes its topic for offsets.
COORDINATOR_MOVED = {K.NOT_COORDINATOR, K.COORDINATOR_NOT_AVAILABLE, K.COORDINATOR_LOAD_IN_PROGRESS}
TOPIC_UNKNOWN = {K.UNKNOWN_TOPIC_OR_PART, K._UNKNOWN_TOPIC, K._UNKNOWN_PARTITION}

TOO_LARGE = (
    "A record is too large: raise message.max.bytes in the pipeline's kafka settings and max.message.bytes on the topic, or "
    "have the transform write less."
)
INVALID = (
    "The topic does not take such a record: a topic with cleanup.policy=compact takes none without a key (output.key), and a "
    "broker may check records by rules of its own."
)
UNFIT_FOR_TOPIC = (
    "The cluster does not create the topic as asked. Create it yourself, as the cluster's rules want it; "
    "then run again."
)
OLD_BROKER = "The brokers are too old for what is asked, or the feature is switched off: upgrade them, or enable it."
NEW_PRODUCER = "This producer's state is of no use any more; a new attempt begins with a new one. Run again."
NOT_ASKED_FOR = "Fencepost asks for nothing of the kind: look into the broker's log, and report it with this line."
BAD_REQUEST = (
    "The request itself was refused, so a retry ends the same way: look at the pipeline's kafka settings "
    "and the broker's log."
)
MOVING = "The cluster is moving leaders or coordinators, or starting; that passes by itself. Run again."

MEANINGS: dict[int, Meaning] = {
    # Worth running again as it is.
    **_all(KafkaUnavailable, MOVING, *LEADER_MOVED, *COORDINATOR_MOVED),
    **_all(
        KafkaUnavailable,
        MOVING,
        K.REQUEST_TIMED_OUT,
        K.BROKER_NOT_AVAILABLE,
        K.REPLICA_NOT_AVAILABLE,
        K.STALE_CTRL_EPOCH,
        K.STALE_BROKER_EPOCH,
        K.NOT_CONTROLLER,
        K.UNKNOWN_CONTROLLER_ID,
        K.PREFERRED_LEADER_NOT_AVAILABLE,
        K.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        K.ELECTION_NOT_NEEDED,
        K.LISTENER_NOT_FOUND,
        K.REASSIGNMENT_IN_PROGRESS,
        K.OFFSET_NOT_AVAILABLE,
        K.REBOOTSTRAP_REQUIRED,
        K.TRANSACTION_COORDINATOR_FENCED,
        K.FETCH_SESSION_ID_NOT_FOUND,
        K.INVALID_FETCH_SESSION_EPOCH,
        K.OPERATION_NOT_ATTEMPTED,
    ),
    **_all(
        KafkaUnavailable,
        "Another transaction of the same id, or of the same group's offsets, is just being ended. Run again.",
        K.CONCURRENT_TRANSACTIONS,
        K.UNSTABLE_OFFSET_COMMIT,
    ),
    **_all(
        KafkaUnavailable,
        "Fewer replicas are in sync than min.insync.replicas asks for: see which broker is away, bring it back, and run again.",
        K.NOT_ENOUGH_REPLICAS,
        K.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ),
    **_all(
        KafkaUnavailable,
        "A broker cannot use its disk: see its log and free or mend the disk; then run again.",
        K.KAFKA_STORAGE_ERROR,
        K.LOG_DIR_NOT_FOUND,
    ),
    **_all(
        KafkaUnavailable,
        "A quota of the cluster is used up: run again later, or have the quota of the pipeline's user raised.",
        K.THROTTLING_QUOTA_EXCEEDED,
    ),
    **_all(
        KafkaUnavailable,
        "The topic was deleted and created again while it was in use. Run again: the step says what that means for the batch.",
        K.UNKNOWN_TOPIC_ID,
        K.INCONSISTENT_TOPIC_ID,
    ),
    **_all(
        KafkaUnavailable,
        "The offsets asked for are not in the topic (any more). Run again: the step then names what is missing.",
        K.OFFSET_OUT_OF_RANGE,
        K._AUTO_OFFSET_RESET,
        K._NO_OFFSET,
        K._LOG_TRUNCATION,
    ),
    **_all(KafkaUnavailable, "The broker failed in a way it has no name for: see its log. Run again.", K.UNKNOWN),
    **_all(
        KafkaUnavailable,
        "What came over the network was damaged or cut short. Run again; where it stays, a proxy or a port of another "
        "protocol stands between (security.protocol).",
        K.INVALID_MSG,
        K._BAD_MSG,
        K._BAD_COMPRESSION,
        K._PARTIAL,
        K._UNDERFLOW,
        K._UNKNOWN_PROTOCOL,
    ),
    **_all(
        KafkaUnavailable,
        "This machine is short of memory, threads, files or disk: free some, and run again.",
        K._CRIT_SYS_RESOURCE,
        K._FS,
    ),
    **_all(
        KafkaUnavailable,
        "The producer's queue is full: brokers take records more slowly than they are written, or the queue is small. See why "
        "they are slow, or raise queue.buffering.max.messages and queue.buffering.max.kbytes in the pipeline's kafka settings; "
        "then run again.",
        K._QUEUE_FULL,
    ),
    **_all(
        WriteFailed,
        NEW_PRODUCER,
        K.INVALID_TXN_STATE,
        K.UNKNOWN_PRODUCER_ID,
        K.OUT_OF_ORDER_SEQUENCE_NUMBER,
        K.DUPLICATE_SEQUENCE_NUMBER,
        K.TRANSACTION_ABORTABLE,
        K._STATE,
        K._CONFLICT,
        K._INCONSISTENT,
        K._GAPLESS_GUARANTEE,
        K._PURGE_QUEUE,
        K._PURGE_INFLIGHT,
        K._FATAL,
        K._DESTROY,
        K._IN_PROGRESS,
        K._PREV_IN_PROGRESS,
        K._APPLICATION,
        K._OUTDATED,
    ),
    # A record, a topic, a setting that is never taken.
    **_all(RecordRefused, TOO_LARGE, K.MSG_SIZE_TOO_LARGE, K.INVALID_MSG_SIZE),
    **_all(
        RecordRefused,
        "A batch of records is larger than the topic's segments: lower batch.size in the pipeline's kafka settings, or raise "
        "segment.bytes on the topic.",
        K.RECORD_LIST_TOO_LARGE,
    ),
    **_all(RecordRefused, INVALID, K.INVALID_RECORD, K._INVALID_DIFFERENT_RECORD),
    **_all(
        RecordRefused,
        "A record's timestamp is further from now than the topic takes: have output.timestamp give another one, or widen "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms on the topic.",
        K.INVALID_TIMESTAMP,
    ),
    **_all(TopicMissing, "Create the topic, or mend its name in pipeline.yaml.", *TOPIC_UNKNOWN),
    **_all(
        SettingsError,
        "Mend the topic's name in pipeline.yaml: letters, digits, '.', '_' and '-', at most 249 of them.",
        K.TOPIC_EXCEPTION,
    ),
    **_all(SettingsError, "Mend output.partitions in pipeline.yaml, or create the topic yourself.", K.INVALID_PARTITIONS),
    **_all(
        KafkaRefused,
        "The cluster's default.replication.factor does not fit its number of brokers. Create the topic yourself with one that "
        "does, or have the default changed; then run again.",
        K.INVALID_REPLICATION_FACTOR,
    ),
    **_all(KafkaRefused, UNFIT_FOR_TOPIC, K.POLICY_VIOLATION, K.INVALID_CONFIG, K.INVALID_REPLICA_ASSIGNMENT),
    **_all(KafkaRefused, "It is there already.", K.TOPIC_ALREADY_EXISTS),
    **_all(
        SettingsError,
        "kafka.transaction.timeout.ms lies above the broker's transaction.max.timeout.ms. Lower the one in pipeline.yaml, or "
        "have the other raised.",
        K.INVALID_TRANSACTION_TIMEOUT,
    ),
    **_all(
        SettingsError, "Mend compression.type in the pipeline's kafka settings.", K.UNSUPPORTED_COMPRESSION_TYPE
    ),
    **_all(
        SettingsError,
        "Mend the pipeline's kafka settings, and what the command was given.",
        K._INVALID_ARG,
        K._NOT_CONFIGURED,
        K.INVALID_REQUIRED_ACKS,
        K.INVALID_SESSION_TIMEOUT,
    ),
    **_all(
        KafkaRefused,
        OLD_BROKER,
        K.UNSUPPORTED_VERSION,
        K.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        K._UNSUPPORTED_FEATURE,
        K._NOT_IMPLEMENTED,
    ),
    **_all(
        KafkaRefused,
        "Another program is a member of a consumer group of the pipeline's name: those groups are Fencepost's alone. Stop it, "
        "or give it another group.id; then run again.",
        K.UNKNOWN_MEMBER_ID,
        K.ILLEGAL_GENERATION,
        K.INCONSISTENT_GROUP_PROTOCOL,
        K.REBALANCE_IN_PROGRESS,
        K.FENCED_INSTANCE_ID,
        K.FENCED_MEMBER_EPOCH,
        K.STALE_MEMBER_EPOCH,
        K.UNRELEASED_INSTANCE_ID,
        K.NON_EMPTY_GROUP,
        K.GROUP_SUBSCRIBED_TO_TOPIC,
    ),
    **_all(
        KafkaRefused,
        BAD_REQUEST,
        K.INVALID_REQUEST,
        K.INVALID_GROUP_ID,
        K.INVALID_COMMIT_OFFSET_SIZE,
        K.OFFSET_METADATA_TOO_LARGE,
        K._INVALID_TYPE,
        K._NOENT,
        K._READ_ONLY,
    ),
}  # fmt: skip


class At(Protocol):
    """Where the cluster is, for messages."""

    @property
    def bootstrap(self) -> str: ...


WENT_AWAY = re.compile(r"failed: Local: (Broker transport failure|Timed out)")


class Complaints:
    """What a client's error callback said last; it is often the only place where the cause shows."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.denied: KafkaError | None = None
        self.unreachable = False  # no broker could be connected to, as far as heard
        self.unresolved = False  # and no host name could be resolved

    def __call__(self, error: KafkaError) -> None:
        code = error.code()
        if code == K._ALL_BROKERS_DOWN:  # it follows the one that says why
            self.unreachable = True
            self.unresolved = self.last is not None and self.last.code() == K._RESOLVE
            self.last = self.last or error
            return
        self.last = error
        # A broker that goes away in the middle of a login is reported as a failed login; it refused nothing.
        if code in DENIED and not WENT_AWAY.search(error.str()):
            self.denied = error


def translate(error: KafkaError, doing: str, at: At, complaints: Complaints | None = None) -> FencepostError:
    """The FencepostError for a KafkaError met while `doing` something."""
    code = error.code()
    denied = complaints.denied if complaints else None
    if code in DENIED or denied is not None:
        return _denied(denied or error, doing, at)
    if code in FENCED:
        return WriterFenced(f"{doing}: a newer producer with the same transactional.id took over ({error.str()}).")
    meaning = MEANINGS.get(code)
    # A topic may just not be known yet to the broker that was asked.
    final = meaning is not None and issubclass(meaning.kind, Terminal) and meaning.kind is not TopicMissing
    if error.txn_requires_abort() and not final:
        return WriteFailed(
            f"{doing}: the transaction cannot be committed: {_said(error, at)} Nothing of it is visible; run again."
        )
    if code in SILENCE:
        return _silence(error, doing, at, complaints)
    if meaning is None:
        meaning = Meaning(KafkaUnavailable, AGAIN) if error.retriable() else Meaning(KafkaRefused, NOT_ASKED_FOR)
    return meaning.kind(f"{doing}: {_said(error, at)} {meaning.advice}")


def _said(error: KafkaError, at: At) -> str:
    """Kafka's own name and words, and who said them."""
    answer = error.code() > 0 or error.code() == K.UNKNOWN
    who = f"Kafka at {at.bootstrap} answered" if answer else "Kafka's client reports"
    return f"{who} {error.name()}: {error.str().rstrip('.')}."


def _denied(error: KafkaError, doing: str, at: At) -> AccessDenied:
    return AccessDenied(
        f"{doing}: Kafka at {at.bootstrap} refused us: {error.str()}. Check security.protocol and the sasl.* "
        "and ssl.* settings of the pipeline, and that its user may read, write and describe its topics, groups and "
        "transactional ids."
    )


def _silence(error: KafkaError, doing: str, at: At, complaints: Complaints | None) -> KafkaUnavailable:
    seen = (complaints.last if complaints else None) or error
    if seen.code() == K._RESOLVE:
        return KafkaUnavailable(
            f"{doing}: no answer from Kafka at {at.bootstrap}: the host name is not known here ({seen.str()}). Mend "
            "bootstrap.servers in the pipeline's kafka settings, or the name service; then run again."
        )
    return KafkaUnavailable(
        f"{doing}: no answer from Kafka at {at.bootstrap}: {seen.str().rstrip('.')}. Is the broker up? Then run again."
    )


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raises a KafkaException where confluent-kafka raises a SystemError.

    A client that fails for good, by being fenced for example, while a call of ours serves its callbacks ends that call
    with a SystemError, which has the KafkaException as its cause, or no cause at all *(measured)*. Without a cause the
    transaction is to be aborted. Our own `librdkafka.Producer` raises none.
    """
    try:
        yield
    except SystemError as raised:
        if isinstance(raised.__cause__, KafkaException):
            raise raised.__cause__ from raised
        failed = KafkaError(KafkaError._FAIL, "the client failed while it was served", txn_requires_abort=True)
        raise KafkaException(failed) from raised


@contextmanager
def translated(doing: str, at: At, complaints: Complaints | None = None) -> Iterator[None]:
    """Raises Fencepost's errors for confluent-kafka's, with what was being done."""
    try:
        with unwrapped():
            yield
    except KafkaException as error:
        raise translate(error.args[0], doing, at, complaints) from error
