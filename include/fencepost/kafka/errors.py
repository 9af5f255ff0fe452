"""Translates Kafka's errors. Each final code has an error class, and a sentence with the next step.

A positive code, or -1 (unknown), is a broker's answer. Other negative codes come from librdkafka itself. A message asks
whether the broker is up only if no broker answered. A code that is not listed as final is retriable, because a new
attempt reads the state again and has new clients. librdkafka's own `retriable()` covers less: it is set only on errors
that a producer's call returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from fencepost.errors import (
    AccessDenied,
    FencepostError,
    KafkaRefused,
    KafkaUnavailable,
    LoginRefused,
    RecordRefused,
    SettingsError,
    TopicMissing,
    WriteFailed,
    WriterFenced,
)
from fencepost.kafka.client_settings import ClientSettings

K = KafkaError


class RequiredRight(NamedTuple):
    """A right that a request needs: an operation on a resource. Each kind of resource has its own error code for a denial."""

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


def _codes(names: str) -> frozenset[int]:
    return frozenset(getattr(KafkaError, name) for name in names.split())


DENIED = _codes(
    """_AUTHENTICATION _SSL SASL_AUTHENTICATION_FAILED TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED
    CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE
    SECURITY_DISABLED DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED
    INVALID_PRINCIPAL_TYPE UNACCEPTABLE_CREDENTIAL PRINCIPAL_DESERIALIZATION_FAILURE"""
)
FENCED = _codes("_FENCED PRODUCER_FENCED INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING")
# No broker answered. The last error that librdkafka's error callback received says more than the time-out itself.
SILENCE = _codes(
    """_TRANSPORT _TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT _ALL_BROKERS_DOWN _RESOLVE _FAIL _DESTROY_BROKER _WAIT_COORD
    _WAIT_CACHE _ISR_INSUFF _UNKNOWN_BROKER _NODE_UPDATE _RETRY _INTR NETWORK_EXCEPTION"""
)
# The producer cannot continue, and a new one can.
PRODUCER_FAILED = _codes(
    """INVALID_TXN_STATE UNKNOWN_PRODUCER_ID OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER TRANSACTION_ABORTABLE
    _STATE _CONFLICT _INCONSISTENT _GAPLESS_GUARANTEE _PURGE_QUEUE _PURGE_INFLIGHT _FATAL _DESTROY _IN_PROGRESS
    _PREV_IN_PROGRESS"""
)
LEADER_MOVED = _codes("NOT_LEADER_FOR_PARTITION LEADER_NOT_AVAILABLE FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH")
# A new cluster also answers this while it creates its topic for offsets.
COORDINATOR_MOVED = _codes("NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS")


class ErrorMeaning(NamedTuple):
    """The class of an error, and the advice that follows Kafka's own message."""

    kind: type[FencepostError]
    advice: str


def _all(kind: type[FencepostError], codes: str, advice: str) -> dict[int, ErrorMeaning]:
    return dict.fromkeys(_codes(codes), ErrorMeaning(kind, advice))


