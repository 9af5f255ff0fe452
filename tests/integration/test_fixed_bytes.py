"""What a small source becomes, byte by byte: the records of the output and of quarantine, and the marks of their writers.

The expected values were written down once. A change of one of them changes what readers get, or what a retry finds of an earlier
attempt.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost_stack.broker import Broker
from kafka_tools import committed_by, create_topic, produce, read_all
from steps import run

BY_PLACE = 'def transform(frame):\n    return frame.select("_key", "_partition", "_offset", "_record", "n", "name")\n'
RULES = """
expectations:
  - type: expect_column_values_to_be_between
    severity: quarantine
    kwargs: {column: n, min_value: 0}
"""
RECORDS = [
    (b"a", b'{"n": 1, "name": "\xc3\xbc"}', 0, at(1)),
    (b"b", b'{"n": -2, "name": "x"}', 0, at(1)),
    (b"a", b'{"n": 3}', 0, at(1)),
    (b"c", b"{broken", 1, at(1)),
    (b"e", b'{"name": "y", "n": 5}', 1, at(1)),
    (b"d", b'{"n": 6, "name": null}', 1, at(1)),
]
OUTPUT = [
    (0, b"a", b'{"n":1,"name":"\xc3\xbc"}'),
    (0, b"a", b'{"n":3,"name":null}'),
    (0, b"e", b'{"n":5,"name":"y"}'),
    (1, b"d", b'{"n":6,"name":null}'),
]
RULE = b"expect_column_values_to_be_between(n)"
QUARANTINE = [
    (b"b", b'{"n": -2, "name": "x"}', RULE, RULE, b"0:1"),
    (b"c", b"{broken", b"not JSON: key must be a string at line 1 column 2", b"malformed", b"1:0"),
]
# By the use of the topic, and partition: offset, task-partition, and rows and fingerprint by topic.
MARKS = {
    "source": {
        ("in", 0): (3, 0, {"staged": (2, 17346893600511862964), "bad": (1, 3140105735946185573)}),
        ("in", 1): (3, 1, {"staged": (2, 18392853661013093041)}),
    },
    "output": {
        ("staged", 0): (0, 0, {"staged": (3, 13290064953962619825), "bad": (1, 3140105735946185573)}),
        ("staged", 1): (0, 1, {"staged": (1, 4002938233852784564)}),
    },
}
MALFORMED = {("in", 0): (3, 2, {"bad": (0, 0)}), ("in", 1): (3, 3, {"bad": (1, 12609331935223545039)})}


def marks(broker: Broker, group: str, use: dict[str, str]) -> dict[tuple[str, int], tuple[Any, ...]]:
    """The marks of a group, in the form of `MARKS`."""
    found = {}
    for one in committed_by(broker.bootstrap, ConsumerGroupTopicPartitions(group)):
        receipt = json.loads(one.metadata)
        counts = {use[topic]: (count["rows"], count["fingerprint"]) for topic, count in receipt["topics"].items()}
        found[use[one.topic], one.partition] = one.offset, receipt["task"], counts
    return found


@pytest.mark.parametrize("layout", ["source", "output"])
def test_records_quarantine_and_marks_of_a_batch_are_these_bytes(
    layout: str, spark: Any, broker: Broker, make_pipeline: Callable[..., Pipeline]
) -> None:
    pipeline = make_pipeline(
        BY_PLACE,
        RULES,
        name := f"fixed_{layout}",
        source={"on_malformed": "quarantine"},
        output={"layout": layout, "partitions": 2},
        quality={"quarantine_limit": "none", "quarantine_topic": f"{name}-bad"},
    )
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    produce(broker.bootstrap, pipeline.source.topic, RECORDS)

    run(spark, pipeline, day(1))

    batch = f"{name}/20260101T000000Z-20260102T000000Z/1".encode()
    output = read_all(broker.bootstrap, f"{name}-out")
    assert sorted((r.partition, r.key, r.value) for r in output) == OUTPUT
    assert [r.headers for r in output] == [(("fencepost-batch", batch),)] * 4

    source = f"{name}-in:".encode()
    names = ("fencepost-reason", "fencepost-rule", "fencepost-source", "fencepost-attempt", "fencepost-batch")
    assert [(r.key, r.value, r.headers) for r in read_all(broker.bootstrap, f"{name}-bad")] == [
        (key, value, tuple(zip(names, (reason, rule, source + offset, b"1", batch), strict=True)))
        for key, value, reason, rule, offset in QUARANTINE
    ]

    use = {f"{name}-in": "in", f"fencepost.{name}.staging": "staged", f"{name}-bad": "bad"}
    assert marks(broker, f"{name}.lane-0", use) == MARKS[layout]
    assert marks(broker, f"{name}.malformed-0", use) == MALFORMED
