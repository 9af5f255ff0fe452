"""What librdkafka's error callback says, and what Fencepost makes of it."""

from __future__ import annotations

import re
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from fencepost.errors import (
    AccessDenied,
    FencepostError,
    KafkaRefused,
    KafkaUnavailable,
    LoginRefused,
    RecordRefused,
    Retriable,
    SettingsError,
    Terminal,
    TopicMissing,
)
from fencepost.jars import java
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.errors import DENIED, FENCED, FINAL, NOT_AUTHORIZED, SILENCE, Complaints, RequiredRight, translate
from fencepost_stack.jars import class_path
from fencepost_stack.state_folder import StateFolder

HERE = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ("SASL authentication error: Authentication failed: Invalid username or password", LoginRefused),
        (
            "SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure",
            KafkaUnavailable,
        ),
        ("SASL SCRAM-SHA-256 mechanism handshake failed: Local: Timed out (after 10 ms)", KafkaUnavailable),
    ],
)
def test_a_login_that_broke_off_was_not_refused(said: str, raised: type[Exception]) -> None:
    complaints = Complaints()
    complaints(KafkaError(KafkaError._AUTHENTICATION, said))
    assert type(translate(TIMED_OUT, "reading", HERE, complaints)) is raised


def test_a_setting_of_a_topic_just_created_is_asked_again_until_the_broker_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by seed 112 of the soak: the ledger was made, and the next broker asked had not heard of it."""
    answers: list[str | TopicMissing] = [TopicMissing("unknown topic"), TopicMissing("unknown topic"), "compact"]

    def config(*_: object) -> str:
        answer = answers.pop(0)
        if isinstance(answer, TopicMissing):
            raise answer
        return answer

    cluster = Cluster(HERE)
    monkeypatch.setattr(cluster, "_config", config)
    assert cluster.topic_config("ledger", "cleanup.policy") == "compact"


def test_a_topic_that_stays_unknown_is_named_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(*_: object) -> str:
        raise TopicMissing("unknown topic ledger")

    cluster = Cluster(HERE, timeout=0.1)
    monkeypatch.setattr(cluster, "_config", config)
    with pytest.raises(TopicMissing, match="unknown topic ledger"):
        cluster.topic_config("ledger", "cleanup.policy")


def test_a_partition_without_an_answer_is_asked_again_and_never_taken_for_an_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by seed 128 of the soak: -1001 and no error, while a broker was cut off."""
    answers = [[5, OFFSET_INVALID], [5, 7]]

    def list_offsets(asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Any]:
        return dict(zip(asked, answers.pop(0), strict=True))

    cluster = Cluster(HERE, timeout=1.0)
    monkeypatch.setattr(cluster, "_admin", SimpleNamespace(list_offsets=list_offsets))
    monkeypatch.setattr(cluster, "_ask", lambda doing, offset, *_: SimpleNamespace(offset=offset))
    assert cluster.high_watermarks(Topic("orders", "id", 2)) == [5, 7]
    answers = [[5, OFFSET_INVALID]] * 1000
    with pytest.raises(KafkaUnavailable, match="listing offsets of topic orders"):
        cluster.high_watermarks(Topic("orders", "id", 2))