# A retry ends in the same way: a person has to change a record, a topic, a setting or the cluster.
FINAL: dict[int, ErrorMeaning] = {
    **_all(
        RecordRefused,
        "MSG_SIZE_TOO_LARGE INVALID_MSG_SIZE",
        "A record is too large: raise message.max.bytes in the pipeline's kafka settings and max.message.bytes on that topic, or "
        "make the transform write less.",
    ),
    **_all(
        RecordRefused,
        "RECORD_LIST_TOO_LARGE",
        "A batch of records is larger than the topic's segments: lower batch.size in the pipeline's kafka settings, or raise "
        "segment.bytes on the topic.",
    ),
    **_all(
        RecordRefused,
        "INVALID_RECORD _INVALID_DIFFERENT_RECORD",
        "The topic refuses such a record: a topic with cleanup.policy=compact needs keys (output.key), and a "
        "broker may have its own rules.",
    ),
    **_all(
        RecordRefused,
        "INVALID_TIMESTAMP",
        "A record's timestamp is too far from now for the topic: change what output.timestamp gives, or raise "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms on the topic. In a staging topic, "
        "records have the time of their plan: check that the clocks of the broker and of the plan's machine agree.",
    ),
    **_all(
        TopicMissing,
        "UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION",
        "Create the topic, or correct its name in pipeline.yaml.",
    ),
    **_all(
        SettingsError,
        "TOPIC_EXCEPTION",
        "A topic's name has at most 249 letters, digits, '.', '_' and '-'. Kafka does not distinguish '.' and '_', "
        "so a.b and a_b cannot both exist. Name another topic in pipeline.yaml: output.topic, output.staging_topic "
        "or quality.quarantine_topic. The other topics of a pipeline have the name of its folder: rename the "
        "folder.",
    ),
    **_all(
        SettingsError,
        "INVALID_PARTITIONS",
        "Correct output.partitions in pipeline.yaml, or create the topic yourself.",
    ),
    **_all(
        SettingsError,
        "INVALID_TRANSACTION_TIMEOUT",
        "kafka.transaction.timeout.ms is above the broker's transaction.max.timeout.ms. Lower it in pipeline.yaml, or raise the "
        "broker's limit.",
    ),
    **_all(
        SettingsError,
        "UNSUPPORTED_COMPRESSION_TYPE",
        "Correct compression.type in the pipeline's kafka settings.",
    ),
    **_all(
        SettingsError,
        "_INVALID_ARG _NOT_CONFIGURED INVALID_REQUIRED_ACKS INVALID_SESSION_TIMEOUT",
        "Correct the pipeline's kafka settings, or the command's arguments.",
    ),
    **_all(
        KafkaRefused,
        "INVALID_REPLICATION_FACTOR",
        "The cluster's default.replication.factor does not fit its number of brokers. Create the topic yourself with "
        "a factor that fits, or change the default; then run again.",
    ),
    **_all(
        KafkaRefused,
        "POLICY_VIOLATION INVALID_CONFIG INVALID_REPLICA_ASSIGNMENT",
        "The cluster's rules do not allow this topic. Create the topic yourself, as the rules require; then run again.",
    ),
    **_all(KafkaRefused, "TOPIC_ALREADY_EXISTS", "The topic exists already."),
    **_all(
        KafkaRefused,
        "UNSUPPORTED_VERSION UNSUPPORTED_FOR_MESSAGE_FORMAT _UNSUPPORTED_FEATURE _NOT_IMPLEMENTED",
        "The brokers are too old for this request, or the feature is switched off: upgrade them, or enable it.",
    ),
    **_all(
        KafkaRefused,
        """UNKNOWN_MEMBER_ID ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID
        FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH UNRELEASED_INSTANCE_ID NON_EMPTY_GROUP GROUP_SUBSCRIBED_TO_TOPIC""",
        "Another program has joined one of the pipeline's consumer groups, which only Fencepost may use. Stop the program, or "
        "give it another group.id; then run again.",
    ),
    **_all(
        KafkaRefused,
        "INVALID_REQUEST INVALID_GROUP_ID INVALID_COMMIT_OFFSET_SIZE OFFSET_METADATA_TOO_LARGE _INVALID_TYPE _READ_ONLY",
        "The broker refused the request itself, so a retry ends the same way: look at the pipeline's kafka settings and the "
        "broker's log.",
    ),
}
# Retriable errors that may need a person. For all others Kafka's own message is enough.
HELP: dict[int, str] = {
    K.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas requires: bring back the broker that is down.",
    K.KAFKA_STORAGE_ERROR: "A broker cannot use its disk: see its log, and free or repair the disk.",
    K.THROTTLING_QUOTA_EXCEEDED: "A quota of the cluster is used up: wait, or raise the quota of the pipeline's user.",
    K.UNKNOWN: "The broker failed with an error that has no code: see its log.",
    K._BAD_MSG: "Data from the network was damaged. If it happens again, look for a proxy in between, or for a port of another "
    "protocol (security.protocol).",
    K._CRIT_SYS_RESOURCE: "This machine is short of memory, threads or files: free some.",
    K._FS: "This machine's disk is full, or cannot be used: free or repair it.",
    K._QUEUE_FULL: "Brokers take records more slowly than the job writes them, or the queue is small: find out why they are "
    "slow, or raise queue.buffering.max.messages and queue.buffering.max.kbytes in the pipeline's kafka settings.",
}
HELP[K.NOT_ENOUGH_REPLICAS_AFTER_APPEND] = HELP[K.NOT_ENOUGH_REPLICAS]
HELP[K.LOG_DIR_NOT_FOUND] = HELP[K.KAFKA_STORAGE_ERROR]
HELP |= dict.fromkeys(_codes("INVALID_MSG _BAD_COMPRESSION _PARTIAL _UNDERFLOW _UNKNOWN_PROTOCOL"), HELP[K._BAD_MSG])

# A broker refuses a client's certificate after its own handshake, and librdkafka takes that for a broken connection.
REFUSED_CERTIFICATE = re.compile(
    r"\balert (certificate|bad certificate|unsupported certificate|unknown ca|access denied)"
)
WENT_AWAY = re.compile(r"failed: Local: (Broker transport failure|Timed out)")


class Complaints:
    """The last errors that a client's error callback received. Often only these errors have the cause. `needs` are the
    rights that the client needs.
    """

    def __init__(self, *needs: RequiredRight) -> None:
        self.needs = needs
        self.last: KafkaError | None = None
        self.denied: KafkaError | None = None
        self.unreachable = False  # no connection to any broker has succeeded, as far as the callback reports
        self.unresolved = False  # and no host name could be resolved

    def __call__(self, error: KafkaError) -> None:
        code = error.code()
        if code == K._ALL_BROKERS_DOWN:  # it follows the error with the reason
            self.unreachable = True
            self.unresolved = self.last is not None and self.last.code() == K._RESOLVE
            self.last = self.last or error
            return
        self.last = error
        # librdkafka reports a broker that stops during a login as a failed login, although the broker refused nothing.
        if (code in DENIED and not WENT_AWAY.search(error.str())) or REFUSED_CERTIFICATE.search(error.str()):
            self.denied = error


