"""What Fencepost's protocol rests on, one mechanism a test, on a real broker. Read them in order to learn the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError, WriterFenced
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.offsets import committed_offsets
from fencepost.kafka.transaction import Transaction
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from kafka_tools import QUIET_LOG, create_topic, end_offset, read_all
from rigs.kafka_cluster import coordinator_partition, kafka_cluster
from rigs.tcp_proxy import Proxy
from waiting import await_true

numbers = count(1)


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"mechanism-{next(numbers)}"
    create_topic(broker.bootstrap, name, 1)
    return name


@pytest.fixture
def settings(broker: Broker) -> ClientSettings:
    return ClientSettings({"bootstrap.servers": broker.bootstrap})


def values(broker: Broker, topic: str, *, committed: bool = True) -> list[bytes | None]:
    return [record.value for record in read_all(broker.bootstrap, topic, committed=committed)]


def transactional(bootstrap: str, transactional_id: str, **config: Any) -> Producer:
    """A plain confluent-kafka producer, initialised."""
    asked = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **config}
    producer = Producer(asked, logger=QUIET_LOG)
    producer.init_transactions(30)
    return producer


# 1. A record whose answer was lost is sent again under the same sequence number.


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Proxy, str]]:
    """A broker, a proxy in front of it, and the address that leads clients through the proxy and nowhere else."""
    direct, proxied = any_free_port(), any_free_port()
    broker = Broker(tmp_path_factory.mktemp("proxied"), extra_listener=("PROXIED", direct, proxied))
    with Proxy(proxied, direct) as proxy, broker:
        yield broker, proxy, f"127.0.0.1:{proxied}"


@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
def test_a_record_sent_twice_is_kept_once_because_of_its_sequence_number(
    behind_proxy: tuple[Broker, Proxy, str], *, idempotent: bool, copies: int
) -> None:
    """The broker appends the record, its answer is lost, the client sends it again. Without sequence numbers that doubles
    it, which shows that the first copy truly arrived."""
    broker, proxy, bootstrap = behind_proxy
    topic = f"duplicates-{idempotent}"
    create_topic(broker.bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": idempotent}, logger=QUIET_LOG)
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(30) == 0
    proxy.swallowing = True
    producer.produce(topic, b"second", partition=0)
    producer.poll(0)
    await_true(lambda: end_offset(broker.bootstrap, topic, 0) == 2, "the broker to append the record")
    proxy.swallowing = False
    proxy.cut()
    assert producer.flush(30) == 0
    assert values(broker, topic) == [b"first", *[b"second"] * copies]


# 2. The transactional id is the fence.


def test_a_second_producer_with_the_same_transactional_id_fences_the_first(broker: Broker, topic: str) -> None:
    first = transactional(broker.bootstrap, f"id-{topic}")
    first.begin_transaction()
    first.produce(topic, b"of the first")
    assert first.flush(30) == 0
    second = transactional(broker.bootstrap, f"id-{topic}")
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(30)
    assert raised.value.args[0].code() == KafkaError._FENCED
    second.begin_transaction()
    second.produce(topic, b"of the second")
    second.commit_transaction(30)
    assert values(broker, topic) == [b"of the second"]


@pytest.mark.parametrize("delivered", [False, True], ids=["while it delivers", "at its commit"])
def test_fenceposts_transaction_says_that_it_was_fenced(
    broker: Broker, settings: ClientSettings, topic: str, *, delivered: bool
) -> None:
    """Wherever librdkafka notices: confluent-kafka hides it in a SystemError when it happens while callbacks are served."""
    first = Transaction(settings, f"id-{topic}", "write", 0)
    first.init()

    def write() -> None:
        with first:
            if delivered:
                first.produce(topic, b"of the first")
                first._deliver()
            Transaction(settings, f"id-{topic}", "write", 0).init()
            first.produce(topic, b"late")

    with pytest.raises(WriterFenced, match=f"id-{topic}.*a newer producer"):
        write()
    assert values(broker, topic) == []


def test_a_commit_that_was_taken_can_be_answered_with_fenced(behind_proxy: tuple[Broker, Proxy, str]) -> None:
    """Its answer is lost, a newer producer's init settles it, and asked again the broker knows the newer epoch alone."""
    broker, proxy, bootstrap = behind_proxy
    create_topic(broker.bootstrap, "taken", 1)
    first = Transaction(ClientSettings({"bootstrap.servers": bootstrap}), "id-taken", "write", 0)
    first.init()

    def commit() -> None:
        with first:
            first.produce("taken", b"committed", partition=0)
            first._deliver()
            proxy.swallowing = True

    with ThreadPoolExecutor(1) as aside:
        committing = aside.submit(commit)
        await_true(lambda: values(broker, "taken") == [b"committed"], "the broker to commit")
        Transaction(ClientSettings({"bootstrap.servers": broker.bootstrap}), "id-taken", "write", 0).init()
        proxy.swallowing = False
        proxy.cut()
        with pytest.raises(WriterFenced):
            committing.result(60)
    assert values(broker, "taken") == [b"committed"]


