"""Each way in which Great Expectations lets a bad batch through, and that it does not get past the gate."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.sections import Quality
from fencepost.model import Outcome
from fencepost.quality import gathering, judging
from fencepost.quality.checks import Evaluation, Status
from fencepost.quality.evaluation import evaluate
from fencepost.quality.judging import ExpectationAnswer
from fencepost.suite.catalogue import EXPRESSION
from fencepost.suite.declared import DeclaredExpectation, Severity, Suite
from integration.quality.batches import ROWS, frame, rows

V = "expect_column_values_to_"
KNOWN = DeclaredExpectation(index=0, type=f"{V}not_be_null", kwargs={"column": "id"})


def suite(*declared: tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], Severity]) -> Suite:
    return Suite.of(
        tuple(
            DeclaredExpectation(index=i, type=d[0], kwargs=d[1], severity=d[2] if len(d) == 3 else Severity.CRITICAL)
            for i, d in enumerate(declared)
        )
    )


@pytest.fixture(scope="module")
def batch(spark: Any) -> Any:
    return frame(spark).cache()


@pytest.fixture
def run(batch: Any) -> Any:
    """Evaluate a suite on the batch."""

    def evaluate_it(*declared: Any, rows: int = ROWS, **quality: Any) -> Evaluation:
        return evaluate(batch, suite(*declared), Quality(**quality), rows)

    return evaluate_it


def test_an_unknown_type_is_undetermined_and_named(run: Any) -> None:
    """Great Expectations drops it and reports success on the rest."""
    said = run((f"{V}not_be_null", {"column": "id"}), (f"{V}be_in_sett", {"column": "half", "value_set": [1]}))
    assert said.outcome is Outcome.UNDETERMINED
    assert said.checks[1].status is Status.ERRORED
    assert f"did you mean {V}be_in_set" in said.reason


def test_a_check_that_raises_is_errored_and_not_failed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning that raised would be reported as a failed warning, and the batch would pass. It takes no other with it."""
    import great_expectations.expectations.core as core

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no answer")

    monkeypatch.setattr(core.ExpectColumnMinToBeBetween, "_validate", broken)
    low, high = (
        (f"expect_column_{x}_to_be_between", {"column": "half", "min_value": -5, "max_value": 5})
        for x in ("min", "max")
    )
    said = run((*low, Severity.WARNING), high)
    assert said.outcome is Outcome.UNDETERMINED
    assert [c.status for c in said.checks] == [Status.ERRORED, Status.PASSED]
    assert "Great Expectations raised RuntimeError" in said.reason


@pytest.mark.parametrize(
    "bad",
    [
        (EXPRESSION, {"expression": "CAST(code AS INT) > 0"}),
        (f"{V}not_be_null", {"column": "id", "row_condition": "CAST(code AS INT) > 0"}),
    ],
)
def test_sql_that_fails_on_a_value_is_errored_and_takes_no_other_with_it(run: Any, bad: Any) -> None:
    """All expectations are gathered by one aggregation, and the one that raised is to be named, not its neighbours."""
    said = run(bad, (f"{V}not_be_null", {"column": "id"}), (f"{V}be_null", {"column": "id"}))
    assert said.outcome is Outcome.UNDETERMINED
    assert [c.status for c in said.checks] == [Status.ERRORED, Status.PASSED, Status.FAILED]
    assert said.checks[0].error.startswith("Spark raised NumberFormatException; the report has its message\n")


@pytest.mark.parametrize("regex", ["(?i)(", r"\p{Nowhere}", "(?<a>x)(?<a>y)"])
def test_a_regex_that_java_does_not_take_is_errored_and_starts_no_job(run: Any, regex: str) -> None:
    said = run((f"{V}match_regex", {"column": "code", "regex": regex}))
    assert said.checks[0].status is Status.ERRORED
    assert said.checks[0].error.startswith(f"regex {regex!r} is not valid: ")
    assert not said.read


def test_wrong_arguments_are_errored(run: Any) -> None:
    said = run((f"{V}be_in_set", {"column": "half", "value_set": [1], "mostly": 7}))
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
        ({0: ExpectationAnswer(success=None, element_count=ROWS, judged_count=ROWS)}, "neither True nor False"),
    ],
)
def test_no_result_and_no_answer_are_undetermined(
    batch: Any, monkeypatch: pytest.MonkeyPatch, found: dict[int, ExpectationAnswer], says: str
) -> None:
    monkeypatch.setattr(judging, "judge_records", lambda *_: found)
    said = evaluate(batch, Suite.of((KNOWN,)), Quality(), ROWS)
    assert said.outcome is Outcome.UNDETERMINED
    assert says in said.reason


def test_only_plain_booleans_are_answers() -> None:
    import numpy as np

    assert judging.boolean(np.True_) is True
    assert judging.boolean(False) is False
    assert [judging.boolean(v) for v in (None, 1, "true", np.nan)] == [None] * 4


