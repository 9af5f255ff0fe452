"""The pages show each of several sources by its topic, and a pipeline with one source as before."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.config.loading import load_pipeline
from fencepost.model import MALFORMED, Batch, State, TaskBlock, TaskKind, by_partition
from fencepost.pages.ledgers import Ledgers
from fencepost.pages.trend import Lag, lag_now, topic_lags
from makers import planned

from .conftest import SETTINGS, FakeLedgers, Get
from .ledgers import batch, hour, ledger, quarantining, reading_payments, replaying, taken

SOURCES = """
sources:
  orders: {topic: orders-in, format: bytes}
  payments: {topic: payments, format: bytes}
"""
COUNTS: dict[str, Any] = {"malformed": 3, "tombstones": 2, "excluded": {"truncations": 1}}


@pytest.fixture
def joined(folders: Path, ledgers: FakeLedgers, monkeypatch: pytest.MonkeyPatch) -> FakeLedgers:
    """Pipeline `orders` reads two topics, whose partitions have the same numbers."""
    file = folders / "orders" / "pipeline.yaml"
    (one,) = [line for line in SETTINGS.splitlines() if line.startswith("source:")]
    file.write_text(SETTINGS.format(description="both").replace(one.format(), SOURCES.strip()))
    (folders / "orders" / "transform.sql").write_text("SELECT value FROM orders UNION ALL SELECT value FROM payments")
    ledgers.content["orders"] = [reading_payments(batch(0), **COUNTS)]
    ends = {**by_partition("orders-in", [100, 100, 100, 150]), **by_partition("payments", [37, 10])}
    monkeypatch.setattr(ledgers, "source_ends", lambda _: ends)
    return ledgers


def cells(text: str) -> list[list[str]]:
    """The rows of the table of sources, as a person reads them."""
    (table,) = re.findall(r'<table class="sources">(.*?)</table>', text, re.DOTALL)
    found = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    ]
    return [[" ".join(re.sub(r"<[^>]*>", "", cell).split()) for cell in row] for row in found]


def test_the_overview_names_each_topic_and_how_far_behind_it_is(get: Get, joined: FakeLedgers) -> None:
    text = get("/").text
    assert "<code>orders-in</code>, <code>payments</code> → <code>orders-out</code>" in text
    assert '<dd>57<span class="small soft block">orders-in 50, payments 7</span></dd>' in text


def test_a_source_that_no_batch_has_read_yet_has_no_lag(get: Get, joined: FakeLedgers) -> None:
    joined.content["orders"] = [batch(0)]
    assert '<dd>50<span class="small soft block">orders-in 50, payments not read yet</span></dd>' in get("/").text


def test_a_source_topic_that_is_missing_is_named(
    get: Get, joined: FakeLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined, "source_ends", lambda _: by_partition("orders-in", [100] * 4))
    assert "source topic payments missing" in get("/pipelines/orders").text
    monkeypatch.setattr(joined, "source_ends", lambda _: {})
    assert "source topics orders-in, payments missing" in get("/pipelines/orders").text


def test_one_source_looks_as_before(get: Get, ledgers: FakeLedgers, monkeypatch: pytest.MonkeyPatch) -> None:
    text = get("/").text
    assert "<code>orders-in</code> → <code>orders-out</code>" in text
    assert re.search(r"<dt>Frontier lag in records</dt><dd[^>]*>[\d,]+</dd>", text)
    shown = get(f"/pipelines/orders/{hour(3)}").text
    assert "<div><dt>Source</dt><dd>orders-in</dd></div>" in shown
    assert "<h3>Sources</h3>" not in shown
    assert '<th>Topic</th><th class="number">Partition</th>' not in shown
    monkeypatch.setattr(ledgers, "source_ends", lambda _: {})
    assert '<span class="soft">source topic missing</span>' in get("/").text


def test_a_batch_shows_each_source_with_its_offsets_and_counts(get: Get, joined: FakeLedgers) -> None:
    text = get(f"/pipelines/orders/{hour(0)}").text
    assert cells(text) == [
        ["Topic", "Offsets", "Rows in", "Malformed", "Tombstones, dropped", "Excluded"],
        ["orders-in", "400", "400", "0", "0", ""],
        ["payments", "40", "40", "3", "2", "1 truncation"],
    ]
    ranges = re.findall(r'<tr><td>([\w-]+)</td><td class="number"><span title="[^"]*">(\d)</span></td>', text)
    assert ranges == [*(("orders-in", str(p)) for p in range(4)), ("payments", "0"), ("payments", "1")]
    assert "<div><dt>Source</dt><dd>orders-in, payments</dd></div>" in text


def test_a_batch_that_is_not_written_or_not_counted_says_so_of_its_sources(get: Get, joined: FakeLedgers) -> None:
    joined.content["orders"] = [reading_payments(batch(0, State.PLANNED))]
    assert cells(get(f"/pipelines/orders/{hour(0)}").text)[1:] == [
        ["orders-in", "400", "not written yet"],
        ["payments", "40", "not written yet"],
    ]
    joined.content["orders"] = [reading_payments(batch(0), rows_in=None)]
    assert cells(get(f"/pipelines/orders/{hour(0)}").text)[2] == ["payments", "40", "not counted", "0", "0", ""]


def test_an_addition_shows_the_replayed_records_by_their_source(get: Get, joined: FakeLedgers) -> None:
    base = reading_payments(quarantining(batch(0), 0, no_nulls=15))
    addition = replaying(base, 2, rows=8, left=7)
    assert addition.written is not None
    orders = next(iter(addition.written.sources.values())).model_copy(update={"rows_in": 11, "malformed": 5})
    payments = orders.model_copy(update={"rows_in": 4, "malformed": 2})
    written = addition.written.model_copy(update={"sources": {"orders-in": orders, "payments": payments}})
    joined.content["orders"] = [base, addition.model_copy(update={"written": written})]
    text = get(f"/pipelines/orders/{hour(0)}").text
    (first, _) = text.split("<h2>Revision 1")
    assert cells(first) == [
        ["Topic", "From quarantine", "Malformed", "Tombstones, dropped", "Excluded"],
        ["orders-in", "11", "5", "0", ""],
        ["payments", "4", "2", "0", ""],
    ]


def dropping(made: Batch, *kept: str) -> Batch:
    """The batch whose plan sends the malformed records of these topics to quarantine, and drops others."""
    blocks = [TaskBlock(kind=TaskKind.MALFORMED, topic=topic, partitions=2) for topic in kept]
    return planned(made, tasks=(*made.plan.tasks, *blocks))


def test_malformed_records_that_one_source_drops_are_shown_although_another_quarantines_its_own(
    get: Get, joined: FakeLedgers
) -> None:
    both = reading_payments(batch(0), malformed=3)
    joined.content["orders"] = [dropping(both, "orders-in")]
    assert '<span class="flag">3 malformed</span>' in get("/pipelines/orders").text
    assert '<div><dt>Malformed, dropped</dt><dd class="bad">3</dd></div>' in get(f"/pipelines/orders/{hour(0)}").text
    joined.content["orders"] = [dropping(both, "orders-in", "payments")]
    assert '<span class="flag">3 malformed</span>' not in get("/pipelines/orders").text
    assert f"{MALFORMED.capitalize()}, dropped" not in get(f"/pipelines/orders/{hour(0)}").text


def test_the_lag_now_is_by_topic_and_in_total() -> None:
    schedule, snapshot = SimpleNamespace(), taken([reading_payments(batch(0))])
    ends = {**by_partition("orders-in", [100, 100, 100, 150]), **by_partition("payments", [37, 10, 4])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fencepost.pages.trend.newest_due", lambda *_: hour(2).end)
        found = lag_now(snapshot, schedule, ends, hour(3).end)  # type: ignore[arg-type]
    assert found == Lag(61, 7200.0)
    assert topic_lags(snapshot, ends) == {"orders-in": 50, "payments": 11}, "a new partition counts from offset 0"


def test_kafka_is_asked_about_every_source_and_a_missing_topic_has_no_offsets(
    joined: FakeLedgers, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"orders-in": ([9, 4], [2, 0]), "payments": ([7], [5])}
    cluster = SimpleNamespace(
        find=lambda topic: topic if topic in there else None,
        high_watermarks=lambda topic: there[topic][0],
        earliest=lambda topic: there[topic][1],
    )
    monkeypatch.setattr("fencepost.pages.ledgers.Cluster", lambda *_: cluster)
    pipeline, ledgers = load_pipeline(folders / "orders"), Ledgers()
    assert ledgers.source_ends(pipeline) == {("orders-in", 0): 9, ("orders-in", 1): 4, ("payments", 0): 7}
    assert ledgers.source_begins(pipeline) == {("orders-in", 0): 2, ("orders-in", 1): 0, ("payments", 0): 5}
    del there["payments"]
    assert ledgers.source_ends(pipeline) == {("orders-in", 0): 9, ("orders-in", 1): 4}


def test_a_list_of_intervals_counts_all_sources_and_names_them(get: Get, joined: FakeLedgers) -> None:
    joined.content["orders"] = [*ledger(0), reading_payments(batch(0))]
    text = get("/pipelines/orders").text
    assert 'title="in 6 partitions of orders-in, payments">440</span>' in text
