"""The oracle of several topics itself: which interval takes a record, and which records make a pair."""

from __future__ import annotations

from oracle.several_truth import Topics, Written, malformed, pairs, readable


def record(n: int | str, time: int, partition: int = 0) -> Written:
    text = f'"{n}"' if isinstance(n, str) else n
    return Written(b"k%d" % time, f'{{"n": {text}}}'.encode(), partition, time)


def times(topics: Topics, number: int, topic: str) -> list[int]:
    return [one.time for one in topics.taken[number][topic]]


def test_an_interval_ends_before_the_first_record_of_its_end_and_the_next_one_goes_on_there() -> None:
    topics = Topics()
    topics.widen("a", 1)
    topics.write(
        "a", [record(n, n) for n in (5, 12, 25, 13)]
    )  # one too old, and one behind a record of the next interval
    topics.plan(1, ["a"], 10, 20)
    topics.write("a", [record(14, 14), record(26, 26)])  # late
    topics.plan(2, ["a"], 20, 30)
    assert times(topics, 1, "a") == [12]
    assert times(topics, 2, "a") == [25, 13, 14, 26]
    assert topics.ends == {"a": {0: 6}}


def test_a_new_topic_begins_behind_the_interval_before_and_a_new_partition_at_its_beginning() -> None:
    topics = Topics()
    for topic in ("a", "b"):
        topics.widen(topic, 1)
        topics.write(topic, [record(n, n) for n in (11, 21, 31)])
    topics.plan(1, ["a"], 10, 20)
    topics.plan(2, ["a", "b"], 20, 30)
    topics.widen("b", 2)
    topics.write("b", [record(1, 1, partition=1)])
    topics.plan(3, ["a"], 30, 40)
    topics.plan(4, ["a", "b"], 40, 50)
    assert times(topics, 2, "b") == [21]
    assert times(topics, 4, "b") == [31, 1], "a topic that returns goes on where it left"
    assert "b" not in topics.taken[3]


def test_each_readable_record_pairs_with_each_of_its_number() -> None:
    left, right = [record(1, 1), record("1", 2), record(3, 3)], [record(1, 4), record(1, 5), record(2, 6)]
    assert [(one.time, other.time) for one, other in pairs(left, right)] == [(1, 4), (1, 5)]
    assert [one.time for one in readable(left)] == [1, 3]
    assert [one.time for one in malformed([*left, Written(b"", b"{", 0, 7)])] == [2, 7]
