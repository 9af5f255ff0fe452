"""Decides whether a topic's settings let it accept a batch's records and keep them. Pure.

The topic must not refuse a batch's records for their age. The topic must not delete the records before they are judged
either, because validate would not read back what was written. Kafka computes a record's age from its timestamp. With
`output.timestamp` that is the data's own time, so Kafka may delete a batch of old data within minutes. Compaction keeps
only the newest record of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from fencepost.model import Interval

KEPT_FOR = timedelta(hours=6)  # from a record's write (if it is staged, from its plan) to its verdict, with retries
FOREVER = 2**62  # milliseconds; a limit of at least this length never applies


def what_needs_keys(settings: Mapping[str, str]) -> str | None:
    """Returns why the topic refuses records without keys, and what to do. Returns None if it accepts them."""
    policy = settings.get("cleanup.policy", "delete")
    if "compact" not in policy:
        return None
    return (
        f"is compacted (cleanup.policy={policy}), so it refuses records without a key, and the pipeline's records have none. "
        "Name the key's column in output.key in pipeline.yaml, or use another topic."
    )


def what_staging_needs(settings: Mapping[str, str]) -> str | None:
    """Returns why the topic would replace or refuse the timestamps that identify staged batches, and what to do.
    Returns None if it keeps them.
    """
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return (
            "replaces the timestamps of its records (message.timestamp.type=LogAppendTime), which identify their batches. Set "
            "message.timestamp.type=CreateTime with kafka-configs.sh."
        )
    if _too_short(settings, name := "message.timestamp.before.max.ms", KEPT_FOR):
        return (
            f"refuses records older than {name}={settings[name]}. The timestamp of a staged record is the time of its "
            f"plan, and the record may be written up to {_hours(KEPT_FOR)} later. Raise this setting with kafka-configs.sh."
        )
    return None


def what_is_refused(settings: Mapping[str, str], interval: Interval, now: datetime) -> str | None:
    """Returns why the topic would refuse records with timestamps of the interval, and what to do. Returns None if it
    accepts them.

    The records are assumed to be as old as the interval's start.
    """
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return None
    for name, age, than in (
        ("before", now - interval.start, "older"),
        ("after", interval.start - now, "further ahead"),
    ):
        setting = f"message.timestamp.{name}.max.ms"
        if _too_short(settings, setting, age):
            return (
                f"refuses records {than} than {setting}={settings[setting]}{_of_age(interval)}. Raise this setting with "
                f"kafka-configs.sh{WAY_OUT}."
            )
    return None


def loss_reason(
    settings: Mapping[str, str], interval: Interval, now: datetime, *, stamped: bool, judged: bool = True
) -> str | None:
    """Returns why the topic would refuse the interval's records or delete them too early, and what to do. Returns None
    if it keeps them.

    `stamped` says that the records have timestamps of their own. The records are then assumed to be as old as the
    interval's start. `judged` says that the records are read back from the topic to be judged. If they are not, the
    result reports only a topic that would delete them right after publication.
    """
    own_time = stamped and settings.get("message.timestamp.type") != "LogAppendTime"
    age = max(now - interval.start, timedelta(0)) if own_time else timedelta(0)
    policy = settings.get("cleanup.policy", "delete")
    way_out, of_age = (WAY_OUT, _of_age(interval)) if own_time else ("", "")
    if own_time and (refused := what_is_refused(settings, interval, now)):
        return refused
    if not (judged or own_time):
        return None
    before = "the verdict, which may take" if judged else "a reader sees them, in less than"
    if "delete" in policy and _too_short(settings, "retention.ms", age + KEPT_FOR):
        return (
            f"deletes records after retention.ms={settings['retention.ms']}{of_age}: they may be gone before {before} "
            f"{_hours(KEPT_FOR)}. Raise retention.ms with kafka-configs.sh (-1: no limit){way_out}."
        )
    # Unlike in the other settings, -1 or 0 means no lag here.
    if judged and (
        "compact" in policy
        and (
            int(settings.get("min.compaction.lag.ms") or 0) <= 0
            or _too_short(settings, "min.compaction.lag.ms", age + KEPT_FOR)
        )
    ):
        return (
            f"is compacted (cleanup.policy={policy}) after "
            f"min.compaction.lag.ms={settings.get('min.compaction.lag.ms', '0')}{of_age}. The verdict may take "
            f"{_hours(KEPT_FOR)}, and compaction may remove a record before the verdict if its key gets a newer "
            f"record. Raise min.compaction.lag.ms with kafka-configs.sh{way_out}, or use another topic."
        )
    return None


def what_is_too_large(output: Mapping[str, str], staging: Mapping[str, str]) -> str | None:
    """Returns why the output may refuse records that the staging topic accepts, by their size, and what to do. Returns
    None if it accepts all.
    """
    taken, staged = (int(settings.get("max.message.bytes") or 0) for settings in (output, staging))
    if taken >= staged:
        return None
    return (
        f"accepts record batches of up to {taken:,} bytes (max.message.bytes), and the staging topic accepts "
        f"{staged:,}, so a staged batch might not be published. Raise the output topic's limit to {staged}, or lower "
        f"the staging topic's limit to {taken}, with kafka-configs.sh."
    )


WAY_OUT = ", set message.timestamp.type=LogAppendTime, or remove output.timestamp from pipeline.yaml"


def _of_age(interval: Interval) -> str:
    return f" by their timestamps, and output.timestamp dates them from {interval.start:%Y-%m-%d %H:%M} UTC on"


def _too_short(settings: Mapping[str, str], name: str, needed: timedelta) -> bool:
    limit = int(settings.get(name) or -1)
    return 0 <= limit < FOREVER and timedelta(milliseconds=min(limit, 10**14)) < needed


def _hours(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 3600:g} hours"
