"""What Kafka's errors mean: each code has an error class and a sentence that says what to do.

A code is a broker's answer (positive, or -1: unknown) or comes from librdkafka itself (negative). Silence is not an answer:
only then does a message ask whether the broker is up. An error is retriable if Kafka's own clients retry it, or if a new
producer can succeed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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
from fencepost.kafka.certificates import explain_certificates

K = KafkaError
AGAIN = "Run again."


class Need(NamedTuple):
    """A right that a request needs: an operation on a resource. For each kind of resource the code of the denial differs."""

    operation: str
    resource: str  # topic, group, transactional id or cluster
    name: str

    def __str__(self) -> str:
        included = " (Read and Write include it)" if self.operation == "Describe" else ""
        return f"{self.operation} on {self.resource} {self.name}{included}"


NOT_AUTHORIZED = {
    K.TOPIC_AUTHORIZATION_FAILED: "topic",
    K.GROUP_AUTHORIZATION_FAILED: "group",
    K.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    K.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
GRANT = "`fencepost acls PIPELINE --principal User:NAME` prints the commands that grant all that the pipeline needs."


class Meaning(NamedTuple):
    """The class of an error, and the advice that follows Kafka's own words."""

    kind: type[FencepostError]
    advice: str


def _all(kind: type[FencepostError], advice: str, *codes: int) -> dict[int, Meaning]:
    return dict.fromkeys(codes, Meaning(kind, advice))


# No broker answered. What librdkafka's error callback heard last says more than the time-out itself.
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
# A new cluster also answers this while it makes its topic for offsets.
COORDINATOR_MOVED = {K.NOT_COORDINATOR, K.COORDINATOR_NOT_AVAILABLE, K.COORDINATOR_LOAD_IN_PROGRESS}
TOPIC_UNKNOWN = {K.UNKNOWN_TOPIC_OR_PART, K._UNKNOWN_TOPIC, K._UNKNOWN_PARTITION}

TOO_LARGE = (
    "A record is too large: raise message.max.bytes in the pipeline's kafka settings and max.message.bytes on the topic, or "
    "make the transform write less."
)
INVALID = (
    "The topic refuses such a record: a topic with cleanup.policy=compact needs keys (output.key), and a broker may have "
    "rules of its own."
)
UNFIT_FOR_TOPIC = (
    "The cluster's rules do not allow this topic. Create the topic yourself, as the rules require; then run again."
)
OLD_BROKER = "The brokers are too old for this request, or the feature is switched off: upgrade them, or enable it."
NEW_PRODUCER = "This producer cannot continue; a new attempt starts with a new one. Run again."
NOT_ASKED_FOR = (
    "Fencepost sends no request that ends like this: look into the broker's log, and report it with this line."
)
BAD_REQUEST = (
    "The broker refused the request itself, so a retry ends the same way: look at the pipeline's kafka settings "
    "and the broker's log."
)
MOVING = "The cluster is starting, or moving leaders or coordinators; this passes by itself. Run again."