def translate(
    error: KafkaError,
    doing: str,
    at: ClientSettings,
    complaints: Complaints | None = None,
    needs: Iterable[RequiredRight] = (),
) -> FencepostError:
    """Returns the FencepostError for a KafkaError that occurred while `doing` something. `needs` are the rights that
    the request needs.
    """
    code = error.code()
    denied = complaints.denied if complaints else None
    if code in DENIED or denied is not None:
        return _denied(denied or error, doing, at, (*needs, *(complaints.needs if complaints else ())))
    if code in FENCED:
        return WriterFenced(f"{doing}: a newer producer with the same transactional.id took over ({error.str()}).")
    meaning = FINAL.get(code)
    # A missing topic is no reason to stop here: the answering broker may not know the topic yet.
    if error.txn_requires_abort() and (meaning is None or meaning.kind is TopicMissing):
        return WriteFailed(
            f"{doing}: the transaction cannot be committed: {_said(error, at)} None of its records is visible; run again."
        )
    if code in SILENCE:
        return _silence(error, doing, at, complaints)
    if meaning is not None:
        return meaning.kind(f"{doing}: {_said(error, at)} {meaning.advice}")
    if code in PRODUCER_FAILED:
        return WriteFailed(f"{doing}: {_said(error, at)} A new attempt starts with a new producer. Run again.")
    advice = f"{HELP[code]} Then run again." if code in HELP else "Run again."
    return KafkaUnavailable(f"{doing}: {_said(error, at)} {advice}")


def _said(error: KafkaError, at: ClientSettings) -> str:
    """Returns Kafka's own name and text of the error, and whether a broker or the client reported it."""
    answer = error.code() > 0 or error.code() == K.UNKNOWN
    who = f"Kafka at {at.bootstrap} answered" if answer else "Kafka's client reports"
    return f"{who} {error.name()}: {error.str().rstrip('.')}."


def _denied(error: KafkaError, doing: str, at: ClientSettings, needs: Iterable[RequiredRight]) -> AccessDenied:
    code, text = error.code(), error.str().rstrip(".")
    refused = f"{doing}: Kafka at {at.bootstrap} refused access: {text}."
    if code in NOT_AUTHORIZED:
        return not_authorized(refused, [need for need in needs if need.resource == NOT_AUTHORIZED[code]])
    if code in {K._AUTHENTICATION, K.SASL_AUTHENTICATION_FAILED}:
        return LoginRefused(
            f"{refused} Authentication failed: check sasl.username, sasl.password and sasl.mechanism in the "
            "pipeline's kafka settings. If the password was changed, note that a running process keeps the one "
            "that it started with."
        )
    if code == K._SSL or REFUSED_CERTIFICATE.search(text):
        return LoginRefused(
            f"{refused} TLS failed: check that ssl.ca.location or ssl.ca.pem has the authority of the broker's certificate, and "
            "ssl.certificate.* and ssl.key.* if the broker asks for a client's. `fencepost doctor PIPELINE` names both "
            "certificates, and says until when they are valid."
        )
    return LoginRefused(f"{refused} Check security.protocol and the sasl.* and ssl.* settings of the pipeline.")


def not_authorized(refused: str, lacking: Iterable[RequiredRight]) -> AccessDenied:
    """Returns the error of a user who lacks rights. A topic that the user may not see may also be missing."""
    lacking = list(lacking)
    named = "; ".join(dict.fromkeys(map(str, lacking)))
    unseen = (
        " The topic may also be missing: Kafka does not say so to users who may not see it."
        if _sees_nothing(lacking)
        else ""
    )
    return AccessDenied(f"{refused}{f' Not authorized: the user lacks {named}.' if named else ''}{unseen} {GRANT}")


def _sees_nothing(lacking: Iterable[RequiredRight]) -> bool:
    return any((need.operation, need.resource) == ("Describe", "topic") for need in lacking)


def _silence(error: KafkaError, doing: str, at: ClientSettings, complaints: Complaints | None) -> KafkaUnavailable:
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
    """Raises a KafkaException in place of confluent-kafka's SystemError.

    A client can fail for good while a call serves its callbacks, for example because it was fenced. The call then ends
    with a SystemError. Usually the cause of the SystemError is the KafkaException. Otherwise it has no cause
    *(measured)*, and the transaction has to be aborted. Fencepost's own `librdkafka.Producer` raises no SystemError.
    """
    try:
        yield
    except SystemError as raised:
        if isinstance(raised.__cause__, KafkaException):
            raise raised.__cause__ from raised
        failed = KafkaError(KafkaError._FAIL, "the client failed while it was served", txn_requires_abort=True)
        raise KafkaException(failed) from raised


@contextmanager
def translated(
    doing: str, at: ClientSettings, complaints: Complaints | None = None, *needs: RequiredRight
) -> Iterator[None]:
    """Raises Fencepost's errors in place of confluent-kafka's. The message says what the client was `doing`."""
    try:
        with unwrapped():
            yield
    except KafkaException as error:
        raise translate(error.args[0], doing, at, complaints, needs) from error
