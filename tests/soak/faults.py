"""What can go wrong while a batch is run, one context manager a fault: enter breaks something, exit fixes it.

Each takes the scene and a seeded random generator, and says in `scene.told` what it did, so that a failure reads as a story.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from threading import Event, Thread

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from fencepost_stack.standalone_spark import WORKERS
from kafka_tools import QUIET_LOG
from waiting import await_true

from .scene import FOREIGN, Scene

Fault = Callable[[Scene, random.Random], AbstractContextManager[None]]

WORKER_PLACES = "init initialised mark-read begun rows offsets-sent committing committed receipt".split()


@contextmanager
def meanwhile(work: Callable[[Event], None]) -> Iterator[None]:
    """Runs `work` beside the block; the event tells it that the block is over, so that it fixes what it broke."""
    over = Event()
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work(over)
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=guarded, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(120)
        assert not thread.is_alive()
    assert not errors, errors


@contextmanager
def worker_is_struck(scene: Scene, chance: random.Random) -> Iterator[None]:
    """A Python worker dies, fails, or stands still for a while and then goes on."""
    action = chance.choice(["kill", "kill", "raise", "stop"])
    copies = scene.staged and chance.random() < 0.4  # on Spark; a copy in one transaction has no worker to strike
    failpoint = f"{'publish' if copies else 'write'}.{chance.choice(WORKER_PLACES)}#{chance.randrange(2)}={action}"
    pause = chance.uniform(0.5, 12)
    scene.tell(failpoint)

    def resume(over: Event) -> None:
        file = scene.strikes / failpoint
        while not over.is_set() and not (file.exists() and file.read_text()):
            time.sleep(0.05)
        if file.exists() and file.read_text():
            over.wait(pause)
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGCONT)

    with scene.armed(failpoint), ExitStack() as stack:
        if action == "stop":
            stack.enter_context(meanwhile(resume))
        yield


@contextmanager
def node_is_killed(scene: Scene, chance: random.Random) -> Iterator[None]:
    """A broker dies by SIGKILL, with whatever it leads and coordinates, and comes back."""
    number, wait, down = chance.choice([2, 3]), chance.uniform(0, 6), chance.uniform(0, 4)
    scene.tell(f"node {number} killed after {wait:.1f} s for {down:.1f} s")

    def strike(over: Event) -> None:
        over.wait(wait)
        with scene.killing:
            scene.cluster.nodes[number].kill()
            over.wait(down)
            scene.cluster.nodes[number].start()

    with meanwhile(strike):
        yield


@contextmanager
def replicas_are_lost(scene: Scene, chance: random.Random) -> Iterator[None]:
    """Two of three brokers die: min.insync.replicas is lost, and regained."""
    wait, down = chance.uniform(0, 4), chance.uniform(0, 4)
    scene.tell(f"nodes 2 and 3 killed after {wait:.1f} s for {down:.1f} s")

    def strike(over: Event) -> None:
        over.wait(wait)
        with scene.killing:
            for number in (2, 3):
                scene.cluster.nodes[number].kill()
            over.wait(down)
            for number in (2, 3):
                scene.cluster.nodes[number].launch()
            for number in (2, 3):
                scene.cluster.nodes[number].await_ready()

    with meanwhile(strike):
        yield


@contextmanager
def network_is_cut(scene: Scene, chance: random.Random) -> Iterator[None]:
    """One broker cannot be reached for a while, by clients or by other brokers."""
    number, wait, down = chance.randint(1, 3), chance.uniform(0, 5), chance.uniform(0.5, 5)
    scene.tell(f"node {number} cut off after {wait:.1f} s for {down:.1f} s")
    proxy = scene.cluster.nodes[number].proxy

    def strike(over: Event) -> None:
        over.wait(wait)
        proxy.refusing = True
        proxy.cut()
        over.wait(down)
        proxy.refusing = False

    with meanwhile(strike):
        yield


@contextmanager
def connections_are_half_open(scene: Scene, chance: random.Random) -> Iterator[None]:
    """What a broker answers is lost for a while, and then its connections break."""
    number, wait, down = chance.randint(1, 3), chance.uniform(0, 5), chance.uniform(0.5, 3)
    scene.tell(f"node {number} half open after {wait:.1f} s for {down:.1f} s")
    proxy = scene.cluster.nodes[number].proxy

    def strike(over: Event) -> None:
        over.wait(wait)
        proxy.swallowing = True
        over.wait(down)
        proxy.swallowing = False
        proxy.cut()

    with meanwhile(strike):
        yield


@contextmanager
def network_is_slow(scene: Scene, chance: random.Random) -> Iterator[None]:
    """Every packet from and to one broker takes its time."""
    number, delay = chance.randint(1, 3), chance.uniform(0.02, 0.2)
    scene.tell(f"node {number} delayed by {delay * 1000:.0f} ms")
    scene.cluster.nodes[number].proxy.delay = delay
    try:
        yield
    finally:
        scene.cluster.nodes[number].proxy.delay = 0.0


@contextmanager
def foreign_transaction_is_open(scene: Scene, chance: random.Random) -> Iterator[None]:
    """Somebody else writes into the output topic, or the staging topic, in a transaction that stays open for a while."""
    topic = chance.choice([scene.pipeline.output.topic, scene.pipeline.staging_topic])
    if topic not in _admin(scene).list_topics(timeout=20).topics:  # the first plan makes the staging topic
        topic = scene.pipeline.output.topic
    hold, commits = chance.uniform(1, 10), chance.random() < 0.5
    scene.tell(f"a foreign transaction on {topic}, {'committed' if commits else 'aborted'} after {hold:.1f} s")
    producer = Producer(
        {"bootstrap.servers": scene.cluster.direct, "transactional.id": f"foreign-{chance.random()}"}, logger=QUIET_LOG
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, FOREIGN, FOREIGN)
    producer.flush(30)

    def end(over: Event) -> None:
        over.wait(hold)
        if commits:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)

    with meanwhile(end):
        yield


def _admin(scene: Scene) -> AdminClient:
    return AdminClient({"bootstrap.servers": scene.cluster.nodes[1].bootstrap}, logger=QUIET_LOG)


@contextmanager
def output_gains_a_partition(scene: Scene, chance: random.Random) -> Iterator[None]:
    """The output's partition count is raised before a batch."""
    scene.output_partitions.append(scene.output_partitions[-1] + 1)
    scene.tell(f"output raised to {scene.output_partitions[-1]} partitions")
    admin = _admin(scene)
    admin.create_partitions([NewPartitions(scene.pipeline.output.topic, scene.output_partitions[-1])])[
        scene.pipeline.output.topic
    ].result(60)
    yield