MEANINGS: dict[int, Meaning] = {
    # Worth another run without a change.
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
        K._NOENT,  # no partition asked for has a leader
    ),
    **_all(
        KafkaUnavailable,
        "Another transaction with the same id, or with offsets of the same group, is just ending. Run again.",
        K.CONCURRENT_TRANSACTIONS,
        K.UNSTABLE_OFFSET_COMMIT,
    ),
    **_all(
        KafkaUnavailable,
        "Fewer replicas are in sync than min.insync.replicas requires: bring back the broker that is down, and run again.",
        K.NOT_ENOUGH_REPLICAS,
        K.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ),
    **_all(
        KafkaUnavailable,
        "A broker cannot use its disk: see its log, and free or repair the disk; then run again.",
        K.KAFKA_STORAGE_ERROR,
        K.LOG_DIR_NOT_FOUND,
    ),
    **_all(
        KafkaUnavailable,
        "A quota of the cluster is used up: run again later, or raise the quota of the pipeline's user.",
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
        "The topic does not have these offsets, or no longer has them. Run again: the step then names what is missing.",
        K.OFFSET_OUT_OF_RANGE,
        K._AUTO_OFFSET_RESET,
        K._NO_OFFSET,
        K._LOG_TRUNCATION,
    ),
    **_all(KafkaUnavailable, "The broker failed with an error it has no code for: see its log. Run again.", K.UNKNOWN),
    **_all(
        KafkaUnavailable,
        "Data from the network was damaged or cut short. Run again. If it happens again, look for a proxy in between, or for "
        "a port of another protocol (security.protocol).",
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
        "The producer's queue is full: brokers take records more slowly than the job writes them, or the queue is small. Find "
        "out why they are slow, or raise queue.buffering.max.messages and queue.buffering.max.kbytes in the pipeline's kafka "
        "settings; then run again.",
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
    # A record, topic or setting that Kafka will never take.
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
        "A record's timestamp is too far from now for the topic: change what output.timestamp gives, or raise "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms on the topic.",
        K.INVALID_TIMESTAMP,
    ),
    **_all(TopicMissing, "Create the topic, or correct its name in pipeline.yaml.", *TOPIC_UNKNOWN),
    **_all(
        SettingsError,
        "Correct the topic's name in pipeline.yaml: at most 249 letters, digits, '.', '_' and '-'.",
        K.TOPIC_EXCEPTION,
    ),
    **_all(SettingsError, "Correct output.partitions in pipeline.yaml, or create the topic yourself.", K.INVALID_PARTITIONS),
    **_all(
        KafkaRefused,
        "The cluster's default.replication.factor does not fit its number of brokers. Create the topic yourself with a factor "
        "that does, or change the default; then run again.",
        K.INVALID_REPLICATION_FACTOR,
    ),
    **_all(KafkaRefused, UNFIT_FOR_TOPIC, K.POLICY_VIOLATION, K.INVALID_CONFIG, K.INVALID_REPLICA_ASSIGNMENT),
    **_all(KafkaRefused, "The topic exists already.", K.TOPIC_ALREADY_EXISTS),
    **_all(
        SettingsError,
        "kafka.transaction.timeout.ms is above the broker's transaction.max.timeout.ms. Lower it in pipeline.yaml, or "
        "raise the broker's limit.",
        K.INVALID_TRANSACTION_TIMEOUT,
    ),
    **_all(
        SettingsError, "Correct compression.type in the pipeline's kafka settings.", K.UNSUPPORTED_COMPRESSION_TYPE
    ),
    **_all(
        SettingsError,
        "Correct the pipeline's kafka settings, or the command's arguments.",
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
        "Another program has joined one of the pipeline's consumer groups, which only Fencepost may use. Stop the program, "
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
        K._READ_ONLY,
    ),
}  # fmt: skip


class At(Protocol):
    """The cluster's address, for messages, and the settings whose certificates a message tells of."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def values(self) -> Mapping[str, str]: ...


# A broker refuses a client's certificate behind its own handshake: librdkafka takes that for a broken connection.
REFUSED_CERTIFICATE = re.compile(
    r"\balert (certificate|bad certificate|unsupported certificate|unknown ca|access denied)"
)
WENT_AWAY = re.compile(r"failed: Local: (Broker transport failure|Timed out)")


class Complaints:
    """What a client's error callback heard last. Often the cause shows nowhere else. `needs` are the client's rights."""

    def __init__(self, *needs: Need) -> None:
        self.needs = needs
        self.last: KafkaError | None = None
        self.denied: KafkaError | None = None
        self.unreachable = False  # no connection to any broker succeeded, as far as heard
        self.unresolved = False  # and no host name could be resolved

    def __call__(self, error: KafkaError) -> None:
        code = error.code()
        if code == K._ALL_BROKERS_DOWN:  # it follows the error that says why
            self.unreachable = True
            self.unresolved = self.last is not None and self.last.code() == K._RESOLVE
            self.last = self.last or error
            return
        self.last = error
        # librdkafka reports a broker that goes away during a login as a failed login; the broker refused nothing.
        if (code in DENIED and not WENT_AWAY.search(error.str())) or REFUSED_CERTIFICATE.search(error.str()):
            self.denied = error


def translate(
    error: KafkaError, doing: str, at: At, complaints: Complaints | None = None, needs: Iterable[Need] = ()
) -> FencepostError:
    """The FencepostError for a KafkaError met while `doing` something. `needs` are the rights that this takes."""
    code = error.code()
    denied = complaints.denied if complaints else None
    if code in DENIED or denied is not None:
        return _denied(denied or error, doing, at, (*needs, *(complaints.needs if complaints else ())))
    if code in FENCED:
        return WriterFenced(f"{doing}: a newer producer with the same transactional.id took over ({error.str()}).")
    meaning = MEANINGS.get(code)
    # The broker that answered may not know the topic yet.
    final = meaning is not None and issubclass(meaning.kind, Terminal) and meaning.kind is not TopicMissing
    if error.txn_requires_abort() and not final:
        return WriteFailed(
            f"{doing}: the transaction cannot be committed: {_said(error, at)} None of it is visible; run again."
        )
    if code in SILENCE:
        return _silence(error, doing, at, complaints)
    if meaning is None:
        meaning = Meaning(KafkaUnavailable, AGAIN) if error.retriable() else Meaning(KafkaRefused, NOT_ASKED_FOR)
    return meaning.kind(f"{doing}: {_said(error, at)} {meaning.advice}")


def _said(error: KafkaError, at: At) -> str:
    """Kafka's own name and text of the error, and whether a broker or the client reported it."""
    answer = error.code() > 0 or error.code() == K.UNKNOWN
    who = f"Kafka at {at.bootstrap} answered" if answer else "Kafka's client reports"
    return f"{who} {error.name()}: {error.str().rstrip('.')}."


