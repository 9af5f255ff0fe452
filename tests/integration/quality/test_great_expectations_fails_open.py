"""Each way in which Great Expectations lets a bad batch through, and that it does not get past the gate."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.pipeline import Quality
from fencepost.model import Outcome
from fencepost.quality import engines
from fencepost.quality.checks import Evaluation, Status
from fencepost.quality.engines import Found
from fencepost.quality.evaluation import evaluate
from fencepost.quality.suite import Declared, Severity, Suite
from integration.quality.batches import ROWS, frame, rows

V = "expect_column_values_to_"
KNOWN = Declared(index=0, type=f"{V}not_be_null", kwargs={"column": "id"})


def suite(*declared: tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], Severity]) -> Suite:
    return Suite.of(
        tuple(
            Declared(index=i, type=d[0], kwargs=d[1], severity=d[2] if len(d) == 3 else Severity.CRITICAL)
            for i, d in enumerate(declared)
        )
    )


@pytest.fixture(scope="module")
def batch(spark: Any) -> Any:
    return frame(spark).cache()


@pytest.fixture(params=["pandas", "spark"])
def run(request: pytest.FixtureRequest, batch: Any) -> Any:
    """Evaluate a suite on the batch with one engine, named by the pipeline."""

    def evaluate_it(*declared: Any, rows: int = ROWS, **quality: Any) -> Evaluation:
        settings = Quality(**{"engine": request.param, **quality})
        return evaluate(batch, suite(*declared), settings, rows)

    return evaluate_it


def test_an_unknown_type_is_undetermined_and_named(run: Any) -> None:
    """Great Expectations drops it and reports success on the rest. Both under `auto` and under a named engine."""
    for settings in ({}, {"engine": "auto"}):
        said = run(
            (f"{V}not_be_null", {"column": "id"}), (f"{V}be_in_sett", {"column": "half", "value_set": [1]}), **settings
        )
        assert said.outcome is Outcome.UNDETERMINED
        assert said.checks[1].status is Status.ERRORED
        assert f"did you mean {V}be_in_set" in said.reason


def test_a_check_that_raises_is_errored_and_not_failed(run: Any) -> None:
    """A warning that raised would be reported as a failed warning, and the batch would pass."""
    bad = ("expect_column_value_z_scores_to_be_less_than", {"column": "name", "threshold": 3, "double_sided": True})
    said = run((f"{V}not_be_null", {"column": "id"}), (*bad, Severity.WARNING))
    assert said.outcome is Outcome.UNDETERMINED
    assert [c.status for c in said.checks] == [Status.PASSED, Status.ERRORED]
    assert "Great Expectations raised" in said.reason


def test_one_check_that_raises_takes_no_other_with_it(batch: Any) -> None:
    """On Spark all aggregates run as one job, and the one that raised is to be named, not its neighbours."""
    pairs = {"column_A": "half", "column_B": "id", "value_pairs_set": [["no number", 1]]}
    bad = ("expect_column_pair_values_to_be_in_set", pairs)
    good = [
        (f"expect_column_{x}_to_be_between", {"column": "half", "min_value": -5, "max_value": 5})
        for x in ("min", "max")
    ]
    said = evaluate(batch, suite(bad, *good), Quality(engine="spark"), ROWS)
    assert [c.status for c in said.checks] == [Status.ERRORED, Status.PASSED, Status.PASSED]


def test_wrong_arguments_are_errored(run: Any) -> None:
    said = run((f"{V}be_in_set", {"column": "half", "values": [1]}))
    assert said.outcome is Outcome.UNDETERMINED


def test_failed_warnings_pass_and_failed_criticals_do_not(run: Any) -> None:
    """Great Expectations' own success is False for both."""
    bad = (f"{V}not_be_null", {"column": "half"})
    assert run((*bad, Severity.WARNING)).outcome is Outcome.PASSED
    assert run((*bad, Severity.CRITICAL)).outcome is Outcome.REJECTED


def test_mostly_is_a_share_of_the_values_that_are_not_null(run: Any) -> None:
    known = [r[1] for r in rows() if r[1] is not None]
    share = sum(v > 0 for v in known) / len(known)
    for mostly, expected in ((share, Status.PASSED), (share + 1e-6, Status.FAILED)):
        said = run((f"{V}be_between", {"column": "half", "min_value": 0, "strict_min": True, "mostly": mostly}))
        assert said.checks[0].status is expected
        assert said.checks[0].missing_count == ROWS - len(known)


