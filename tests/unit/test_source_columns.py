"""What `source.schema` says of a column: its type, the field that it is read from, and how the field has the value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fencepost.config.digest import digest_of_section
from fencepost.config.loading import load_pipeline
from fencepost.config.source import Source
from fencepost.formats.declared import Declared, Encoding, FieldOf

SETTINGS = """
source:
  topic: in
  schema:
    n: int not null
    at: {type: timestamp not null, field: "@timestamp", from: epoch_nanos, digits: truncate}
    until: {type: timestamp, from: epoch_micros, infinity: null}
    same: {type: bigint, from: text}
    plain: {type: date}
    other: {type: string, field: ""}
output: {topic: out, fields: {n: "n-1"}}
schedule: {start: 2026-01-01}
kafka: {bootstrap.servers: "127.0.0.1:1"}
"""


def loaded(folder: Path, text: str) -> Any:
    (folder / "pipeline.yaml").write_text(text)
    (folder / "transform.sql").write_text("SELECT n FROM source")
    (folder / "expectations.yaml").write_text("expectations: []")
    return load_pipeline(folder)


def test_a_column_is_declared_by_its_type_its_field_and_its_encoding(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    pipeline = loaded(folder, SETTINGS)
    types = {"n": "int", "at": "timestamp", "until": "timestamp", "same": "bigint", "plain": "date", "other": "string"}
    fields = {
        "at": FieldOf("@timestamp", Encoding("epoch_nanos", truncates=True)),
        "until": FieldOf("until", Encoding("epoch_micros", infinity_is_null=True)),
        "same": FieldOf("same", Encoding("text")),
        "other": FieldOf(""),
    }
    assert pipeline.source.declared == Declared(types, ("n", "at"), fields)
    assert [pipeline.source.declared.field_of(name) for name in ("n", "at", "other")] == ["n", "@timestamp", ""]
    assert pipeline.output.records.fields == {"n": "n-1"}


def test_whatever_is_said_of_a_column_or_a_field_decides_the_output(tmp_path: Path) -> None:
    folder, digests = tmp_path / "p", set[str]()
    folder.mkdir()
    changes = [
        ("int not null", "int not null"),
        ("@timestamp", "@time"),
        (", digits: truncate", ""),
        ("from: epoch_nanos, digits", "digits"),
        (", infinity: null", ""),
        ("from: text", "field: x"),
        ('"n-1"', "n_1"),
    ]
    for old, new in changes:
        assert old in SETTINGS
        changed = loaded(folder, SETTINGS.replace(old, new))
        digests.add(digest_of_section(changed.source) + digest_of_section(changed.output))
    assert len(digests) == len(changes)


def test_a_source_without_a_registry_says_every_type_and_one_with_a_registry_may_not() -> None:
    source = Source.model_validate(
        yaml.safe_load(
            "{topic: in, format: json_schema, schema: {at: {field: '@t'}, d: {field: d, digits: truncate}, n: int}}"
        )
    )
    fields = {"at": FieldOf("@t"), "d": FieldOf("d", Encoding(truncates=True))}
    assert source.declared == Declared({"n": "int"}, (), fields)


def test_settings_that_were_written_out_are_read_as_the_same() -> None:
    source = Source.model_validate({"topic": "in", "schema": {"d": {"type": "double", "infinity": None}, "n": "int"}})
    assert Source.model_validate(source.model_dump(mode="json")) == source
    assert Source.model_validate(source.model_dump(mode="json", by_alias=False)) == source