def _denied(error: KafkaError, doing: str, at: At, needs: Iterable[Need]) -> AccessDenied:
    code, text = error.code(), error.str().rstrip(".")
    refused = f"{doing}: Kafka at {at.bootstrap} refused access: {text}."
    if code in NOT_AUTHORIZED:
        return not_authorized(refused, [need for need in needs if need.resource == NOT_AUTHORIZED[code]])
    if code in {K._AUTHENTICATION, K.SASL_AUTHENTICATION_FAILED}:
        return AccessDenied(
            f"{refused} Authentication failed: check sasl.username, sasl.password and sasl.mechanism in the pipeline's kafka "
            "settings. Was the password changed? A running process keeps the one that it began with."
        )
    if code == K._SSL or REFUSED_CERTIFICATE.search(text):
        return AccessDenied(f"{refused} {explain_certificates(at.values)}")
    return AccessDenied(f"{refused} Check security.protocol and the sasl.* and ssl.* settings of the pipeline.")


def not_authorized(refused: str, lacking: Iterable[Need]) -> AccessDenied:
    """The error of a user who lacks rights. A topic that the user may not see may also be missing."""
    lacking = list(lacking)
    named = "; ".join(dict.fromkeys(map(str, lacking)))
    unseen = " The topic may be missing too: who may not see it is not told." if _sees_nothing(lacking) else ""
    return AccessDenied(f"{refused}{f' Not authorized: the user lacks {named}.' if named else ''}{unseen} {GRANT}")


def _sees_nothing(lacking: Iterable[Need]) -> bool:
    return any((need.operation, need.resource) == ("Describe", "topic") for need in lacking)


def _silence(error: KafkaError, doing: str, at: At, complaints: Complaints | None) -> KafkaUnavailable:
    seen = (complaints.last if complaints else None) or error
    if seen.code() == K._RESOLVE:
        return KafkaUnavailable(
            f"{doing}: no answer from Kafka at {at.bootstrap}: the host name is unknown here ({seen.str()}). Correct "
            "bootstrap.servers in the pipeline's kafka settings, or repair the name service; then run again."
        )
    return KafkaUnavailable(
        f"{doing}: no answer from Kafka at {at.bootstrap}: {seen.str().rstrip('.')}. Is the broker up? Then run again."
    )


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise a KafkaException instead of confluent-kafka's SystemError.

    A client can fail for good, for example because it was fenced, while a call serves its callbacks. The call then ends with
    a SystemError, whose cause is the KafkaException, or which has no cause *(measured)*. Without a cause the transaction has
    to be aborted. Our own `librdkafka.Producer` raises no SystemError.
    """
    try:
        yield
    except SystemError as raised:
        if isinstance(raised.__cause__, KafkaException):
            raise raised.__cause__ from raised
        failed = KafkaError(KafkaError._FAIL, "the client failed while it was served", txn_requires_abort=True)
        raise KafkaException(failed) from raised


@contextmanager
def translated(doing: str, at: At, complaints: Complaints | None = None, *needs: Need) -> Iterator[None]:
    """Raise Fencepost's errors instead of confluent-kafka's; the message says what was being done."""
    try:
        with unwrapped():
            yield
    except KafkaException as error:
        raise translate(error.args[0], doing, at, complaints, needs) from error