def test_a_success_that_its_own_counts_contradict_is_errored(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected count of None makes Great Expectations say True."""
    import great_expectations.expectations.expectation as module

    monkeypatch.setattr(module, "_mostly_success", lambda *_: True)
    said = evaluate(batch, suite((f"{V}be_in_set", {"column": "half", "value_set": [1]})), Quality(), ROWS)
    assert said.outcome is Outcome.UNDETERMINED
    assert "the counts" in said.reason


def test_it_evaluates_without_files_and_without_network(
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


@pytest.mark.parametrize("few", [ROWS, ROWS - 1])
def test_a_batch_that_passes_is_read_once_and_one_that_fails_twice(
    spark: Any, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Whatever the number of expectations. Samples, and what else has no fixed size, come from the second read."""
    monkeypatch.setattr(gathering, "FEW", few)
    read = spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for one in batches:
            read.add(one.num_rows)
            yield one

    before = set(spark.sparkContext._jsc.getPersistentRDDs())
    source = frame(spark)
    counted = source.mapInArrow(count, source.schema)
    holds = [
        (f"{V}not_be_null", {"column": "id"}),
        (f"{V}be_unique", {"column": "id"}),
        ("expect_column_median_to_be_between", {"column": "half", "min_value": -5}),
        ("expect_column_to_exist", {"column": "half"}),
    ]
    assert evaluate(counted, suite(*holds), Quality(), ROWS).outcome is Outcome.PASSED
    assert read.value == ROWS
    failing = [(f"{V}be_null", {"column": c}) for c in ("id", "half", "name", "day")]
    unique = (f"{V}be_unique", {"column": "half"})
    conditional = (f"{V}be_null", {"column": "code", "row_condition": "id < 9"})
    members = ("expect_column_distinct_values_to_be_in_set", {"column": "code", "value_set": ["x"]})
    common = ("expect_column_most_common_value_to_be_in_set", {"column": "code", "value_set": ["x"]})
    said = evaluate(counted, suite(*holds, *failing, unique, conditional, members, common), Quality(), ROWS)
    assert said.outcome is Outcome.REJECTED
    assert all(check.sample for check in said.failed(Severity.CRITICAL) if check.unexpected_count is not None)
    assert read.value == ROWS * 3
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= before


def test_records_that_changed_between_the_two_reads_are_not_judged(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import functions as F

    from fencepost.rows import fingerprint

    batch = frame(spark).withColumn("_hash", F.xxhash64("id")).cache()
    promised = fingerprint.count_and_sum(batch, "_hash")
    monkeypatch.setattr(fingerprint, "count_and_sum", lambda *_: (ROWS - 1, 7))
    holds, fails = (f"{V}not_be_null", {"column": "id"}), (f"{V}be_null", {"column": "id"})
    assert evaluate(batch, suite(holds), Quality(), ROWS, fingerprint=promised[1]).outcome is Outcome.PASSED
    with pytest.raises(gathering.NotAsPromised, match=f"{ROWS - 1} records"):
        evaluate(batch, suite(fails), Quality(), ROWS, fingerprint=promised[1])


def test_what_is_kept_of_a_large_batch_is_on_disk(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, a batch larger than the heap would end the JVM."""
    kept: list[tuple[int, int]] = []

    def caches() -> dict[int, tuple[int, int]]:
        """Bytes in memory and on disk of everything that Spark keeps."""
        infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
        return {info.id(): (info.memSize(), info.diskSize()) for info in infos}

    of_others, sample = set(caches()), gathering.sample_row

    def watching(*of: Any) -> Any:
        kept.extend(size for number, size in caches().items() if number not in of_others)
        return sample(*of)

    monkeypatch.setattr(gathering, "sample_row", watching)
    evaluate(frame(spark), suite((f"{V}be_null", {"column": "id"})), Quality(sample_rows=1), ROWS)
    ((in_memory, on_disk),) = kept
    assert in_memory == 0
    assert on_disk > 0


def test_the_sessions_settings_are_as_before(spark: Any, run: Any) -> None:
    """A small batch is judged without generated code, and nothing after it is."""
    before = {name: spark.conf.get(name) for name in gathering.INTERPRETED}
    for known in ({"column": "id"}, {"column": "id", "row_condition": "CAST(code AS INT) > 0"}):
        run((f"{V}not_be_null", known))
        assert {name: spark.conf.get(name) for name in gathering.INTERPRETED} == before


def test_samples_are_capped_and_the_lowest_offsets(run: Any) -> None:
    said = run((f"{V}be_null", {"column": "id"}), sample_rows=5)
    coordinates = sorted((r[-3], r[-2]) for r in rows())[:5]
    assert [(s.partition, s.offset) for s in said.checks[0].sample] == coordinates
    assert run((f"{V}be_null", {"column": "id"}), sample_rows=0).checks[0].sample == ()
