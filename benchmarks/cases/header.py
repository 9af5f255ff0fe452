"""B6: the price of the batch's header on every record, in the whole write job and in the writer alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from benchmarks.bench import Bench
from benchmarks.cases.jobs import SIZES, size_words, write_job
from benchmarks.cases.writers import BEST_OF, writer
from benchmarks.data import Source, arrow_batches
from benchmarks.measure import at_least, ratios
from benchmarks.results import Result, result
from fencepost.rows.writer import WriteJob
from fencepost.steps.writers import rows_job


def run(bench: Bench) -> Iterator[Result]:
    """Time without the header by time with it: throughput with, by throughput without."""
    for rows, size in SIZES:
        source = bench.source(rows, size)
        words = size_words(source, size)
        job = {"on": partial(write_job, bench, source), "off": partial(write_job_without, bench, source)}
        rounds = bench.measure(f"B6 {words}, job", job)
        compares = "throughput: header on ÷ off"
        yield result("B6", f"write job, {words}", ratios(rounds, "off", "on"), compares, goal=at_least(0.95))

        batches = arrow_batches(source.rows, size)
        alone = {
            name: partial(writer, bench, source, batches, batch_header=on)
            for name, on in (("on", True), ("off", False))
        }
        rounds = bench.measure(f"B6 {words}, writer", alone, BEST_OF)
        yield result("B6", f"writer alone, {words}", ratios(rounds, "off", "on"), compares, goal=at_least(0.97))


@contextmanager
def write_job_without(bench: Bench, source: Source) -> Iterator[Callable[[], None]]:
    """The write job whose executors are told to leave the header out; no pipeline can ask for that."""

    def without(*args: Any) -> WriteJob:
        return replace(rows_job(*args), batch_header=False)

    with patch("fencepost.steps.write_job.rows_job", without), write_job(bench, source) as job:
        yield job
