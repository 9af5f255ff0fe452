"""A draft of several topics: the names of its sources, and the union of their rows."""

from __future__ import annotations

import keyword
import re
from typing import Any

import pytest

from fencepost.config.source import Source
from fencepost.drafting.checks import draft_checks
from fencepost.drafting.columns import json_fields
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.draft_source import DraftSource
from fencepost.drafting.names import source_names
from fencepost.drafting.transform import DraftUnion
from fencepost.errors import SettingsError
from fencepost.kafka.cluster import Topic
from fencepost.kafka.sample import Sample

NAMES = {
    "orders": "orders",
    "shop.public.orders": "shop_public_orders",
    "Shop-Public-Orders": "shop_public_orders_2",
    "SHOP.PUBLIC.ORDERS": "shop_public_orders_3",
    "2024-orders": "topic_2024_orders",
    "__": "topic",
    "source": "source_topic",
    "class": "class_topic",
    "ümlaut": "mlaut",
    "x" * 80: "x" * 63,
    "x" * 81: f"{'x' * 61}_2",
    "x" * 82: f"{'x' * 61}_3",
}


def test_a_source_has_a_valid_name_like_its_topic() -> None:
    found = source_names(NAMES)
    assert found == NAMES
    assert len({*found.values()}) == len(NAMES)
    for name in found.values():
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name)
        assert not keyword.iskeyword(name)
        assert name != "source"


def test_a_request_names_its_topics_and_the_output_is_none_of_them() -> None:
    one, two = DraftRequest("orders", "orders"), DraftRequest("payments", "orders", more=("payments",))
    assert (one.names, one.output_topic) == ({"orders": "source"}, "orders_out")
    assert (two.names, two.output_topic) == ({"orders": "orders", "payments": "payments"}, "payments_out")
    assert two.of("payments").topics == ("payments",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"more": ("b", "a")}, "--from-topic a: given twice"),
        ({"more": ("b",), "subject": "s"}, "--subject s: a subject is of one topic, and 2 are given"),
    ],
)
def test_what_makes_no_sense_for_several_topics_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        DraftRequest("p", "a", **options).check()
    DraftRequest("p", "a", subject="s").check()


def drafted(name: str, *values: bytes | None, **source: Any) -> DraftSource:
    """The source that a draft makes of JSON values."""
    fields = json_fields(values)
    columns = {column.name: column.declared for column in fields.columns}
    found = Source(topic=f"t-{name}", columns=columns, **source)
    return DraftSource(name, Sample(Topic(f"t-{name}", "1", 1), (), (0,), (len(values),)), found, fields)


def test_sources_with_the_same_columns_are_united_row_by_row() -> None:
    """In the order of the first, with a comment where it stands first, and a name that is a word of SQL."""
    one = drafted("table", b'{"id": 1, "b c": "x"}')
    two = drafted("south", b'{"b c": "y", "id": 2}', None, tombstones="pass")
    union = DraftUnion([one, two])
    assert union.is_alike
    body = union.sql[union.sql.index("SELECT") :]
    assert body == (
        "SELECT\n"
        "  -- the source's key, which output.key names\n"
        "  _key,\n"
        "  id,\n"
        "  b_c,\n"
        "  false AS `_tombstone`,\n"
        "  _topic AS topic\n"
        "FROM `table`\n"
        "UNION ALL\n"
        "SELECT\n"
        "  _key,\n"
        "  id,\n"
        "  b_c,\n"
        "  -- a tombstone stays a tombstone\n"
        "  _tombstone,\n"
        "  _topic AS topic\n"
        "FROM south\n"
    )
    assert "t-table and t-south" in union.sql
    fields = union.fields
    assert (fields.records, fields.tombstones, fields.good) == (3, 1, 2)
    assert {column.output: column.values for column in fields.columns} == {"id": [1, 2], "b_c": ["x", "y"]}


def test_a_column_of_one_source_is_null_in_the_others_and_types_stay_apart() -> None:
    orders = drafted("orders", b'{"seen": "x", "topic": "a", "note": "n", "user_id": 1}')
    payments = drafted(
        "payments", b'{"seen": 5, "topic": "b", "user_id": 2}', b'{"seen": 6, "topic": "b", "user_id": 2}'
    )
    union = DraftUnion([orders, payments])
    assert not union.is_alike
    first, second = (
        part.replace(",\n", "\n").split("\n  ")[1:]
        for part in union.sql[union.sql.index("SELECT") :].split("UNION ALL")
    )
    assert [one for one in first if not one.startswith("--")] == [
        "_key",
        "seen AS orders_seen",
        "NULL AS payments_seen",
        "topic",
        "note",
        "user_id",
        "_topic AS topic_2\nFROM orders\n",
    ]
    assert second == [
        "_key",
        "NULL AS orders_seen",
        "seen AS payments_seen",
        "topic",
        "NULL AS note",
        "user_id",
        "_topic AS topic_2\nFROM payments\n",
    ]
    assert "\n--   FROM orders JOIN payments ON orders.user_id = payments.user_id\n" in union.sql
    checks = draft_checks(union.fields)
    assert [one["kwargs"]["column"] for one in checks if one["type"].endswith("not_be_null")] == ["topic", "user_id"]
    values = {column.output: column.values for column in union.fields.columns}
    assert (values["note"], values["payments_seen"]) == (["n", None, None], [None, 5, 6])


def test_without_a_common_column_the_join_is_by_key() -> None:
    union = DraftUnion([drafted("a", b'{"x": 1}'), drafted("b", b'{"y": 1}')])
    assert "--   FROM a JOIN b ON a._key = b._key\n" in union.sql
