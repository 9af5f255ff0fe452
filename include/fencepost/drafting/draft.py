"""`fencepost new` drafts a pipeline's folder from samples of its topics. The command writes only that folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from fencepost.config.intervals import in_zone
from fencepost.config.loading import load_pipeline
from fencepost.config.names import PIPELINE_NAME
from fencepost.config.pipeline import Pipeline
from fencepost.drafting.checks import draft_checks
from fencepost.drafting.columns import Fields
from fencepost.drafting.connection import DraftConnection
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.draft_source import DraftSource, draft_source
from fencepost.drafting.draft_warnings import draft_warnings
from fencepost.drafting.settings import settings_yaml
from fencepost.drafting.times import ChosenInterval, choose_interval
from fencepost.drafting.transform import DraftUnion, transform_sql
from fencepost.drafting.writing import scalar, suite_yaml
from fencepost.errors import SettingsError
from fencepost.kafka.client_settings import client_settings
from fencepost.kafka.cluster import Cluster
from fencepost.model import Layout, utc_now
from fencepost.paths import pipelines_folder


@dataclass(frozen=True)
class Draft:
    """The files that were written, and what a person should know. `command` runs the first interval."""

    folder: Path
    sources: tuple[DraftSource, ...]
    checks: int
    chosen: ChosenInterval
    command: str
    warnings: tuple[str, ...] = ()

    @property
    def sampled(self) -> int:
        """Returns the number of sampled records."""
        return sum(len(one.sample.records) for one in self.sources)

    @property
    def fields(self) -> Fields:
        """Returns the fields of an only source."""
        (source,) = self.sources
        return source.fields

    @property
    def format(self) -> str:
        """Returns the format of an only source."""
        (source,) = self.sources
        return source.source.format


def draft_pipeline(
    wanted: DraftRequest, connection: DraftConnection, look_up: Callable[[Pipeline], Pipeline] | None = None
) -> Draft:
    """Writes the folder and describes it. The folder appears whole or not at all, and replaces nothing. `look_up` adds
    the settings of Airflow connections.

    1. Draft a source for each topic: take a sample, and determine the format and its fields.
    2. Choose the first interval.
    3. Write the three files to a temporary folder, load them as a step would, and rename the folder. Several sources give a
       union.

    Raises:
        SettingsError: the folder exists, the options are wrong, or a topic's records cannot be read. The message says
            which.
        FencepostError: Kafka or the registry does not answer, or denies access.
    """
    wanted.check()
    folder = _place_of(wanted.name)
    with _draft_folder(folder) as draft_folder:
        connected = _connected(draft_folder, wanted, connection)
        connected = look_up(connected) if look_up is not None else connected
        cluster = Cluster(client_settings(connected))
        sources = tuple(  # 1
            draft_source(cluster, connected, wanted.of(topic), connection, name) for topic, name in wanted.names.items()
        )
        now = utc_now()
        samples = [one.sample for one in sources]
        chosen = choose_interval(cluster, samples, wanted.reading_group, connected.schedule.boundaries, now)  # 2
        union, only = DraftUnion(sources), sources[0]
        fields = union.fields if wanted.more else only.fields
        layout = Layout.OUTPUT if wanted.more and not union.is_alike else Layout.SOURCE
        checks = draft_checks(fields)
        sql = union.sql if wanted.more else transform_sql(fields, only.source)
        text = settings_yaml(wanted, connection, sources, chosen, layout)
        (draft_folder / "pipeline.yaml").write_text(text, encoding="utf-8")  # 3
        (draft_folder / "transform.sql").write_text(sql, encoding="utf-8")
        (draft_folder / "expectations.yaml").write_text(suite_yaml(checks, fields.records), encoding="utf-8")
        drafted = load_pipeline(draft_folder)
        drafted.suite  # noqa: B018 - read now
        _take_place(draft_folder, folder)
    start, end = (in_zone(moment, wanted.timezone) for moment in (chosen.interval.start, chosen.interval.end))
    early = "" if chosen.ended else " --allow-future"
    return Draft(
        folder=folder,
        sources=sources,
        checks=len(checks),
        chosen=chosen,
        command=f"fencepost run {wanted.name} --start {start} --end {end}{early}",
        warnings=tuple(draft_warnings(sources, chosen, wanted, drafted.schedule, now)),
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


def _connected(draft_folder: Path, wanted: DraftRequest, connection: DraftConnection) -> Pipeline:
    """Returns a pipeline that reads these topics' values as bytes, with the settings of their cluster and registry."""
    sources = {name: f"{{topic: {scalar(topic)}, format: bytes}}" for topic, name in wanted.names.items()}
    section = ", ".join(f"{scalar(name)}: {source}" for name, source in sources.items())
    text = (
        f"{f'sources: {{{section}}}' if wanted.more else section}\n"
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
