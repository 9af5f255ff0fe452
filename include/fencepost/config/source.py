"""The section `source` of `pipeline.yaml`: the topic, and how its records are read.

This module does not import Spark, Airflow or Great Expectations, because Airflow's DAG processor loads it every few seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, field_validator, model_validator

from fencepost.config.sections import (
    ColumnType,
    FieldName,
    FormatName,
    Mark,
    Section,
    Subject,
    TopicName,
    Version,
    check_subjects,
)
from fencepost.config.sql_types import is_required, parse_sql_type, without_not_null
from fencepost.formats import FORMATS, Declared
from fencepost.formats.column_names import twins
from fencepost.formats.declared import PLAIN, Encoding, Envelope, FieldOf, Only
from fencepost.formats.framing import ExcludedKind


def _table_name(name: str) -> str:
    above, _, table = name.partition(".")
    if not above or not table:
        raise ValueError(
            f"{name!r}: give the table as schema.table, or as database.table for MySQL and MariaDB, as Debezium's "
            "table.include.list has it"
        )
    return name


TableName = Annotated[str, AfterValidator(_table_name)]
SourceKeyFormat = Literal["bytes", "json", "json_schema", "avro"]
REJECT = "reject"  # of a batch to which a source gave no record
JSON_KEYS = ("json", "json_schema")
SOURCE = "source"  # the name of a source in the section `source`, for one
OF_ENVELOPES = (ExcludedKind.TRUNCATIONS, ExcludedKind.MESSAGES, ExcludedKind.DELETION_TOMBSTONES)
EncodingName = Literal["epoch_seconds", "epoch_millis", "epoch_micros", "epoch_nanos", "epoch_days", "base64", "text"]


class SourceColumn(Section):
    """A column of the source: its Spark SQL type, and the field of the record that it is read from.

    `type` is None if the registry's schema gives the type. `field` is the field's name in the record, or None if it is the
    column's name. `encoding` (in YAML: `from`) is how the field has the value, `digits` what becomes of digits below the
    microsecond, and `infinity_is_null` (in YAML: `infinity: null`) whether an infinity is read as null. In YAML a text is
    the type alone.
    """

    type: ColumnType | None = None
    field: FieldName | None = None
    encoding: EncodingName | None = Field(default=None, alias="from")
    digits: Literal["truncate"] | None = None
    infinity_is_null: bool = Field(default=False, alias="infinity")

    @model_validator(mode="before")
    @classmethod
    def _type_alone(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"type": value}
        if not isinstance(value, Mapping | SourceColumn):
            raise ValueError(  # noqa: TRY004 - pydantic names the field of a ValueError
                "a column is a Spark SQL type, or a mapping of type, field, from, digits and infinity"
            )
        if isinstance(value, Mapping) and "infinity" in value:
            if value["infinity"] is not None:
                raise ValueError("infinity: only null is allowed, which reads an infinity as null")
            return {**value, "infinity": True}
        return value

    @model_validator(mode="after")
    def _suits_the_type(self) -> Self:
        if self.type is None:
            if self.encoding is not None:
                raise ValueError(f"from: {self.encoding} needs a type")
            if self.field is None and self.how is None:
                raise ValueError("it says neither a type nor a field")
        elif self.how is not None:
            self.how.check(parse_sql_type(without_not_null(self.type)).name)
        return self

    @property
    def how(self) -> Encoding | None:
        """Returns how the field has the value, or None if the settings say nothing about it."""
        found = Encoding(self.encoding or PLAIN, self.digits == "truncate", self.infinity_is_null)
        return None if found == Encoding() else found


class RecordTypes(Section):
    """The types of records that a source reads. `values` are names of types.

    For JSON `field` is the field of a record that has its type. A schema in a registry has a name itself: a record's full
    name in Avro, and the title in JSON Schema. In YAML a list has the names alone.
    """

    field: FieldName | None = None
    values: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        return {"values": value} if isinstance(value, list | tuple) else value


TIME = re.compile(r"(\d{1,6}) ?(minute|hour|day|week)s?")


def _time(value: object) -> object:
    """Returns the time that a text such as `7 days` says."""
    if isinstance(value, timedelta):
        return value
    found = TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or not int(found[1]):
        raise ValueError("give a number of minutes, hours, days or weeks above 0, such as '7 days'")
    return timedelta(**{f"{found[2]}s": int(found[1])})


class LookBack(Section):
    """How far before a batch its transform gets the records of earlier intervals again. In YAML a text is the time alone.

    `on_expired` says what happens if the topic no longer has all of these records.
    """

    time: Annotated[timedelta, BeforeValidator(_time), Field(gt=timedelta(0), le=timedelta(days=3660))] = Field(
        alias="for"
    )
    on_expired: Annotated[Literal["fail", "skip"], Mark.DECIDES_NO_RECORD] = "fail"

    @model_validator(mode="before")
    @classmethod
    def _time_alone(cls, value: Any) -> Any:
        return {"for": value} if isinstance(value, str | int | float) else value


class Source(Section):
    """The source topic. `columns` (in YAML: `schema`) declares JSON fields by Spark SQL type. For json_schema it
    declares only fields whose types do not come from the registry. `key` declares the fields of keys in the same way.
    `only` has the types of the records that are read, or None if all are. With `envelope` each value is a change of a row,
    and `captured_table` (in YAML: `table`) is the only table whose changes are read. If `truncations` is None, the output
    decides (`Pipeline.why_truncations_fail`).

    `subject` and `version` say which schema of the registry a value is read with. `key_subject` and `key_version` say
    the same for a key.
    """

    _setting: str = PrivateAttr(SOURCE)

    topic: Annotated[TopicName, Mark.FROM_ENVIRONMENT]
    format: FormatName = "json"
    subject: Subject | None = None
    version: Version | None = None
    only: RecordTypes | None = None
    envelope: Literal["debezium"] | None = None
    captured_table: TableName | None = Field(default=None, alias="table")
    key_format: SourceKeyFormat = "bytes"
    key_subject: Subject | None = None
    key_version: Version | None = None
    key: dict[str, SourceColumn] = Field(default_factory=dict)
    columns: dict[str, SourceColumn] = Field(default_factory=dict, alias="schema")
    headers: bool = False
    on_malformed: Literal["fail", "drop", "quarantine"] = "fail"
    tombstones: Literal["fail", "drop", "pass"] = "fail"
    truncations: Annotated[Literal["fail", "drop"] | None, Mark.DECIDES_NO_RECORD] = None
    on_expired: Annotated[Literal["fail", "skip"], Mark.DECIDES_NO_RECORD] = "fail"
    empty: Annotated[Literal["pass", "reject"], Mark.DECIDES_NO_RECORD] = "pass"
    lookback: LookBack | None = None

    @field_validator("columns", "key")
    @classmethod
    def _no_reserved_names(cls, columns: dict[str, SourceColumn]) -> dict[str, SourceColumn]:
        for name in columns:
            if name.startswith("_") or not re.fullmatch(r"\w+", name):
                raise ValueError(f"column {name!r}: names are letters, digits and _, and do not begin with _")
        if both := twins(columns):
            raise ValueError(f"columns {both[0]!r} and {both[1]!r} differ only in case: to Spark they are the same")
        return columns

    @property
    def setting(self) -> str:
        """Returns the section of pipeline.yaml that has these settings, for messages: `source`, or `sources.orders`."""
        return self._setting

    def under(self, setting: str) -> Self:
        """Returns these settings as those of another section of pipeline.yaml."""
        changed = self.model_copy()
        changed._setting = setting
        return changed

    @property
    def excludes(self) -> tuple[ExcludedKind, ...]:
        """Returns the kinds of records that these settings may exclude."""
        types = () if self.only is None else (ExcludedKind.OTHER_TYPES,)
        tables = () if self.captured_table is None else (ExcludedKind.OTHER_TABLES,)
        return types if self.envelope is None else (*tables, *OF_ENVELOPES)

    @property
    def passes_tombstones(self) -> bool:
        """Returns whether the transform gets tombstones. It gets none of a topic of envelopes, whose tombstones follow
        deletions.
        """
        return self.tombstones == "pass" and self.envelope is None

    @property
    def key_fields(self) -> frozenset[str]:
        """Returns the names of the key's declared fields, as the key has them."""
        return frozenset(name if column.field is None else column.field for name, column in self.key.items())

    @property
    def declared(self) -> Declared:
        """Returns what the settings declare about the columns. The schemas of a plan are not in it."""
        only = None if self.only is None else Only(self.only.field, self.only.values)
        envelope = None if self.envelope is None else Envelope(self.captured_table, self.key_fields)
        return replace(_declared(self.columns), only=only, envelope=envelope)

    @property
    def declared_key(self) -> Declared:
        """Returns what the settings declare about the fields of keys."""
        return _declared(self.key)

    @model_validator(mode="after")
    def _columns_suit_the_format(self) -> Self:
        FORMATS[self.format].check_columns(self.declared)
        untyped = [name for name, column in self.columns.items() if column.type is None]
        if untyped and not FORMATS[self.format].has_registry:
            raise ValueError(f"column {untyped[0]!r} needs a type: format {self.format} has no schema that gives it")
        check_subjects(self)
        return self

    @model_validator(mode="after")
    def _key_suits_its_format(self) -> Self:
        if self.key and self.key_format == "bytes":
            raise ValueError("key needs key_format: json, json_schema or avro")
        if not self.key and self.key_format in JSON_KEYS:
            raise ValueError(f"key_format: {self.key_format} needs key: a mapping of field name to Spark SQL type")
        for name, column in self.key.items():
            if self.key_format == "avro" and column.how is not None:
                raise ValueError(
                    f"key: {name}: from, digits and infinity are for keys in JSON; the schema says it in Avro"
                )
            if self.key_format != "avro" and column.type is None:
                raise ValueError(f"key: {name} needs a type: key_format {self.key_format} has no schema that gives it")
        return self

    @model_validator(mode="after")
    def _only_suits_the_format(self) -> Self:
        if self.only is None:
            return self
        if self.format == "bytes":
            raise ValueError("only needs format: json, json_schema or avro: format bytes does not look into values")
        if self.format == "json" and self.only.field is None:
            raise ValueError(
                "only: for format json give the field that has the type: {field: type, values: [OrderCreated]}"
            )
        if self.format != "json" and self.only.field is not None:
            raise ValueError(f"only: for format {self.format} give a list of the names of schemas: [acme.OrderCreated]")
        return self

    @model_validator(mode="after")
    def _envelope_suits_the_format(self) -> Self:
        if self.envelope is None:
            if self.captured_table is not None:
                raise ValueError("table needs envelope: debezium")
            if self.truncations is not None:
                raise ValueError("truncations needs envelope: debezium")
            return self
        if self.format == "bytes":
            raise ValueError("envelope needs format: json, json_schema or avro: format bytes does not look into values")
        if self.only is not None:
            raise ValueError("only: with envelope, table takes the changes of one table")
        return self


def _declared(columns: Mapping[str, SourceColumn]) -> Declared:
    types = {name: without_not_null(one.type) for name, one in columns.items() if one.type is not None}
    required = tuple(name for name, one in columns.items() if one.type is not None and is_required(one.type))
    fields = {
        name: FieldOf(name if column.field is None else column.field, column.how)
        for name, column in columns.items()
        if column.type is None or column.field is not None or column.how is not None
    }
    return Declared(types, required, fields)
