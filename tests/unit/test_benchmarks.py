"""The benchmarks' pure parts: order of sides, statistics, what is kept and merged, the chart. No Kafka, no Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import fastavro
import pyarrow as pa
import pytest

from benchmarks.chart import chart
from benchmarks.data import ORDER, arrow_batches, avro_orders, orders, texts
from benchmarks.measure import Goal, Side, at_least, at_most, fastest, in_turn, ratios, rounds_of, spread_of
from benchmarks.results import Result, load, merged, result, save, table, without


def test_two_sides_take_turns_at_being_first() -> None:
    first = Counter(in_turn(["a", "b"], number)[0] for number in range(8))
    assert first == {"a": 4, "b": 4}
    assert in_turn(["a", "b"], 0) == ["a", "b"]
    assert in_turn(["a", "b"], 1) == ["b", "a"]


def test_three_sides_run_in_all_orders_before_one_comes_again() -> None:
    assert len({tuple(in_turn(["a", "b", "c"], number)) for number in range(6)}) == 6


def test_a_round_times_every_side_and_the_warm_up_does_not_count() -> None:
    happened: list[str] = []

    def side(name: str) -> Side:
        @contextmanager
        def prepared() -> Iterator[Callable[[], object]]:
            happened.append(f"prepare {name}")
            yield lambda: happened.append(f"run {name}")
            happened.append(f"clean {name}")

        return prepared

    told: list[tuple[str, str]] = []
    sides = {"a": side("a"), "b": side("b")}
    rounds = list(
        rounds_of(sides, 2, before=lambda: happened.append("settle"), told=lambda t, s, _: told.append((t, s)))
    )
    assert happened[:4] == ["prepare a", "settle", "run a", "clean a"]
    assert [set(r) for r in rounds] == [{"a", "b"}, {"a", "b"}]
    assert [t for t, _ in told] == ["warm-up"] * 2 + ["round 1/2"] * 2 + ["round 2/2"] * 2
    assert [s for _, s in told] == ["a", "b", "a", "b", "b", "a"]


def test_a_ratio_is_taken_within_its_round() -> None:
    assert ratios([{"a": 2.0, "b": 1.0}, {"a": 3.0, "b": 6.0}], "a", "b") == [2.0, 0.5]


def test_the_best_of_several_runs_is_taken_side_by_side() -> None:
    rounds = [
        {"a": 3.0, "b": 1.0},
        {"a": 2.0, "b": 4.0},
        {"a": 9.0, "b": 9.0},
        {"a": 8.0, "b": 8.0},
        {"a": 0.0, "b": 0.0},
    ]
    assert fastest(rounds, 2) == [{"a": 2.0, "b": 1.0}, {"a": 8.0, "b": 8.0}]
    assert fastest(rounds, 1) == rounds


def test_the_figure_is_the_median_and_the_spread_the_range() -> None:
    assert spread_of([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert spread_of([1.0, 2.0]) == (1.5, 1.0, 2.0)
    with pytest.raises(ValueError, match="no round"):
        spread_of([])


def test_goals_have_two_ways_and_survive_being_written() -> None:
    assert at_least(1.25).reached_by(1.25)
    assert not at_least(1.25).reached_by(1.249)
    assert at_most(0.5).reached_by(0.5)
    assert not at_most(0.5).reached_by(0.51)
    assert Goal.parse(str(at_least(0.97))) == at_least(0.97)
    assert Goal.parse(str(at_most(400))) == at_most(400)
    assert at_most(0.5).score(0.25) == at_least(1.0).score(2.0) == 2.0
    with pytest.raises(ValueError, match="not a goal"):
        Goal.parse("fast")


def made(id_: str, case: str, *each: float, goal: Goal | None = None) -> Result:
    return result(id_, case, each, "ours ÷ theirs", goal=goal)


def test_a_case_that_ran_again_replaces_its_own_figures_only(tmp_path: Path) -> None:
    file = tmp_path / "results" / "latest.json"
    save([made("B1", "small", 1.0), made("B1", "large", 2.0), made("B3", "scan", 1.0, 3.0, 2.0)], file)
    again = [made("B1", "small", 1.5), made("B2", "new", 1.0)]
    save(merged(load(file), again), file)
    assert [(r.id, r.case, r.ratio) for r in load(file)] == [
        ("B1", "small", 1.5),
        ("B1", "large", 2.0),
        ("B2", "new", 1.0),
        ("B3", "scan", 2.0),
    ]
    assert [r.id for r in without(load(file), ["B1"])] == ["B2", "B3"]


def test_what_is_kept_is_a_list_with_ratio_spread_and_rounds(tmp_path: Path) -> None:
    file = tmp_path / "latest.json"
    kept = made("B1", "case", 1.2, 1.4, 1.3, goal=at_least(1.25))
    save([kept], file)
    (entry,) = json.loads(file.read_text(encoding="utf-8"))
    wanted = {"id": "B1", "case": "case", "ratio": 1.3, "spread": [1.2, 1.4], "rounds": 3, "goal": "≥ 1.25"}
    assert {name: entry[name] for name in wanted} == wanted
    assert load(file) == [kept]
    assert kept.reached


def test_nothing_kept_yet_is_no_error(tmp_path: Path) -> None:
    assert load(tmp_path / "latest.json") == []


@pytest.mark.parametrize("rows", [0, 1, 12])
def test_the_chart_is_well_formed_with_any_number_of_rows(rows: int) -> None:
    results = [made("B1", f"<case & {n}>", 0.0, 1.0, 99.0, goal=at_least(1.25)) for n in range(rows)]
    root = ElementTree.fromstring(chart(results, "Speed <&>"))  # noqa: S314 - our own text
    texts_shown = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Speed <&>" in texts_shown
    assert [t for t in texts_shown if t and t.startswith("<case")] == [f"<case & {n}>" for n in range(rows)]


def test_table_and_chart_show_reached_missed_and_no_goal() -> None:
    results = [
        made("B1", "reached", 1.3, goal=at_least(1.25)),
        made("B4", "missed", 0.2, goal=at_most(0.1)),
        made("B5", "[none]", 1.0),
    ]
    assert [r.reached for r in results] == [True, False, None]
    assert table(results, "t").row_count == 3
    assert "no goal" in chart(results, "t")


def test_a_figure_with_a_unit_is_shown_in_it() -> None:
    memory = result("B5", "memory", [1234.56, 1200.0, 1300.0], "resident", unit="MB")
    assert (memory.middle, memory.range) == ("1,234.6 MB", "1,200.0 .. 1,300.0")


@pytest.mark.parametrize("size", [100, 1000])
def test_values_have_their_size_and_a_compressor_about_halves_them(size: int) -> None:
    blocks = list(texts(12_000, size))
    assert [len(keys) for keys, _ in blocks] == [10_000, 2_000]
    values = blocks[0][1]
    assert {len(value) for value in values} == {size}
    assert all(set(json.loads(value)) for value in values[:100])
    whole = b"".join(values)
    assert 0.4 < len(pa.compress(whole, codec="lz4", asbytes=True)) / len(whole) < 0.75
    assert blocks == list(texts(12_000, size))


def test_orders_are_json_with_ten_fields() -> None:
    ((keys, values),) = orders(1000)
    assert len(keys) == len(set(keys)) == 1000
    assert {len(json.loads(value)) for value in values} == {10}


def test_orders_in_avro_are_those_in_json() -> None:
    ((keys, values),), ((same, texts_),) = avro_orders(1000, 7), orders(1000)
    assert keys == same
    for value, text in zip(values, texts_, strict=True):
        assert value[:5] == b"\0\0\0\0\x07"
        found = fastavro.schemaless_reader(
            BytesIO(value[5:]), fastavro.parse_schema(json.loads(json.dumps(ORDER))), None
        )
        assert isinstance(found, dict)
        found["created_at"] = f"{found['created_at']:%Y-%m-%dT%H:%M:%SZ}"
        assert found == json.loads(text)


def test_arrow_batches_hold_all_rows() -> None:
    batches = arrow_batches(25_000, 100)
    assert [b.num_rows for b in batches] == [10_000, 10_000, 5_000]
    assert batches[0].schema.names == ["key", "value", "hash"]


def test_cases_stand_in_the_order_of_their_numbers() -> None:
    kept = [result(name, "case", [1.0], "time") for name in ("B10", "B2")]
    assert [line.id for line in merged(kept, [result("B9", "case", [1.0], "time")])] == ["B2", "B9", "B10"]
