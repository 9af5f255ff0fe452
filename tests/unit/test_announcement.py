"""The shape of an announcement, and what is taken for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost.errors import SettingsError
from fencepost.protocol.announcement import Announcement, json_schema
from makers import an_announcement

DOCS = Path(__file__).parents[2] / "docs"


def test_the_schema_in_the_documents_is_the_shape() -> None:
    assert (DOCS / "announcement.schema.json").read_text() == json_schema()


def test_a_record_has_every_field_and_is_read_back_as_it_was() -> None:
    one = an_announcement()
    assert set(one.json_value) == set(Announcement.model_fields)
    assert Announcement.model_validate_json(one.record()) == one == Announcement.of(one.json_value)
    assert (one.pipeline, one.output) == ("p", "out")
    assert [r.partition_id for r in one.offset_ranges] == [("out", 2), ("out", 10)]


def test_what_airflow_or_a_newer_release_adds_is_passed_over() -> None:
    one = an_announcement()
    assert Announcement.of({**one.json_value, "from_rest_api": True}) == one


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"version": 2}, "version 2"),
        ({}, "not an announcement.*batch"),
        ({**an_announcement().json_value, "ranges": {"0": [1]}}, "wrong in ranges"),
    ],
)
def test_what_is_none_is_refused_with_the_field(told: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        Announcement.of(told, "record 7")
