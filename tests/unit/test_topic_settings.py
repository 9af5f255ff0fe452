"""Which settings of an output topic lose or refuse an interval's records before they are judged; and whose ends are validated."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import DAY, day
from fencepost.outputs.topic.output import KafkaTopicOutput
from fencepost.outputs.topic_settings import (
    KEPT_FOR,
    loss_reason,
    what_is_too_large,
    what_needs_keys,
    what_staging_needs,
)
from fencepost.protocol.view import View
from unit.pages.ledgers import batch

HOUR = 3_600_000
WEEK = {"cleanup.policy": "delete", "retention.ms": str(168 * HOUR)}
COMPACT = {"cleanup.policy": "compact", "min.compaction.lag.ms": "0", "retention.ms": "-1"}
NOW = DAY + timedelta(days=7)  # a week after the start of day 1
LOG_TIME = {"message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize(
    ("settings", "stamped", "names"),
    [
        (WEEK, False, None),
        (WEEK, True, "retention.ms=604800000 by their timestamps, and output.timestamp dates them from 2026-01-01 00:00"),
        ({**WEEK, **LOG_TIME}, True, None),
        ({**WEEK, "retention.ms": "-1"}, True, None),
        ({**WEEK, "retention.ms": str(174 * HOUR)}, True, None),
        ({**WEEK, "retention.ms": str(174 * HOUR - 1)}, True, "retention.ms"),
        ({**WEEK, "retention.ms": str(6 * HOUR)}, False, None),
        ({**WEEK, "retention.ms": str(6 * HOUR - 1)}, False, "Raise retention.ms with kafka-configs.sh (-1: no limit)."),
        ({**WEEK, "retention.ms": "0"}, False, "retention.ms=0"),
        (COMPACT, False, "is compacted (cleanup.policy=compact) after min.compaction.lag.ms=0"),
        ({**COMPACT, "min.compaction.lag.ms": str(6 * HOUR)}, False, None),
        ({**COMPACT, "min.compaction.lag.ms": str(6 * HOUR)}, True, "set message.timestamp.type=LogAppendTime"),
        ({**COMPACT, "min.compaction.lag.ms": str(6 * HOUR), **LOG_TIME}, True, None),
        ({**COMPACT, "min.compaction.lag.ms": str(2**63 - 1)}, True, None),
        ({**COMPACT, "retention.ms": "1"}, False, "is compacted"),
        ({**WEEK, "cleanup.policy": "compact,delete"}, False, "is compacted"),
        ({**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": "1"}, False, "deletes records after retention.ms=1"),
        ({"message.timestamp.before.max.ms": str(2**63 - 1)}, True, None),
        ({"message.timestamp.before.max.ms": str(167 * HOUR)}, True, "refuses records older than message.timestamp.before"),
        ({"message.timestamp.before.max.ms": str(168 * HOUR)}, True, None),
        ({"message.timestamp.before.max.ms": "1"}, False, None),
        ({"cleanup.policy": "", "retention.ms": "1"}, False, None),
        ({}, True, None),
    ],
)  # fmt: skip
def test_what_would_not_be_there_to_be_judged_is_named_with_the_way_out(
    settings: dict[str, str], stamped: bool, names: str | None
) -> None:
    found = loss_reason(settings, day(1), NOW, stamped=stamped)
    if names is None:
        assert found is None
    else:
        assert names in str(found)


@pytest.mark.parametrize(
    ("settings", "stamped", "names"),
    [
        (
            WEEK,
            True,
            "deletes records after retention.ms=604800000 by their timestamps, and output.timestamp dates them from",
        ),
        ({**WEEK, "retention.ms": "1"}, False, None),
        ({**WEEK, **LOG_TIME}, True, None),
        (COMPACT, False, None),
        (COMPACT, True, None),
        (
            {"message.timestamp.before.max.ms": str(167 * HOUR)},
            True,
            "refuses records older than message.timestamp.before",
        ),
    ],
)
def test_a_staged_batch_is_published_where_it_is_not_deleted_at_once(
    settings: dict[str, str], stamped: bool, names: str | None
) -> None:
    found = loss_reason(settings, day(1), NOW, stamped=stamped, judged=False)
    assert found is None if names is None else names in str(found)


@pytest.mark.parametrize(("ahead", "refused"), [(0, False), (1, False), (2, True)])
def test_an_interval_ahead_of_the_clock_is_not_dated_too_far_ahead_for_the_topic(ahead: int, refused: bool) -> None:
    settings = {**WEEK, "retention.ms": "-1", "message.timestamp.after.max.ms": str(24 * HOUR)}
    found = loss_reason(settings, day(8 + ahead), NOW, stamped=True)
    assert ("refuses records further ahead than message.timestamp.after.max.ms" in str(found)) == refused
    assert loss_reason({**settings, **LOG_TIME}, day(8 + ahead), NOW, stamped=True) is None


@pytest.mark.parametrize(("policy", "refused"), [("delete", False), ("compact", True), ("compact,delete", True)])
def test_a_compacted_topic_takes_no_records_without_keys(policy: str, refused: bool) -> None:
    assert ("output.key" in str(what_needs_keys({"cleanup.policy": policy}))) == refused


@pytest.mark.parametrize(
    ("output", "staging", "refused"), [("1000", "1001", True), ("1000", "1000", False), ("9", "8", False)]
)
def test_the_output_takes_what_is_staged(output: str, staging: str, refused: bool) -> None:
    found = what_is_too_large({"max.message.bytes": output}, {"max.message.bytes": staging})
    assert ("accepts record batches of up to 1,000 bytes" in str(found)) == refused


@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({}, None),
        ({"message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": str(6 * HOUR)}, None),
        (LOG_TIME, "Set message.timestamp.type=CreateTime"),
        ({"message.timestamp.before.max.ms": str(6 * HOUR - 1)}, "written up to 6 hours later. Raise this setting"),
    ],
)
def test_a_staging_topic_keeps_the_timestamps_that_tell_batches_apart(
    settings: dict[str, str], cure: str | None
) -> None:
    found = what_staging_needs(settings)
    assert found is None if cure is None else cure in str(found)


def test_an_interval_of_now_needs_the_time_to_judge_alone() -> None:
    settings = {**WEEK, "retention.ms": str(round(KEPT_FOR / timedelta(milliseconds=1)))}
    assert loss_reason(settings, day(8), NOW, stamped=True) is None
    assert loss_reason(settings, day(9), NOW, stamped=True) is None, "an interval that is still to come"
    assert loss_reason(settings, day(7), NOW, stamped=True) is not None


def test_offsets_of_a_topic_that_the_pipeline_has_left_are_not_given_to_its_new_one() -> None:
    """Its settings name another topic from now on, and nothing was planned on that yet."""
    deployment: Any = SimpleNamespace(pipeline=None, cluster=None)
    view = View.of([batch(0)])
    ends = {("orders-out", p): 100 for p in range(4)}
    assert KafkaTopicOutput(deployment, "orders-out").validated(view) == ends
    assert KafkaTopicOutput(deployment, "orders-new").validated(view) == {}
