"""Which batches a list of asset events stands for, after all that was announced, and with which columns."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from conftest import day
from fencepost import read_validated
from fencepost.config.reader import Reader
from fencepost.errors import NeedsOperator, SettingsError, Superseded
from fencepost.kafka.cluster import Topic
from fencepost.model import Schemas
from fencepost.outputs.rows_request import RowsRequest
from fencepost.outputs.topic import reader as topic_reader
from fencepost.outputs.topic.reader import _place, read_rows
from fencepost.protocol.announcement import Announcement
from fencepost.reading.validated import announced_batches, columns_of
from fencepost.rows.unions import check_types
from makers import an_announcement

BROKER = {"bootstrap.servers": "127.0.0.1:1"}


def of(number: int, revision: int, state: str = "published", **changes: Any) -> Announcement:
    values = {"batch": f"p/{day(number)}/{revision}", "interval": day(number), "revision": revision, "state": state}
    return an_announcement(**{**values, **changes})


def fields(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


TOLD = [of(1, 1), of(2, 1), of(3, 1, "skipped"), of(1, 2), of(4, 1, rows=0), of(4, 1, "withdrawn", rows=0)]


def announced(*events: Announcement) -> list[str]:
    return [one.batch for one in announced_batches(events, TOLD)]


def name(number: int, revision: int) -> str:
    return of(number, revision).batch


def test_a_superseded_event_is_dropped_where_the_revision_that_counts_is_told_of_too() -> None:
    for events in permutations([of(1, 1), of(1, 2), of(2, 1), of(1, 2)]):
        assert announced(*events) == [name(1, 2), name(2, 1)], "each once, in order of time"
    assert announced(of(1, 2)) == [name(1, 2)]
    assert announced(of(2, 1), of(1, 2), of(3, 1, "skipped")) == [name(1, 2), name(2, 1)], "a skip says nothing"


@pytest.mark.parametrize(
    ("events", "became"),
    [
        ([of(1, 1)], "superseded"),
        ([of(1, 1), of(2, 1)], "superseded"),
        ([of(2, 2)], "not announced"),
        ([of(5, 1)], "not announced"),
        ([of(2, 1, ledger_id="another")], "not announced"),
        ([of(4, 1, rows=3)], "withdrawn"),
    ],
)
def test_an_event_that_nothing_in_the_list_replaces_is_refused(events: list[Announcement], became: str) -> None:
    with pytest.raises(Superseded, match=f"is {became}"):
        announced(*events)


def test_an_interval_without_records_that_was_withdrawn_fails_no_reader() -> None:
    """An interval by mistake was published, told of, and taken out of the order."""
    assert announced(of(2, 1), of(4, 1, rows=0)) == [name(2, 1)]


def test_records_that_do_not_name_their_batch_are_refused_and_not_passed_over() -> None:
    """A setting left the header out; who looks for it finds none of them."""
    cluster: Any = SimpleNamespace(describe=lambda name: Topic(name, "out-1", 11), earliest=lambda _: [0] * 11)
    with pytest.raises(NeedsOperator, match=r"have no header.*output.batch_header: true"):
        _place(cluster, of(1, 1, header=None))


def test_the_registry_is_not_asked_for_a_batch_whose_records_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reader, "client_settings", lambda reader: None)
    cluster: Any = SimpleNamespace(describe=lambda name: Topic(name, "out-1", 11), earliest=lambda _: [0] * 11)
    asked = list[str]()

    def registry() -> Schemas | None:
        asked.append("registry")
        return None

    unused: Any = None
    one = of(1, 1, header=None)
    with pytest.raises(NeedsOperator, match="have no header"):
        read_rows(RowsRequest(unused, unused, cluster, one, columns_of(one), registry))
    assert asked == []


def test_columns_of_one_name_have_one_type() -> None:
    one, other = fields(n=IntegerType(), name=StringType()), fields(m=IntegerType(), N=IntegerType())
    check_types({"a": one, "b": other})
    with pytest.raises(SettingsError, match="column n is int in batch a and bigint in batch c"):
        check_types({"a": one, "b": other, "c": fields(n=LongType())})


def test_columns_are_made_of_what_is_announced() -> None:
    array = {"type": "array", "elementType": "string", "containsNull": True}
    found = columns_of(
        of(1, 1, columns=[{"name": "n", "type": "integer", "nullable": False}, {"name": "tags", "type": array}])
    )
    assert found.simpleString() == "struct<n:int,tags:array<string>>"
    assert found["n"].nullable is False
    assert columns_of(of(1, 1, columns=())) == StructType([])


@pytest.mark.parametrize(
    ("events", "settings", "why"),
    [
        ([], {}, "these are of none"),
        ([of(1, 1).json_value, of(1, 1, batch="q/x/1").json_value], {}, r"\['p', 'q'\]"),
        ([{"batch": "p/x/1"}], {}, "not an announcement of Fencepost"),
        ([of(1, 1).json_value], {"kafka": {"bootstrap.servers": ""}}, "its Kafka is not named"),
        ([of(1, 1).json_value], {"kafka": {**BROKER, "group.id": "x"}}, "group.id cannot be set"),
        ([of(1, 1).json_value], {"kafka": BROKER, "schema_registry": {"url": "x"}}, "schema_registry.url: .*not a URL"),
        ([of(1, 1).json_value], {"kafka": BROKER, "postgres": {"host": "h"}}, "postgres: .*dbname, user: required"),
    ],
)
def test_what_a_reader_gives_is_checked_before_anything_is_asked(
    events: list[Any], settings: dict[str, Any], why: str
) -> None:
    nothing: Any = None
    with pytest.raises(SettingsError, match=why):
        read_validated(nothing, events, **settings)


def test_no_secret_of_a_reader_is_in_a_message() -> None:
    kafka = {**BROKER, "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.password": "hunter2"}
    with pytest.raises(SettingsError, match=r"sasl\.username") as raised:
        Reader.of("p", kafka, None, None)
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(Reader.of("p", {**kafka, "sasl.username": "u"}, None, None))


def test_without_settings_the_environment_names_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "kafka:9092")
    assert Reader.of("p", None, None, None).kafka["bootstrap.servers"].get_secret_value() == "kafka:9092"
