"""Random schedules of a union and of a join, against an oracle that shares no code: records that come late and early, doubled and
missing partners, wider topics, sources that come and go, deaths and runs again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.pipeline import Pipeline
from fencepost_stack.broker import Broker

from .schedules import Schedule

SHORT, LONG = 2, 6  # days
SEEDS = range(1, 11)
DEEP = {("union", 1), ("join", 2)}


def cases() -> Iterator[Any]:
    yield pytest.param("join", 0, SHORT, id="join-short")
    for shape in ("union", "join"):
        for seed in SEEDS:
            mark = pytest.mark.deep if (shape, seed) in DEEP else pytest.mark.fault
            yield pytest.param(shape, seed, LONG, marks=mark, id=f"{shape}-{seed}")


@pytest.mark.parametrize(("shape", "seed", "days"), list(cases()))
def test_each_interval_has_the_rows_of_the_records_that_it_took(
    spark: Any, broker: Broker, make_pipeline: Callable[..., Pipeline], tmp_path: Path, shape: str, seed: int, days: int
) -> None:
    schedule = Schedule(spark, broker.bootstrap, make_pipeline, tmp_path, shape, seed)
    schedule.play(days)
    assert schedule.differences() == [], schedule.told
