"""For every type: status, counts, observed value and sample rows are what plain Python says, for small and for large batches."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from fencepost.config.pipeline import Quality
from fencepost.quality import gathering
from fencepost.quality.checks import CheckResult
from fencepost.quality.evaluation import evaluate
from fencepost.suite.catalogue import KNOWN
from fencepost.suite.declared import Declared, Suite
from integration.quality.batches import ROWS, frame
from integration.quality.cases import CASES, plain

pytestmark = pytest.mark.deep

SAMPLE = 7


@pytest.fixture(scope="module")
def answers(spark: Any) -> dict[str, list[CheckResult]]:
    """All cases, a suite of fifty at a time, evaluated as a small batch and as a large one."""
    declared = [Declared(index=i, type=c.type, kwargs=plain(c.kwargs)) for i, c in enumerate(CASES)]
    suites = [Suite.of(tuple(declared[n : n + 50])) for n in range(0, len(declared), 50)]
    batch = frame(spark).cache()
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for size, few in (("small", ROWS), ("large", ROWS - 1)):
            patch.setattr(gathering, "FEW", few)
            evaluations = [evaluate(batch, suite, Quality(sample_rows=SAMPLE), ROWS) for suite in suites]
            found[size] = [check for evaluation in evaluations for check in evaluation.checks]
    return found


def test_every_type_has_a_case() -> None:
    assert set(KNOWN) <= {case.type for case in CASES if case.status != "errored"}


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda i: f"{i}-{CASES[i].type}")
def test_the_answer_is_what_python_says(index: int, size: str, answers: dict[str, list[CheckResult]]) -> None:
    case, found = CASES[index], answers[size][index]
    note = f"{case.kwargs}\n{found}"
    assert found.status == case.status, note
    if case.unexpected is not None:
        assert found.element_count == ROWS, note
        assert found.missing_count == case.missing, note
        assert found.unexpected_count == len(case.unexpected), note
        assert found.no_value is (case.missing == ROWS)
        expected = case.unexpected[:SAMPLE] if case.status == "failed" else []
        assert [(row.partition, row.offset) for row in found.sample] == expected, note
    elif case.status != "errored" and case.observed is not ...:
        assert _close(found.observed, json.loads(json.dumps(plain(case.observed)))), note


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
