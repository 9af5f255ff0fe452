"""B4: a retry of a batch whose rows have committed already, beside the first write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from benchmarks.bench import Bench
from benchmarks.cases.jobs import SIZES, size_words, write_all, write_job
from benchmarks.data import DAY, Source
from benchmarks.measure import at_most, ratios
from benchmarks.results import Result, result
from fencepost.config.pipeline import Pipeline
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch


def run(bench: Bench) -> Iterator[Result]:
    """Time of the retry by time of the first write, where all has committed."""
    for rows, size in SIZES:
        source = bench.source(rows, size)
        words, compares = size_words(source, size), "time: retry of a committed batch ÷ first write"
        whole = {"first write": partial(write_job, bench, source), "retry": partial(retry_job, bench, source)}
        rounds = bench.measure(f"B4 {words}", whole)
        case = f"retry, {words}, no fingerprint check"
        yield result("B4", case, ratios(rounds, "retry", "first write"), compares, goal=at_most(0.10))


@contextmanager
def retry_job(bench: Bench, source: Source) -> Iterator[Callable[[], None]]:
    """The write step after a driver that died when all had committed, and before the ledger said so."""
    pipeline = bench.pipeline(source.topic)
    plan_batch(pipeline, DAY)
    with crash_when_answered():
        write_batch(bench.spark, pipeline, DAY)
    yield lambda: write_all(bench, pipeline, source.rows)
    drop_retried(bench, pipeline, source, 1.1)


def drop_retried(bench: Bench, pipeline: Pipeline, source: Source, at_most: float) -> None:
    """Delete the pipeline's topics. Raises RuntimeError where the retry has written so much more than there is."""
    found = bench.offsets_in(pipeline.output.topic)
    if found >= at_most * source.rows:
        raise RuntimeError(f"the retry wrote again: {found:,} offsets for {source.rows:,} rows")
    bench.drop_pipeline(pipeline)


class Crash(Exception):
    """The driver's death."""


@contextmanager
def crash_when_answered() -> Iterator[None]:
    """The block ends where write's failpoint `write.answered` stands."""

    def reached(name: str, task: int | None = None) -> None:
        if name == "write.answered":
            raise Crash

    try:
        with patch("fencepost.steps.write.reached", reached):
            yield
    except Crash:
        return
    raise RuntimeError("write_batch did not come by its failpoint write.answered: there is no crash to retry after")