@contextmanager
def source_gains_a_partition(scene: Scene, chance: random.Random) -> Iterator[None]:
    """The source's partition count is raised, and used by the records that come next."""
    scene.source_partitions += 1
    scene.tell(f"source raised to {scene.source_partitions} partitions")
    admin = _admin(scene)
    topic = scene.pipeline.source.topic
    admin.create_partitions([NewPartitions(topic, scene.source_partitions)])[topic].result(60)
    await_true(
        lambda: len(admin.list_topics(topic, timeout=20).topics[topic].partitions) == scene.source_partitions,
        "the new partition",
    )
    yield


@contextmanager
def group_offsets_are_gone(scene: Scene, chance: random.Random) -> Iterator[None]:
    """Offsets of both groups are gone, as when they expire; the next advance restores them from the ledger."""
    scene.tell("offsets of both groups deleted")
    admin = _admin(scene)
    for group in (scene.pipeline.group, scene.pipeline.validated_group):
        with suppress(Exception):  # not there yet
            admin.delete_consumer_groups([group])[group].result(30)
    yield


@contextmanager
def marks_are_gone(scene: Scene, chance: random.Random) -> Iterator[None]:
    """The marks of earlier batches are gone: nobody may need them."""
    scene.tell("marks deleted")
    pipeline, admin = scene.pipeline, _admin(scene)
    for group in (pipeline.lane_group("0"), pipeline.malformed_group("0"), pipeline.publisher_group(0)):
        with suppress(Exception):  # not there yet
            admin.delete_consumer_groups([group])[group].result(30)
    yield


@contextmanager
def spark_worker_is_killed(scene: Scene, chance: random.Random) -> Iterator[None]:
    """A machine with one of two executors dies, and comes back."""
    worker, wait, down = chance.choice(WORKERS), chance.uniform(0, 6), chance.uniform(0, 4)
    scene.tell(f"Spark's {worker} killed after {wait:.1f} s for {down:.1f} s")
    workers = scene.workers
    assert workers is not None

    def strike(over: Event) -> None:
        over.wait(wait)
        workers.kill(worker)
        over.wait(down)
        workers.start(worker)

    with meanwhile(strike):
        yield


FAULTS: tuple[Fault, ...] = (
    worker_is_struck,
    worker_is_struck,
    worker_is_struck,
    node_is_killed,
    node_is_killed,
    replicas_are_lost,
    network_is_cut,
    connections_are_half_open,
    network_is_slow,
    foreign_transaction_is_open,
    output_gains_a_partition,
    source_gains_a_partition,
    group_offsets_are_gone,
    marks_are_gone,
)
ON_A_CLUSTER: tuple[Fault, ...] = (*FAULTS, spark_worker_is_killed, spark_worker_is_killed)
