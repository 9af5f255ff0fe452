"""B2: the price of transactions: Fencepost's writer beside the same writer with idempotence only, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.bench import Bench
from benchmarks.cases.jobs import SIZES, size_words
from benchmarks.cases.writers import BEST_OF, often, writer
from benchmarks.data import arrow_batches
from benchmarks.measure import Side, at_least, ratios
from benchmarks.results import Result, result

OFTEN = 0.1  # seconds


def run(bench: Bench) -> Iterator[Result]:
    """Time with idempotence only by time with transactions: throughput with them, by throughput without."""
    for rows, size in SIZES:
        source = bench.source(rows, size)
        words = size_words(source, size)
        batches = arrow_batches(source.rows, size)
        one = partial(writer, bench, source, batches)
        sides: dict[str, Side] = {
            "one transaction": one,
            "idempotence only": partial(writer, bench, source, batches, transactional=False),
        }
        both = size == 1000
        if both:
            sides["commit every 100 ms"] = partial(often, bench, source, batches, OFTEN)
        rounds = bench.measure(f"B2 {words}", sides, BEST_OF)
        compares = "throughput: with transactions ÷ idempotence only"
        each = ratios(rounds, "idempotence only", "one transaction")
        yield result("B2", f"writer, {words}, one transaction", each, compares, goal=at_least(0.99))
        if both:
            each = ratios(rounds, "idempotence only", "commit every 100 ms")
            yield result("B2", f"writer, {words}, a commit every 100 ms", each, compares, goal=at_least(0.97))