def test_producers_that_fence_each_other_end_with_errors_of_ours_alone(
    broker: Broker, settings: ClientSettings, topic: str
) -> None:
    """Three threads take one transactional id from each other, whatever they are doing at the moment."""

    def take_turns() -> list[str]:
        ended = []
        for _ in range(12):
            transaction = Transaction(settings, f"id-{topic}", "write", 0)
            try:
                transaction.init()
                with transaction:
                    transaction.produce(topic, b"one")
                    transaction.produce(topic, b"two")
            except Exception as error:
                ended.append(type(error).__name__)
            else:
                ended.append("committed")
        return ended

    with ThreadPoolExecutor(3) as pool:
        ends = Counter(end for turns in [pool.submit(take_turns) for _ in range(3)] for end in turns.result())
    assert set(ends) <= {"committed", "WriterFenced", "WriteFailed"}
    assert len(values(broker, topic)) == 2 * ends["committed"]


def test_init_transactions_settles_what_a_dead_producer_left_open(
    broker: Broker, settings: ClientSettings, topic: str
) -> None:
    """Why a writer reads its mark after init and not before: now nothing of an earlier attempt can still commit."""
    dead = transactional(broker.bootstrap, f"id-{topic}")
    dead.begin_transaction()
    dead.produce(topic, b"of the dead")
    assert dead.flush(30) == 0
    assert end_offset(broker.bootstrap, topic, 0, committed=True) == 0, "its open transaction holds readers back"
    Transaction(settings, f"id-{topic}", "write", 0).init()
    stable = end_offset(broker.bootstrap, topic, 0, committed=True)
    assert stable == end_offset(broker.bootstrap, topic, 0) > 0
    assert values(broker, topic) == []


# 3. What readers see.


def test_an_aborted_transaction_is_invisible_to_read_committed_alone(broker: Broker, topic: str) -> None:
    producer = transactional(broker.bootstrap, f"id-{topic}")
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(30)
    assert values(broker, topic) == [b"committed"]
    assert values(broker, topic, committed=False) == [b"aborted", b"committed"]


def test_an_open_transaction_hides_committed_records_behind_it(broker: Broker, topic: str) -> None:
    """Why validate waits for the last stable offset and never takes what it could read for the end."""
    foreign = transactional(broker.bootstrap, f"foreign-{topic}")
    foreign.begin_transaction()
    foreign.produce(topic, b"open")
    assert foreign.flush(30) == 0
    ours = transactional(broker.bootstrap, f"ours-{topic}")
    ours.begin_transaction()
    ours.produce(topic, b"committed")
    ours.commit_transaction(30)
    assert values(broker, topic) == []
    foreign.abort_transaction(30)
    await_true(lambda: values(broker, topic) == [b"committed"], "the record behind the transaction")


