"""`fencepost new` drafts a pipeline's folder from a sample of its topic. The command writes only that folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from fencepost.config.intervals import clock_changes, in_zone
from fencepost.config.loading import load_pipeline
from fencepost.config.names import PIPELINE_NAME
from fencepost.config.pipeline import Pipeline
from fencepost.config.sections import Schedule
from fencepost.counts import count_of
from fencepost.drafting.checks import draft_checks
from fencepost.drafting.columns import Fields
from fencepost.drafting.connection import DraftConnection
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.foreign_ids import check_ids
from fencepost.drafting.settings import LARGE, LIMIT, largest_of, limit_of, settings_yaml
from fencepost.drafting.source import compaction, near_topics, source_of, with_tombstones
from fencepost.drafting.times import ChosenInterval, choose_interval, doubts
from fencepost.drafting.writing import scalar, suite_yaml, transform_sql
from fencepost.errors import AccessDenied, SettingsError, TopicMissing
from fencepost.kafka.client_settings import client_settings
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.sample import Sample, take_sample
from fencepost.model import utc_now
from fencepost.paths import pipelines_folder
from fencepost.protocol.unread import FIRST_CREDIBLE


@dataclass(frozen=True)
class Draft:
    """The files that were written, and what a person should know. `command` runs the first interval."""

    folder: Path
    format: str
    sampled: int
    fields: Fields
    checks: int
    chosen: ChosenInterval
    command: str
    warnings: tuple[str, ...] = ()


def draft_pipeline(
    wanted: DraftRequest, connection: DraftConnection, look_up: Callable[[Pipeline], Pipeline] | None = None
) -> Draft:
    """Writes the folder and describes it. The folder appears whole or not at all, and replaces nothing. `look_up` adds
    the settings of Airflow connections.

    1. Take the sample.
    2. Determine the format and its fields.
    3. Choose the first interval.
    4. Write the three files to a temporary folder, load them as a step would, and rename the folder.

    Raises:
        SettingsError: the folder exists, the options are wrong, or the topic's records cannot be read. The message says
            which.
        FencepostError: Kafka or the registry does not answer, or denies access.
    """
    folder = _place_of(wanted.name)
    with _draft_folder(folder) as draft_folder:
        connected = _connected(draft_folder, wanted, connection)
        connected = look_up(connected) if look_up is not None else connected
        cluster = Cluster(client_settings(connected))
        topic = _described(cluster, wanted.topic)
        sample = take_sample(cluster, topic, wanted.reading_group, wanted.sample)  # 1
        if sample.cut and not sample.records:
            raise SettingsError(
                f"topic {wanted.topic}: the sample has no record: {sample.cut}. The offsets that were read are of "
                "transaction markers and aborted records. Run this again when there are newer records."
            )
        check_ids(wanted, sample.records)
        values = [one.value for one in sample.records]
        keys = [one.key for one in sample.records]
        source, fields = source_of(connected, wanted, connection, values, keys)  # 2
        policy = _cleanup_policy(cluster, wanted.topic)
        if source.envelope is None and (fields.tombstones or "compact" in policy):
            source = with_tombstones(source, fields, keys)
        now = utc_now()
        chosen = choose_interval(  # 3
            cluster, sample, wanted.reading_group, connected.schedule.boundaries, now
        )
        checks = draft_checks(fields)
        text = settings_yaml(wanted, connection, sample, source, fields, chosen)
        (draft_folder / "pipeline.yaml").write_text(text, encoding="utf-8")  # 4
        (draft_folder / "transform.sql").write_text(transform_sql(fields, source), encoding="utf-8")
        (draft_folder / "expectations.yaml").write_text(suite_yaml(checks, fields.records), encoding="utf-8")
        drafted = load_pipeline(draft_folder)
        drafted.suite  # noqa: B018 - read now
        _take_place(draft_folder, folder)
    start, end = (in_zone(moment, wanted.timezone) for moment in (chosen.interval.start, chosen.interval.end))
    early = "" if chosen.ended else " --allow-future"
    warnings = tuple(_warnings(sample, fields, chosen, wanted, drafted.schedule, now, policy))
    return Draft(
        folder=folder,
        format=source.format,
        sampled=len(sample.records),
        fields=fields,
        checks=len(checks),
        chosen=chosen,
        command=f"fencepost run {wanted.name} --start {start} --end {end}{early}",
        warnings=warnings,
    )


def known_topics(connection: DraftConnection, look_up: Callable[[Pipeline], Pipeline], timeout: float) -> list[str]:
    """Returns the topics of a connection's cluster. It waits at most `timeout` seconds.

    Raises:
        FencepostError: the settings are wrong, or Kafka does not answer.
    """
    with TemporaryDirectory(prefix="fencepost-") as folder:
        draft_folder = Path(folder) / "new"
        draft_folder.mkdir()
        connected = look_up(_connected(draft_folder, DraftRequest("new", "any"), connection))
    return Cluster(client_settings(connected), timeout).topics()


def _place_of(name: str) -> Path:
    if not PIPELINE_NAME.fullmatch(name):
        raise SettingsError(
            f"{name!r} is not a pipeline's name. A name has at most 63 of a-z, 0-9 and _, and begins with a letter."
        )
    folder = pipelines_folder() / name
    if os.path.lexists(folder):
        raise SettingsError(f"{folder}: exists already, and is not overwritten. Choose another name, or move it away.")
    return folder


@contextmanager
def _draft_folder(folder: Path) -> Iterator[Path]:
    """Yields a folder with the pipeline's name in a temporary folder beside the final folder. The temporary folder is
    not taken for a pipeline, and is deleted afterwards.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(prefix=".new-", dir=folder.parent))
    except OSError as error:
        raise SettingsError(f"{folder.parent}: cannot be written: {error.strerror}. Set FENCEPOST_PIPELINES.") from None
    try:
        draft_folder = made / folder.name
        draft_folder.mkdir()
        yield draft_folder
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _take_place(draft_folder: Path, folder: Path) -> None:
    try:
        draft_folder.rename(folder)
    except OSError as error:
        raise SettingsError(f"{folder}: cannot be created: {error.strerror}. Choose another name.") from None


