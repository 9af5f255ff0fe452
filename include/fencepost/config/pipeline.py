"""A pipeline has settings, which are frozen values that check themselves, and files in its folder.

This module does not import Spark, Airflow or Great Expectations, because Airflow's DAG processor loads it every few seconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fencepost.config.client_config import ClientConfig, scalars
from fencepost.config.digest import (
    digest,
    digest_of_file,
    digest_of_files,
    digest_of_section,
    digest_of_service,
    digest_of_sources,
    digest_of_spark,
    digest_of_tables,
)
from fencepost.config.notify import Notify
from fencepost.config.output_settings import AnyOutputSettings
from fencepost.config.record_parts import OutputPart, SourcePart, parts_of_source
from fencepost.config.sections import AirflowSettings, Lineage, Quality, Schedule
from fencepost.config.services import SERVICES
from fencepost.config.services.postgres import POSTGRES
from fencepost.config.services.schema_registry import SCHEMA_REGISTRY
from fencepost.config.services.service import Service
from fencepost.config.side_tables import FileTable, QueryTable, SideTable, TopicTable, check_names
from fencepost.config.source import SOURCE, Source
from fencepost.config.spark_options import check_spark
from fencepost.config.strict_yaml import read_yaml
from fencepost.model import Layout

if TYPE_CHECKING:
    from fencepost.suite.declared import Suite

NOT_IN_FILE = frozenset(("name", "folder", "connections", "resolved"))  # fields that pipeline.yaml does not set
STAGING = "output.staging_topic"


class Pipeline(ClientConfig):
    """One pipeline, as read from its folder. `kafka` has settings in librdkafka's names, and `spark` in Spark's."""

    folder: Path
    description: str = ""
    source: Source | None = None  # with `source`, `several` is empty; `sources` has the sources of both forms
    several: dict[str, Source] = Field(default_factory=dict, alias="sources", validate_default=True)
    tables: dict[str, SideTable] = Field(default_factory=dict)  # what the transform looks up, by name
    output: AnyOutputSettings
    schedule: Schedule
    quality: Quality = Quality()
    notify: tuple[Notify, ...] = ()
    lineage: Lineage = Lineage()
    # Number of lanes. With one, a batch is planned only after the previous batch was written, so a key's records keep
    # their order from interval to interval. With more, intervals are written side by side and that order is lost.
    lanes: int = Field(default=1, ge=1, le=64)
    spark: dict[str, str] = Field(default_factory=dict)
    airflow: AirflowSettings = AirflowSettings()

    @field_validator("several")
    @classmethod
    def _one_source_or_several(cls, several: dict[str, Source], info: ValidationInfo) -> dict[str, Source]:
        if "source" in info.data and (info.data["source"] is None) is not bool(several):
            raise ValueError(
                "give either source, with one topic, or sources, with a section for each topic by its name"
            )
        check_names(several, "source")
        topics: dict[str, str] = {}
        for name, source in several.items():
            if (other := topics.setdefault(source.topic, name)) != name:
                raise ValueError(
                    f"{other} and {name} are both topic {source.topic}; a batch would read its records twice. Remove one. A "
                    "transform can use a source twice"
                )
        return {name: source.under(f"sources.{name}") for name, source in several.items()}

    @field_validator("tables")
    @classmethod
    def _named_like_arguments(cls, tables: dict[str, SideTable], info: ValidationInfo) -> dict[str, SideTable]:
        check_names(tables, "side table")
        if both := [name for name in tables if name in info.data.get("several", {})]:
            raise ValueError(f"{both[0]} is the name of a source too; give the side table another name")
        return tables

    @field_validator("spark", mode="before")
    @classmethod
    def _spark_scalars(cls, value: object) -> object:
        return scalars(value)

    @field_validator("spark")
    @classmethod
    def _spark_keeps_the_protocol(cls, spark: dict[str, str]) -> dict[str, str]:
        check_spark(spark)
        return spark

    @model_validator(mode="after")
    def _events_can_happen(self) -> Self:
        events = {event for entry in self.notify for event in entry.on}
        if "late" in events and self.schedule.deadline_minutes is None:
            raise ValueError("notify: late needs schedule.deadline_minutes: without it there is no deadline to miss")
        if "awaiting" in events and not self.quality.ask_operator_minutes:
            raise ValueError("notify: awaiting needs quality.ask_operator_minutes above 0: without it nobody is asked")
        return self

    @model_validator(mode="after")
    def _a_store_where_one_is_asked(self) -> Self:
        for service, what in self.output.services.items():
            if not self._has(SERVICES[service]):
                raise ValueError(f"output.kind: {self.output.kind} needs {service}: with {what}, or with a connection")
        return self

    @model_validator(mode="after")
    def _a_server_for_each_query(self) -> Self:
        for name, table in self.tables.items():
            if isinstance(table, QueryTable) and table.server is None and not self._has(POSTGRES):
                raise ValueError(
                    f"tables.{name}.query needs a server: give tables.{name}.postgres, or postgres: for the whole pipeline, "
                    "with host, dbname and user, or with a connection"
                )
        return self

    def _has(self, service: Service) -> bool:
        return bool(getattr(self, service.name)) or service.name in self.connections

    @property
    def _own_topics(self) -> dict[str, str]:
        """Returns what each topic is that the pipeline writes, without its quarantine topic."""
        return {
            self.staging_topic: STAGING,
            **dict.fromkeys(self.output.topics, "output.topic"),
            self.ledger_topic: "the ledger",
            self.announcements_topic: "the topic of announcements",
        }

    @model_validator(mode="after")
    def _two_topics(self) -> Self:
        own, sources = self.output.topics, {one.topic: f"{one.setting}.topic" for one in self.sources.values()}
        for topic in own:
            if topic in sources:
                raise ValueError(f"output.topic is {sources[topic]} ({topic}); a batch would read its own output")
        for topic in {self.ledger_topic, self.announcements_topic}.intersection(sources):
            raise ValueError(
                f"{sources[topic]} is {topic}, which is the pipeline's ledger or topic of announcements; name another"
            )
        for topic in {self.ledger_topic, self.announcements_topic}.intersection(own):
            raise ValueError(
                f"output.topic is {topic}, which is the pipeline's ledger or topic of announcements; name another"
            )
        taken = {**self._own_topics, **sources}
        if (role := taken[self.staging_topic]) != STAGING:
            raise ValueError(
                f"{STAGING} is {self.staging_topic}, which is {role}; records that are not judged need a topic of their own"
            )
        if (what := taken.get(self.quarantine_topic)) is not None:
            raise ValueError(
                f"quality.quarantine_topic is {what} ({self.quarantine_topic}); quarantined records need a topic of their own"
            )
        return self

    @model_validator(mode="after")
    def _looks_back_under_layout_output(self) -> Self:
        looking = next((one for one in self.sources.values() if one.lookback is not None), None)
        if looking is not None and self.output.layout is not Layout.OUTPUT:
            raise ValueError(
                f"{looking.setting}.lookback needs output.layout: output. Under layout source each row comes from one record, so "
                "there is nothing to look back for"
            )
        return self

    @model_validator(mode="after")
    def _tables_are_not_its_own_topics(self) -> Self:
        own = {**self._own_topics, self.quarantine_topic: "quality.quarantine_topic"}
        for name, table in self.topic_tables.items():
            if (what := own.get(table.topic)) is not None:
                raise ValueError(
                    f"tables.{name}.topic is {what} ({table.topic}), which the pipeline itself writes; a retry would look up "
                    "what the attempt before it has written"
                )
        return self

    @model_validator(mode="after")
    def _a_registry_where_one_is_asked(self) -> Self:
        if self.uses_registry and self.schema_registry is None:
            asking = " and ".join(f"{field}: {name}" for field, name in self._in_registry.items())
            raise ValueError(f"{asking} needs schema_registry: with the url of one")
        return self

    @property
    def sources(self) -> dict[str, Source]:
        """Returns the sources by name. The name of an only source in the section `source` is `SOURCE`."""
        return {SOURCE: self.source} if self.source is not None else self.several

    @property
    def source_topics(self) -> dict[str, Source]:
        """Returns the sources by topic."""
        return {source.topic: source for source in self.sources.values()}

    @property
    def looks_back(self) -> bool:
        """Returns whether the transform gets records of earlier intervals again."""
        return any(source.lookback is not None for source in self.sources.values())

    @property
    def replays_results_only(self) -> bool:
        """Returns whether rows may come from records of several sources, or of several intervals. Then no row keeps its source
        record, and a replay gives the transform no record again.
        """
        return (len(self.sources) > 1 or self.looks_back) and self.output.layout is Layout.OUTPUT

    def why_truncations_fail(self, source: Source) -> str:
        """Returns which setting lets a truncation of a source table fail a batch. The text is empty if none does. By default
        a truncation fails it if the output has a current table, which would keep the rows that the truncation removed.
        """
        said, setting = source.truncations, f"{source.setting}.truncations"
        if said is None and source.envelope is not None and self.output.current_table is not None:
            return f"{setting} is fail, the default with output.current"
        return f"{setting} is fail" if said == "fail" else ""

    @property
    def uses_registry(self) -> bool:
        """Returns whether any part of the pipeline's records has its schema in a registry."""
        return bool(self._in_registry)

    @property
    def _in_registry(self) -> dict[str, str]:
        """Returns the formats of the parts whose schemas are in a registry, by setting."""
        of_tables = [part for name in self.topic_tables for part in self.table_parts(name)]
        parts = (*self.source_parts, *self.output_parts, *of_tables)
        return {part.setting_of("format"): part.format for part in parts if part.in_registry}

    @property
    def source_parts(self) -> tuple[SourcePart, ...]:
        """Returns the values and the keys of each source."""
        return tuple(part for source in self.sources.values() for part in parts_of_source(source))

    @property
    def output_parts(self) -> tuple[OutputPart, ...]:
        """Returns the values and the keys of the output."""
        return tuple(
            OutputPart(setting="output", section=self.output.records, topic=self.output.name, is_key=is_key)
            for is_key in (False, True)
        )

    def table_parts(self, name: str) -> tuple[SourcePart, ...]:
        """Returns the values and the keys of a side table that is a topic."""
        return parts_of_source(self.topic_tables[name].source.under(f"tables.{name}"), "key_schema")

    @property
    def label(self) -> str:
        return f"pipeline {self.name}"

    @property
    def written_in(self) -> str:
        """Returns where the pipeline's settings are written."""
        return str(self.folder / "pipeline.yaml")

    @property
    def staging_topic(self) -> str:
        """Returns the topic of batches before their publication under `publish: staged`."""
        return self.output.staging_topic or self.default_staging_topic

    @property
    def quarantine_topic(self) -> str:
        """Returns the topic of malformed records and of records that failed a quarantine rule, or None if the pipeline
        quarantines none.
        """
        return self.quality.quarantine_topic or self.default_quarantine_topic

    @property
    def table_files(self) -> frozenset[Path]:
        """Returns the files of side tables. The ledger has their content's fingerprint, so they count in no digest."""
        return frozenset(table.path(self.folder) for table in self.tables.values() if isinstance(table, FileTable))

    @property
    def topic_tables(self) -> dict[str, TopicTable]:
        """Returns the side tables that are topics, by name."""
        return {name: table for name, table in self.tables.items() if isinstance(table, TopicTable)}

    @property
    def within(self) -> Mapping[str, ClientConfig]:
        """Returns the servers that side tables have of their own."""
        tables = self.tables.items()
        return {
            f"tables.{n}": self.server_of(n) for n, table in tables if isinstance(table, QueryTable) and table.server
        }

    def with_within(self, within: Mapping[str, ClientConfig]) -> Self:
        changed = {
            name: table.model_copy(update={"server": within[f"tables.{name}"]})
            for name, table in self.tables.items()
            if f"tables.{name}" in within
        }
        return self.model_copy(update={"tables": self.tables | changed})

    def server_of(self, name: str) -> ClientConfig:
        """Returns the settings of the server that a side table with a query is read from: its own, or the pipeline's."""
        table = self.tables[name]
        own = table.server if isinstance(table, QueryTable) else None
        return self if own is None else own.of(self, name)

    @property
    def transform_file(self) -> Path:
        """Returns the file of the transform: `transform.py` or `transform.sql`."""
        script = self.folder / "transform.py"
        return script if os.path.lexists(script) else self.folder / "transform.sql"

    @property
    def expectations_file(self) -> Path:
        """Returns the suite's file."""
        return self.folder / "expectations.yaml"

    def write_digests(self) -> dict[str, str]:
        """Returns a digest for each part that decides a batch's output. Reads the pipeline's folder.

        Only the suite's rules of severity `quarantine` count, because a correction of another expectation must not
        write the output again. No digest includes credentials, because a digest in the ledger would help to guess them.
        """
        rules = self.digest_of_rules()
        return {
            "source": digest_of_sources(self.sources) if self.source is None else digest_of_section(self.source),
            "output": digest_of_section(self.output),
            "spark": digest_of_spark(self.spark),
            "transform": digest_of_file(self.transform_file),
            "files": digest_of_files(self.folder, without=self.table_files),
            **({"tables": digest_of_tables(self.tables)} if self.tables else {}),
            **({QUARANTINE: rules} if rules else {}),
            **({"registry": digest_of_service(self, SCHEMA_REGISTRY)} if self.uses_registry else {}),
        }

    @cached_property
    def suite(self) -> Suite:
        """Returns the suite, which is read at its first use. So a pipeline with a wrong suite still shows its state.

        Raises:
            SettingsError: the suite cannot be read, or is wrong.
        """
        return load_suite(self.expectations_file)

    @property
    def quarantines(self) -> bool:
        """Returns whether the pipeline may send records to quarantine."""
        malformed = any(source.on_malformed == QUARANTINE for source in self.sources.values())
        return malformed or bool(self.suite.rules)

    def digest_of_rules(self) -> str | None:
        """Returns a digest of the suite's rules of severity `quarantine`, or None if it has none."""
        rules = [rule.model_dump(mode="json", exclude={"index"}) for rule in self.suite.rules]
        return digest(rules) if rules else None


QUARANTINE = "quarantine"  # the severity of rules that decide what is written, and the name of their digest


def load_suite(file: Path) -> Suite:
    """Reads and checks `expectations.yaml`.

    Raises:
        SettingsError: names file, field, what was found and what is allowed.
    """
    from fencepost.suite.declared import suite_of  # building its models takes a while, and few commands read a suite

    return suite_of(read_yaml(file), file)