def test_a_column_of_nulls_passes_with_a_flag(run: Any) -> None:
    said = run((f"{V}be_in_set", {"column": "nothing", "value_set": ["x"]}))
    assert said.outcome is Outcome.PASSED
    assert said.checks[0].no_value
    assert "Found no value to judge" in said.reason


def test_a_number_drawn_from_no_value_fails(run: Any) -> None:
    said = run(("expect_column_sum_to_be_between", {"column": "no_number", "min_value": 0}))
    assert said.outcome is Outcome.REJECTED
    assert said.checks[0].no_value


def test_looking_at_other_records_than_the_receipts_promise_is_undetermined(run: Any) -> None:
    said = run((f"{V}not_be_null", {"column": "id"}), rows=ROWS + 1)
    assert said.outcome is Outcome.UNDETERMINED
    assert f"looked at {ROWS} records; the batch has {ROWS + 1}" in said.reason


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({}, "gave no result"),
        ({0: Found(success=None, element_count=ROWS, judged_count=ROWS)}, "neither True nor False"),
    ],
)
def test_no_result_and_no_answer_are_undetermined(
    batch: Any, monkeypatch: pytest.MonkeyPatch, found: dict[int, Found], says: str
) -> None:
    monkeypatch.setattr(engines, "find_on_pandas", lambda *_: found)
    said = evaluate(batch, Suite.of((KNOWN,)), Quality(), ROWS)
    assert said.outcome is Outcome.UNDETERMINED
    assert says in said.reason


def test_only_plain_booleans_are_answers() -> None:
    import numpy as np

    assert engines._boolean(np.True_) is True
    assert engines._boolean(False) is False
    assert [engines._boolean(v) for v in (None, 1, "true", np.nan)] == [None] * 4


def test_a_success_that_its_own_counts_contradict_is_errored(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected count of None makes Great Expectations say True."""
    import great_expectations.expectations.expectation as module

    monkeypatch.setattr(module, "_mostly_success", lambda *_: True)
    said = evaluate(batch, suite((f"{V}be_in_set", {"column": "half", "value_set": [1]})), Quality(), ROWS)
    assert said.outcome is Outcome.UNDETERMINED
    assert "its counts" in said.reason


def test_pandas_evaluates_without_files_and_without_network(
    batch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outside: list[Any] = []
    real = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in {"127.0.0.1", "localhost", "::1"}:
            outside.append(address)
        real(self, address)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", connect)
    said = evaluate(batch, suite((f"{V}match_regex", {"column": "name", "regex": "(a)(b)"})), Quality(), ROWS)
    assert said.checks[0].status is Status.FAILED
    assert outside == []
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("engine", ["pandas", "spark"])
def test_the_batch_is_read_once_whatever_the_number_of_expectations(spark: Any, engine: str) -> None:
    """Samples of failed checks included: they come from what was read, not from Kafka again."""
    read = spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for one in batches:
            read.add(one.num_rows)
            yield one

    before = set(spark.sparkContext._jsc.getPersistentRDDs())
    source = frame(spark)
    counted = source.mapInArrow(count, source.schema)
    failing = [(f"{V}be_null", {"column": c}) for c in ("id", "half", "name", "day")]
    unique = (f"{V}be_unique", {"column": "half"})
    schema = ("expect_column_to_exist", {"column": "half"})
    conditional = (f"{V}be_null", {"column": "code", "row_condition": "id < 9"})
    said = evaluate(counted, suite(*failing, unique, schema, conditional), Quality(engine=engine), ROWS)
    assert said.outcome is Outcome.REJECTED
    assert all(check.sample for check in said.failed(Severity.CRITICAL))
    assert read.value == ROWS
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= before


def test_samples_are_capped_and_the_lowest_offsets(run: Any) -> None:
    said = run((f"{V}be_null", {"column": "id"}), sample_rows=5)
    coordinates = sorted((r[-3], r[-2]) for r in rows())[:5]
    assert [(s.partition, s.offset) for s in said.checks[0].sample] == coordinates
    assert run((f"{V}be_null", {"column": "id"}), sample_rows=0).checks[0].sample == ()
