"""For every proven type: the same status, counts, observed value and sample rows from pandas, Spark and Python."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from fencepost.config.pipeline import Quality
from fencepost.quality import engines
from fencepost.quality.catalogue import PROVEN
from fencepost.quality.checks import Evaluation
from fencepost.quality.evaluation import evaluate
from fencepost.quality.suite import Declared, Suite
from integration.quality.batches import ROWS, frame
from integration.quality.cases import CASES, plain

pytestmark = pytest.mark.deep

SAMPLE = 7


@pytest.fixture(scope="module")
def answers(spark: Any) -> dict[str, Evaluation]:
    """All cases as one suite, evaluated once by each engine."""
    suite = Suite.of(tuple(Declared(index=i, type=c.type, kwargs=plain(c.kwargs)) for i, c in enumerate(CASES)))
    batch = frame(spark)
    # Both are what `auto` chooses, by size alone: nothing else differs between the two.
    sizes = {"pandas": ROWS, "spark": ROWS - 1}
    return {
        engine: evaluate(batch, suite, Quality(pandas_max_rows=size, sample_rows=SAMPLE), ROWS)
        for engine, size in sizes.items()
    }


def test_each_engine_ran_where_it_was_meant_to(answers: dict[str, Evaluation]) -> None:
    assert {name: evaluation.engine for name, evaluation in answers.items()} == {"pandas": "pandas", "spark": "spark"}


def test_a_batch_of_many_bytes_is_judged_on_spark_and_kept_on_disk(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and wide records would go through the driver's heap to pandas; and cached in memory they would fill it."""
    kept: list[tuple[int, int]] = []
    find = engines.find_on_spark

    def caches() -> dict[int, tuple[int, int]]:
        """Bytes in memory and on disk of everything that Spark keeps."""
        infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
        return {info.id(): (info.memSize(), info.diskSize()) for info in infos}

    of_others = set(caches())

    def watching(ready: Any, frames: Any) -> Any:
        kept.extend(size for number, size in caches().items() if number not in of_others)
        return find(ready, frames)

    monkeypatch.setattr(engines, "find_on_spark", watching)
    suite = Suite.of((Declared(index=0, type="expect_column_values_to_not_be_null", kwargs={"column": "id"}),))
    quality = Quality(pandas_max_megabytes=1)
    assert evaluate(frame(spark), suite, quality, ROWS, size=1_000_000).engine == "pandas"
    assert evaluate(frame(spark), suite, quality, ROWS, size=1_000_001).engine == "spark"
    ((in_memory, on_disk),) = kept
    assert in_memory == 0
    assert on_disk > 0


def test_every_proven_type_has_a_case() -> None:
    assert set(PROVEN) <= {case.type for case in CASES if case.status != "errored"}


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda i: f"{i}-{CASES[i].type}")
def test_both_engines_say_what_python_says(index: int, answers: dict[str, Evaluation]) -> None:
    case = CASES[index]
    pandas, spark = (answers[engine].checks[index] for engine in ("pandas", "spark"))
    note = f"{case.kwargs}\npandas {pandas}\nspark  {spark}"
    assert pandas == spark, note
    assert pandas.status == case.status, note
    if case.unexpected is not None:
        assert pandas.element_count == ROWS, note
        assert pandas.missing_count == case.missing, note
        assert pandas.unexpected_count == len(case.unexpected), note
        assert pandas.no_value is (case.missing == ROWS)
        expected = case.unexpected[:SAMPLE] if case.status == "failed" else []
        assert [(row.partition, row.offset) for row in pandas.sample] == expected, note
    elif case.status != "errored" and case.observed is not ...:
        assert _close(pandas.observed, json.loads(json.dumps(plain(case.observed)))), note


def _close(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_close(found[k], v) for k, v in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_close, found, expected))
    if isinstance(expected, float) and isinstance(found, int | float):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(expected, str) and "T" in expected and isinstance(found, str):
        return found.replace("Z", "+00:00") == expected.replace("Z", "+00:00")
    return bool(found == expected)
