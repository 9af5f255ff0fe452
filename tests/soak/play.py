"""One seed, one story: days of records, faults composed at random, ordinary retries, and the checker at the end."""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, Retriable
from fencepost.model import Interval, StepResult
from steps import replay, run

from .faults import FAULTS, ON_A_CLUSTER
from .scene import Scene

Steps = Callable[[Any, Pipeline, Interval], StepResult]
DAYS = 3
ATTEMPTS = 12


@dataclass
class Outcome:
    """What a seed came to. `faults` counts what was broken, `errors` what attempts ended with before the retry."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0


def play(scene: Scene, seed: int) -> Outcome:
    """Run all days under faults, and then replay them; raises only when an attempt ends in a way no retry may fix."""
    chance = random.Random(seed)
    outcome = Outcome(seed)
    began = time.monotonic()
    for number in range(1, DAYS + 1):
        with under_faults(scene, chance, outcome, f"day {number}") as twins:
            scene.fill(number, DAYS, chance)
            settle(scene, number, outcome, run, twins=twins)
    if scene.quarantines:
        scene.fix()
        again = chance.randint(1, DAYS)  # a second replay takes only what the first has left
        for number in (*range(1, DAYS + 1), again):
            with under_faults(scene, chance, outcome, f"replay of day {number}") as twins:
                settle(scene, number, outcome, replay, twins=twins)
    cleared = chance.randint(1, DAYS)
    assert not run(scene.spark, scene.pipeline, day(cleared)).changed, "a published day run again is a no-op"
    outcome.differences = scene.differences()
    outcome.seconds = time.monotonic() - began
    return outcome


@contextmanager
def under_faults(scene: Scene, chance: random.Random, outcome: Outcome, story: str) -> Iterator[bool]:
    """One to three faults around the block; it is told whether to do its work twice at once."""
    chosen = chance.sample(ON_A_CLUSTER if scene.workers else FAULTS, chance.choice([1, 1, 2, 3]))
    twins = chance.random() < 0.2
    scene.tell(f"{story}{', two runs at once' if twins else ''}:")
    with ExitStack() as stack:
        for fault in chosen:
            stack.enter_context(fault(scene, chance))
            outcome.faults[fault.__name__] += 1
        if twins:
            outcome.faults["two_runs_at_once"] += 1
        yield twins


def settle(scene: Scene, number: int, outcome: Outcome, steps: Steps, *, twins: bool) -> None:
    """Run the steps for a day as Airflow would, or twice at once."""
    if twins:
        at_once(lambda: _settle(scene, number, outcome, steps, twin=True))
    else:
        _settle(scene, number, outcome, steps, twin=False)


def _settle(scene: Scene, number: int, outcome: Outcome, steps: Steps, *, twin: bool) -> None:
    """Again after errors that are worth it. A twin may lose to the other in any state."""
    for _ in range(ATTEMPTS):
        try:
            steps(scene.spark, scene.pipeline, day(number))
            return
        except FencepostError as error:
            outcome.errors[type(error).__name__] += 1
            scene.tell(f"  {type(error).__name__}: {str(error)[:200]}")
            if not isinstance(error, Retriable) and not twin:
                raise
        except Exception as error:  # Airflow runs an unforeseen error again, too; it is counted
            outcome.errors[f"unforeseen {type(error).__name__}"] += 1
            scene.tell(f"  unforeseen {''.join(traceback.format_exception(error))[-3000:]}")
    raise AssertionError(f"day {number} was not published in {ATTEMPTS} attempts")


def at_once(work: Callable[[], None]) -> None:
    """The same work in two threads."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=guarded, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive(), "a run hangs"
    assert not errors, errors
