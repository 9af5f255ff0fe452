"""B6: the price of the batch's header on every record, in the whole write job and in the writer alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.bench import Bench
from benchmarks.cases.jobs import SIZES, size_words, write_job
from benchmarks.cases.writers import BEST_OF, writer
from benchmarks.data import arrow_batches
from benchmarks.measure import at_least, ratios
from benchmarks.results import Result, result


def run(bench: Bench) -> Iterator[Result]:
    """Time without the header by time with it: throughput with, by throughput without."""
    for rows, size in SIZES:
        source = bench.source(rows, size)
        words = size_words(source, size)
        job = {name: partial(write_job, bench, source, batch_header=on) for name, on in (("on", True), ("off", False))}
        rounds = bench.measure(f"B6 {words}, job", job)
        compares = "throughput: header on ÷ off"
        yield result("B6", f"write job, {words}", ratios(rounds, "off", "on"), compares, goal=at_least(0.97))

        batches = arrow_batches(source.rows, size)
        alone = {
            name: partial(writer, bench, source, batches, batch_header=on)
            for name, on in (("on", True), ("off", False))
        }
        rounds = bench.measure(f"B6 {words}, writer", alone, BEST_OF)
        yield result("B6", f"writer alone, {words}", ratios(rounds, "off", "on"), compares, goal=at_least(0.97))