def _described(cluster: Cluster, name: str) -> Topic:
    try:
        return cluster.describe(name)
    except TopicMissing:
        near = near_topics(name, cluster.topics())
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        raise TopicMissing(
            f"--from-topic {name}: Kafka at {cluster.settings.bootstrap} has no such topic, or does not show it to this user. "
            f"{hint}Correct the name, or create the topic."
        ) from None


def _cleanup_policy(cluster: Cluster, topic: str) -> str:
    """Returns the topic's `cleanup.policy`. It is empty without the right to read it."""
    try:
        return cluster.topic_configs(topic).get("cleanup.policy", "")
    except AccessDenied:
        return ""


def _connected(draft_folder: Path, wanted: DraftRequest, connection: DraftConnection) -> Pipeline:
    """Returns a pipeline that reads this topic's values as bytes, with the settings of its cluster and registry."""
    text = (
        f"source: {{topic: {scalar(wanted.topic)}, format: bytes}}\n"
        f"output: {{topic: {scalar(wanted.output_topic)}}}\n"
        f"schedule: {{start: 2000-01-01, cron: {scalar(wanted.cron)}, timezone: {scalar(wanted.timezone)}}}\n"
        f"{connection.kafka}{connection.registry}{connection.spark}"
    )
    (draft_folder / "pipeline.yaml").write_text(text, encoding="utf-8")
    (draft_folder / "transform.sql").write_text("SELECT value FROM source\n")
    (draft_folder / "expectations.yaml").write_text("")
    try:
        return load_pipeline(draft_folder)
    except SettingsError as error:
        raise SettingsError(str(error).replace(f"{draft_folder / 'pipeline.yaml'}: ", "")) from None


def _warnings(
    sample: Sample,
    fields: Fields,
    chosen: ChosenInterval,
    wanted: DraftRequest,
    schedule: Schedule,
    now: datetime,
    policy: str,
) -> Iterator[str]:
    if any(compacted := compaction(wanted.topic, policy)):
        yield " ".join(compacted)
    if sample.cut:
        yield f"The sample has {count_of(len(sample.records), 'record')}, not {wanted.sample:,}: {sample.cut}."
    if (largest := largest_of(sample)) >= LARGE:
        yield (
            f"The largest sampled record has {largest:,} bytes. If topics of this cluster accept less "
            f"(max.message.bytes), create {wanted.output_topic} with a higher limit before the first run. The "
            "staging topic gets the same limit."
        )
    if fields.bad:
        reasons = sorted(fields.malformed.items(), key=lambda item: -item[1])
        yield (
            f"Malformed: {fields.bad:,} of {fields.records:,} sampled records, which would go to quarantine: "
            f"{'; '.join(f'{reason} ({count:,})' for reason, count in reasons[:3])}."
        )
    if (limit := limit_of(fields)) > LIMIT:
        rejects = "no batch is rejected for them" if limit == 1 else f"only a share above {limit} rejects a batch"
        yield (
            f"pipeline.yaml sets quality.quarantine_limit to a share of {limit} for these malformed records, so {rejects}. The "
            f"default is {LIMIT}. Lower it when the cause is fixed."
        )
    yield from fields.notes
    if fields.left_out:
        yield (
            f"Fields that cannot be read: {len(fields.left_out):,}. They are left out, and pipeline.yaml lists them with "
            "the reasons."
        )
    if chosen.unread and chosen.whole < FIRST_CREDIBLE:
        yield (
            f"No run from {chosen.interval.description} on reads the {count_of(chosen.unread, 'offset', 'offsets')} "
            "before the first record of this interval. Records there have timestamps that are much older, ahead of "
            "the clock, or missing. A comment in pipeline.yaml has the command that reads them."
        )
    if sample.records and not chosen.records:
        yield f"The interval {chosen.interval.description} has no record, so the first run would publish nothing."
    if sample.records and not chosen.ended:
        yield (
            "No interval with records has ended yet. The command below runs an interval before its end. Later records "
            "then belong to the next interval."
        )
    if changes := clock_changes(schedule, now):
        yield changes
    yield from doubts(sample, schedule.boundaries, now)
