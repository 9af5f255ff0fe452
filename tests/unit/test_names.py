"""The names of topics, groups and transactional ids: what fences whom, and which mark is whose."""

from __future__ import annotations

from itertools import chain

from fencepost.config.names import Names

LANES = [*map(str, range(12)), *(f"replay-{n}" for n in range(12))]
TASKS = range(12)
TOPICS = ("orders", "orders.0", "orders.1.2", "lane-0", "0")


def named(name: str) -> Names:
    made = Names()
    made.name = name
    return made


def ids_of(names: Names) -> list[str]:
    """Every transactional id."""
    writers = (names.writer_id(lane, topic, p) for lane in LANES for topic in TOPICS for p in TASKS)
    publishers = (names.publisher_id(lane, task) for lane in range(12) for task in TASKS)
    return [names.coordinator_id, *writers, *publishers]


def groups_of(names: Names) -> list[str]:
    """Every consumer group."""
    of_lanes = ((names.lane_group(lane), names.malformed_group(lane)) for lane in LANES)
    return [names.group, names.validated_group, *chain(*of_lanes), *map(names.publisher_group, range(12))]


def topics_of(names: Names) -> list[str]:
    """Every topic that the pipeline has for itself."""
    return [
        names.ledger_topic,
        names.announcements_topic,
        names.default_staging_topic,
        names.default_quarantine_topic,
    ]


def test_these_are_the_names_that_the_documents_promise() -> None:
    """Whoever grants rights or watches lag has them written down; a writer of another version is fenced by them."""
    names = named("orders")
    assert topics_of(names) == [
        "fencepost.orders.ledger",
        "fencepost.orders.published",
        "fencepost.orders.staging",
        "fencepost.orders.quarantine",
    ]
    assert (
        names.coordinator_id,
        names.writer_id("0", "eu.orders", 7),
        names.writer_id("replay-1", "eu.orders", 7),
        names.publisher_id(2, 7),
    ) == (
        "orders.coordinator",
        "orders.0.eu.orders.7",
        "orders.replay-1.eu.orders.7",
        "orders.publish-2.7",
    )
    assert (names.group, names.validated_group, names.lane_group("0"), names.malformed_group("0")) == (
        "orders",
        "orders.validated",
        "orders.lane-0",
        "orders.malformed-0",
    )
    assert names.publisher_group(2) == "orders.publish-2"


def test_no_two_lanes_tasks_or_purposes_share_an_id_or_a_group() -> None:
    for every in (ids_of(named("orders")), groups_of(named("orders"))):
        assert len(set(every)) == len(every)


def test_no_pipeline_has_a_name_of_another_whatever_it_is_called() -> None:
    owners = [named(name) for name in ("orders", "orders_0", "o", "publish", "ledger", "lane", "fencepost")]
    for kind in (ids_of, groups_of, topics_of):
        every = [name for owner in owners for name in kind(owner)]
        assert len(set(every)) == len(every)


def test_one_prefix_covers_all_that_a_pipeline_has_and_nothing_of_another() -> None:
    names, other = named("orders"), named("orders_eu")
    assert all(name.startswith("orders.") for name in [*ids_of(names), *groups_of(names)] if name != "orders")
    assert all(name.startswith(names.topic_prefix) for name in topics_of(names))
    assert not any(name.startswith(names.prefix) for name in [*ids_of(other), *groups_of(other)])
    assert not any(name.startswith(names.topic_prefix) for name in topics_of(other))
