"""For every type: status, counts, observed value and sample rows are what plain Python says.

In a small batch for all cases, and for one of each type in a large one, whose rows of a sample are found in another way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.config.sections import Quality
from fencepost.quality import gathering
from fencepost.quality.checks import CheckResult
from fencepost.quality.evaluation import evaluate
from fencepost.suite.catalogue import KNOWN
from fencepost.suite.declared import DeclaredExpectation, Suite
from integration.quality.batches import ROWS, frame
from integration.quality.cases import CASES, plain

pytestmark = pytest.mark.deep

SAMPLE = 7


FIRST_OF_TYPE = sorted({case.type: index for index, case in reversed(list(enumerate(CASES)))}.values())
ASKED: dict[str, Sequence[int]] = {"small": range(len(CASES)), "large": FIRST_OF_TYPE}


@pytest.fixture(scope="module")
def answers(spark: Any) -> dict[tuple[int, str], CheckResult]:
    """By case and size of the batch; evaluated as suites of fifty."""
    batch = frame(spark).cache()
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for (size, asked), few in zip(ASKED.items(), (ROWS, ROWS - 1), strict=True):
            patch.setattr(gathering, "FEW", few)
            for some in (asked[n : n + 50] for n in range(0, len(asked), 50)):
                declared = (
                    DeclaredExpectation(index=i, type=CASES[i].type, kwargs=plain(CASES[i].kwargs)) for i in some
                )
                checks = evaluate(batch, Suite.of(tuple(declared)), Quality(sample_rows=SAMPLE), ROWS).checks
                found |= {(index, size): check for index, check in zip(some, checks, strict=True)}
    return found


def test_every_type_has_a_case() -> None:
    assert set(KNOWN) <= {case.type for case in CASES if case.status != "errored"}


@pytest.mark.parametrize(
    ("index", "size"),
    [pytest.param(i, size, id=f"{i}-{CASES[i].type}-{size}") for size, asked in ASKED.items() for i in asked],
)
def test_the_answer_is_what_python_says(index: int, size: str, answers: dict[tuple[int, str], CheckResult]) -> None:
    case, found = CASES[index], answers[index, size]
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