def test_offsets_of_a_topic_that_its_leader_does_not_know_yet_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy cluster of three brokers: the topic was made and described, and its leader had not heard of it."""
    answers: list[int | TopicMissing] = [TopicMissing("unknown topic"), TopicMissing("unknown topic"), 7]

    def ask(*_: object) -> SimpleNamespace:
        answer = answers.pop(0)
        if isinstance(answer, TopicMissing):
            raise answer
        return SimpleNamespace(offset=answer)

    cluster = Cluster(HERE)
    monkeypatch.setattr(cluster, "_admin", SimpleNamespace(list_offsets=lambda asked, **_: dict.fromkeys(asked)))
    monkeypatch.setattr(cluster, "_ask", ask)
    assert cluster.earliest(Topic("orders", "id", 1)) == [7]


CODES = {name: code for name, code in vars(KafkaError).items() if isinstance(code, int) and code and name.isupper()}


@pytest.mark.parametrize("name", CODES)
def test_every_code_has_a_class_and_a_sentence_that_fits_it(name: str) -> None:
    """Only silence is asked whether the broker is up; what was answered is named; a person is told when a retry may do."""
    code = CODES[name]
    error = translate(KafkaError(code), "asking", HERE)
    assert ("Is the broker up?" in str(error)) == (code in SILENCE - {KafkaError._RESOLVE})
    assert "127.0.0.1:1" in str(error) or code < 0 or code in FENCED
    assert isinstance(error, Terminal) == (code in FINAL or code in DENIED), "what is not listed as final is retriable"
    if code in FINAL:
        assert type(error) is FINAL[code].kind
        assert f"{name}: {KafkaError(code).str().rstrip('.')}" in str(error), "Kafka's own name and words"
    if isinstance(error, Retriable) and code not in FENCED:
        assert "un again" in str(error)


def test_a_code_that_nobody_has_thought_of_is_retriable() -> None:
    unknown = 9_999
    assert type(translate(KafkaError(unknown), "asking", HERE)) is KafkaUnavailable


@pytest.fixture(scope="module")
def retriable_to_kafka() -> set[int]:
    """The codes that Kafka's own clients repeat, as its Errors class prints them."""
    table = subprocess.run(
        [java(), "-cp", class_path(StateFolder.default().jars_kafka), "org.apache.kafka.common.protocol.Errors"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = re.findall(r"<td>(-?\d+)</td>\s*<td>(True|False)</td>", table)
    assert len(rows) > 100
    return {int(code) for code, repeated in rows if repeated == "True"}


def test_nothing_is_final_that_kafkas_own_clients_repeat(retriable_to_kafka: set[int]) -> None:
    """But for a topic that is missing: where a broker may not know it yet, we have waited for it already."""
    assert (FINAL.keys() | DENIED) & retriable_to_kafka == {KafkaError.UNKNOWN_TOPIC_OR_PART}


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (KafkaError.INVALID_REPLICATION_FACTOR, KafkaRefused, "default.replication.factor"),
        (KafkaError.POLICY_VIOLATION, KafkaRefused, "Create the topic yourself, as the rules require"),
        (KafkaError.TOPIC_EXCEPTION, SettingsError, "at most 249"),
        (KafkaError.UNSUPPORTED_VERSION, KafkaRefused, "too old"),
        (KafkaError.INVALID_TIMESTAMP, RecordRefused, "message.timestamp.before.max.ms"),
        (KafkaError.RECORD_LIST_TOO_LARGE, RecordRefused, "segment.bytes"),
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordRefused, "message.max.bytes"),
        (KafkaError.NOT_ENOUGH_REPLICAS, KafkaUnavailable, "min.insync.replicas"),
        (KafkaError.THROTTLING_QUOTA_EXCEEDED, KafkaUnavailable, "quota"),
        (KafkaError.DELEGATION_TOKEN_EXPIRED, LoginRefused, "sasl"),
        (KafkaError._RESOLVE, KafkaUnavailable, "the host name is unknown here"),
        (KafkaError._NOENT, KafkaUnavailable, "Run again"),  # seed 243 of the soak: two of three nodes were dead
        (KafkaError.UNKNOWN_MEMBER_ID, KafkaRefused, "joined one of the pipeline's consumer groups"),
    ],
)
def test_the_advice_is_about_what_happened(code: int, kind: type[FencepostError], words: str) -> None:
    error = translate(KafkaError(code), "asking", HERE)
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize("code", [KafkaError.UNSUPPORTED_VERSION, KafkaError.INVALID_TIMESTAMP])
def test_an_answer_that_no_retry_changes_is_terminal_inside_a_transaction_too(code: int) -> None:
    assert isinstance(translate(KafkaError(code, "said", txn_requires_abort=True), "asking", HERE), Terminal)