def test_a_pending_transaction_times_out_and_is_aborted(broker: Broker, topic: str) -> None:
    """A writer that died and never comes back holds readers back for its transaction.timeout.ms, and no longer."""
    gone = transactional(broker.bootstrap, f"id-{topic}", **{"transaction.timeout.ms": 1000})
    gone.begin_transaction()
    gone.produce(topic, b"pending")
    assert gone.flush(30) == 0
    end = end_offset(broker.bootstrap, topic, 0)
    # The coordinator looks for transactions that ran out of time every ten seconds.
    await_true(lambda: end_offset(broker.bootstrap, topic, 0, committed=True) > end, "the broker to abort it", 60)
    with pytest.raises(KafkaException):
        gone.commit_transaction(30)
    assert values(broker, topic) == []


# 4. Records and offsets are one.


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_and_output_commit_or_vanish_together(
    broker: Broker, settings: ClientSettings, topic: str, *, commits: bool
) -> None:
    """Two groups' offsets and a record, in one transaction of one producer: what advance and every writer rely on."""
    groups = [f"one-{topic}", f"two-{topic}"]
    transaction = Transaction(settings, f"id-{topic}", "write", 0)
    transaction.init()

    def write() -> None:
        with transaction:
            transaction.produce(topic, b"record")
            for group in groups:
                transaction.add_offsets([TopicPartition(topic, 0, 7, metadata="a mark")], group)
            transaction._deliver()
            for offsets, named in transaction._offsets:
                transaction._send_offsets(offsets, named)
            if not commits:
                raise ZeroDivisionError("the writer fails with everything sent")

    if commits:
        write()
    else:
        with pytest.raises(ZeroDivisionError):
            write()
    seen = [committed_offsets(settings, g, [TopicPartition(topic, 0)], "asking") for g in groups]
    assert [{k: (tp.offset, tp.metadata) for k, tp in found.items()} for found in seen] == (
        [{(topic, 0): (7, "a mark")}] * 2 if commits else [{}, {}]
    )
    assert values(broker, topic) == ([b"record"] if commits else [])


# 5. A commit that was prepared survives its coordinator.


@pytest.mark.deep
def test_a_coordinator_failover_keeps_a_prepared_commit(tmp_path: Path) -> None:
    """A commit is answered once it is prepared; the markers that end it in the topics come later, here from another
    coordinator. Node 3, which alone has the output, hears nothing from the network until the first coordinator is dead."""
    with kafka_cluster(tmp_path) as cluster:
        output = cluster.nodes[3]
        create_topic(cluster.bootstrap, "prepared", 1, replicas=[[3]])
        transactional(cluster.bootstrap, "first")  # makes __transaction_state
        coordinated_by_2 = next(p for p in range(3) if cluster.leader("__transaction_state", p) == 2)
        name = next(f"id-{n}" for n in count() if coordinator_partition(f"id-{n}", 3) == coordinated_by_2)
        producer = transactional(cluster.bootstrap, name)
        producer.begin_transaction()
        for value in (b"a", b"b"):
            producer.produce("prepared", value)
        assert producer.flush(30) == 0
        output.proxy.refusing = True
        output.proxy.cut()
        producer.commit_transaction(60)
        cluster.nodes[2].kill()
        await_true(lambda: cluster.leader("__transaction_state", coordinated_by_2) != 2, "another coordinator")
        assert read_all(output.bootstrap, "prepared") == [], "prepared, and not yet to be seen"
        output.proxy.refusing = False
        await_true(lambda: len(read_all(output.bootstrap, "prepared")) == 2, "the prepared commit", 60)


# 6. What would switch the guarantee off is refused.


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("acks", 1),
        ("acks", 0),
        ("request.required.acks", 1),
        ("enable.idempotence", False),
        ("max.in.flight.requests.per.connection", 6),
        ("max.in.flight", 6),
        ("transactional.id", "mine"),
        ("isolation.level", "read_uncommitted"),
        ("enable.auto.commit", True),
    ],
)
def test_a_setting_that_contradicts_the_protocol_is_refused_with_the_reason(
    broker: Broker, make_pipeline: Callable[..., Pipeline], setting: str, value: object
) -> None:
    with pytest.raises(SettingsError, match=rf"pipeline\.yaml.*{setting}.*: \w+ "):
        make_pipeline(kafka={"bootstrap.servers": broker.bootstrap, setting: value})