def test_an_unresolved_name_is_told_from_a_broker_that_is_down() -> None:
    complaints = Complaints()
    complaints(KafkaError(KafkaError._RESOLVE, "Failed to resolve 'kafkaa:9092'"))
    complaints(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert (complaints.unreachable, complaints.unresolved) == (True, True)
    assert "kafkaa" in str(translate(TIMED_OUT, "asking", HERE, complaints))
    complaints(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    complaints(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert (complaints.unreachable, complaints.unresolved) == (True, False)
    assert "Connection refused" in str(translate(TIMED_OUT, "asking", HERE, complaints))


def test_a_broker_that_is_not_there_is_waited_for_with_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka says "Connection refused" some twenty times a second."""
    monkeypatch.setattr("fencepost.kafka.cluster.FIRST_CONTACT", 2.0)
    with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:1: .*Connection refused.*Is the broker up\?"):
        Cluster(HERE).describe("orders")
    assert [r.getMessage() for r in caplog.records] == [
        "waiting for Kafka at 127.0.0.1:1, 2 s at most: no broker answers"
    ]


def test_a_host_name_that_nobody_knows_is_named_without_waiting(caplog: pytest.LogCaptureFixture) -> None:
    nowhere = ClientSettings({"bootstrap.servers": "kafka.invalid:9092"})
    with pytest.raises(KafkaUnavailable, match=r"the host name is unknown here.*Correct\s+bootstrap.servers"):
        Cluster(nowhere).describe("orders")
    assert caplog.records == [], "not even a line to say that it waits"


@pytest.mark.parametrize(
    ("code", "who"),
    [
        (KafkaError.POLICY_VIOLATION, "Kafka at 127.0.0.1:1 answered"),
        (KafkaError.UNKNOWN, "Kafka at 127.0.0.1:1 answered"),
        (KafkaError._QUEUE_FULL, "Kafka's client reports"),
    ],
)
def test_a_brokers_answer_is_told_from_the_clients_own_word(code: int, who: str) -> None:
    assert str(translate(KafkaError(code), "reading", HERE)).startswith(f"reading: {who} ")


def test_a_brokers_setting_is_asked_for_like_anything_else() -> None:
    """Metadata asked for by a call of its own would wait for half a minute, whatever is known by then."""
    nowhere = Cluster(ClientSettings({"bootstrap.servers": "kafka.invalid:9092"}))
    with pytest.raises(KafkaUnavailable, match=r"reading broker setting node\.id.*the host name is unknown here"):
        nowhere.broker_config("node.id", "")


def test_a_cluster_that_knows_no_broker_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(HERE)
    monkeypatch.setattr(cluster, "_ask", lambda doing, future, *_: SimpleNamespace(nodes=[]))
    with pytest.raises(KafkaUnavailable, match=r"reading broker setting node\.id.*Run again"):
        cluster.broker_config("node.id", "")


class WithoutTheRight(Cluster):
    """A user who may not create topics, on a cluster that has some."""

    def __init__(self, *there: str) -> None:
        super().__init__(HERE)
        self.there = there
        self.asked = 0

    def _ask(self, doing: str, future: Any, *needs: RequiredRight) -> Any:
        raise translate(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), doing, self.settings, None, needs)

    def _describe(self, topic: str) -> Topic:
        self.asked += 1
        if topic in self.there:
            return Topic(topic, "id", 1)
        raise TopicMissing(f"topic {topic} is missing")


def test_who_may_not_create_a_topic_that_is_missing_is_refused_at_once() -> None:
    cluster = WithoutTheRight("made")
    with pytest.raises(
        AccessDenied,
        match=r"creating topic missing, which is missing: .*refused access.*lacks Create on topic missing\. ",
    ):
        cluster.ensure_topic("missing", 1)
    assert cluster.asked == 1, "nobody is about to create it"
    assert cluster.ensure_topic("made", 1).name == "made"


class Learning(Cluster):
    """A broker that learns of a topic when it has been asked some times."""

    def __init__(self, times: int) -> None:
        super().__init__(HERE)
        self.left = times

    def _describe(self, topic: str) -> Topic:
        self.left -= 1
        if self.left >= 0:
            raise TopicMissing(f"topic {topic} is missing")
        return Topic(topic, "id", 1)


def test_a_topic_made_a_moment_ago_is_there_for_those_who_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker made it, perhaps for another process: to be called missing it has to stay so."""
    assert Learning(3).describe("new").name == "new"
    assert Learning(1).find("new") is None, "who only looks is answered at once"
    monkeypatch.setattr("fencepost.kafka.cluster.LEARNT", 0.1)
    with pytest.raises(TopicMissing):
        Learning(100).describe("new")


def test_a_full_queue_is_no_shortage_of_the_machines() -> None:
    said = translate(KafkaError(KafkaError._QUEUE_FULL), "writing", HERE)
    assert type(said) is KafkaUnavailable
    assert "queue.buffering.max.messages" in str(said)
    assert "memory" not in str(said)


@pytest.mark.parametrize("code", NOT_AUTHORIZED)
def test_a_denial_names_the_operation_and_the_resource_that_it_is_about(code: int) -> None:
    """Of the rights that a request takes, those on the kind of resource that Kafka's code names."""
    needs = [RequiredRight("Read", kind, f"a-{kind}") for kind in NOT_AUTHORIZED.values()]
    said = str(translate(KafkaError(code), "asking", HERE, Complaints(*needs[:2]), needs[2:]))
    kind = NOT_AUTHORIZED[code]
    assert f"the user lacks Read on {kind} a-{kind}. `fencepost acls " in said


def test_a_refused_certificate_is_no_broken_connection() -> None:
    """librdkafka reports it as one *(measured)*; the broker speaks behind the handshake."""
    complaints = Complaints()
    alert = "Receive failed: error:0A000416:SSL routines::ssl/tls alert certificate unknown: SSL alert number 46"
    complaints(KafkaError(KafkaError._TRANSPORT, alert))
    found = translate(TIMED_OUT, "asking", HERE, complaints)
    assert type(found) is LoginRefused
    assert "ssl.ca.location" in str(found)
    assert "fencepost doctor" in str(found)
