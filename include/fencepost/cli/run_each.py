"""`fencepost run --each` and `--last`: runs intervals of the schedule one after another in one Spark session.

Each interval goes through the same steps as a single run. So the command may be killed at any time, and a repetition gives the
result of single runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import typer
from rich.markup import escape

from fencepost.cli.console import err, plain_error, print_json
from fencepost.cli.interruption import GO_ON, Interrupted, was_interrupted
from fencepost.cli.steps import failure_of, for_one_interval, spark_session, steps_of
from fencepost.config.cron import NO_SUCH_YEAR
from fencepost.config.intervals import in_zone, intervals_between, newest_ended, parts_left_out
from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import FencepostError, SettingsError, Terminal
from fencepost.model import Interval, StepResult, utc_now
from fencepost.protocol.view import PASSED

SHOWN_OF_A_PLAN = ("starved_by", "also_covers", "unread")  # details of a plan whose message a person should read


def run_each(pipeline: Pipeline, asked: Interval | int, *, allow_future: bool, as_json: bool) -> None:
    """Runs the intervals between two times, or this many of the newest intervals, in order. Prints a line for each
    interval, and stops at the first that is not published or skipped.
    """
    began = time.monotonic()
    done: list[dict[str, Any]] = []
    failure: FencepostError | Interrupted | None = None
    intervals: list[Interval] = []
    left_out: list[tuple[Interval, Interval]] = []
    try:
        if isinstance(asked, int):
            intervals = newest_intervals(pipeline, asked)
        else:
            intervals = chosen_intervals(pipeline, asked, allow_future=allow_future)
            left_out = parts_left_out(pipeline.schedule, asked, intervals)
        err.print(f"{count_of(len(intervals), 'interval')} of the schedule, {_span(intervals)}", soft_wrap=True)
        for part, whole in left_out:
            err.print(f"[yellow]{_left_out(part, whole)}[/]", soft_wrap=True)
        progress = _Progress(len(intervals))
        for interval, results in steps_of_each(pipeline, intervals, allow_future=allow_future):
            steps: list[StepResult] = []
            done.append({"interval": interval, "steps": steps})
            progress.begin(interval)
            for result in results:
                steps.append(result)
                progress.heed(result)
            progress.end(steps)
        err.print(f"{count_of(len(intervals), 'interval')} done in {time.monotonic() - began:.0f} s")
    except (Exception, KeyboardInterrupt) as error:
        stopped = GO_ON
        if done:
            ended = sum(_is_over(one["steps"]) for one in done)
            are = f"{count_of(len(intervals), 'interval')} {'is' if ended == 1 else 'are'} done"
            stopped = f"The command stopped at {done[-1]['interval'].description}. {ended} of {are}. "
            whole = Interval(start=intervals[0].start, end=intervals[-1].end)
            command = whole.command("run", pipeline.name, "--each") if isinstance(asked, int) else "the same command"
            if isinstance(error, Terminal):
                stopped += f"Resolve the error of that interval first; then {command} continues there"
            else:
                stopped += (
                    f"Run {command} to continue" if isinstance(asked, int) else f"Run {command} again to continue"
                )
            if not was_interrupted(error):
                err.print(f"[bold]{escape(stopped)}.[/]", soft_wrap=True)
        failure = failure_of(error, lambda: stopped, as_json=as_json)
    if as_json:
        print_json(
            {
                "pipeline": pipeline.name,
                "intervals": [
                    {
                        "interval": one["interval"].model_dump(mode="json"),
                        "steps": [step.model_dump(mode="json") for step in one["steps"]],
                    }
                    for one in done
                ],
                "left_out": [part.model_dump(mode="json") for part, _ in left_out],
                "left": len(intervals) - sum(_is_over(one["steps"]) for one in done),
                **(plain_error(failure, failure.exit_code) if failure else {"error": None, "exit_code": 0}),
            }
        )
        raise typer.Exit(failure.exit_code if failure else 0)


def chosen_intervals(pipeline: Pipeline, within: Interval, *, allow_future: bool) -> list[Interval]:
    """Returns the schedule's intervals between these times.

    Raises:
        SettingsError: there is no interval, or an interval has not ended.
    """
    schedule, now = pipeline.schedule, utc_now()
    cuts = f"its schedule (cron {schedule.cron!r} in {schedule.timezone})"
    chosen: list[Interval] = []
    try:
        for interval in intervals_between(schedule, within.start, within.end):
            if interval.end > now and not allow_future:
                until = (
                    f" --end {chosen[-1].end:%Y-%m-%dT%H:%M:%SZ} runs the intervals that have ended." if chosen else ""
                )
                raise SettingsError(
                    f"pipeline {pipeline.name}: interval {interval.description} of {cuts} has not ended, so nothing was "
                    f"run.{until}"
                )
            chosen.append(interval)
    except NO_SUCH_YEAR:
        raise SettingsError(
            f"pipeline {pipeline.name}: a cron schedule cannot compute the times {within.description}. Give a --start "
            "after 1970 and an --end before 9999."
        ) from None
    if not chosen:
        raise SettingsError(
            f"pipeline {pipeline.name}: no whole interval of {cuts} lies between {within.description}. Intervals begin and "
            "end at the times of the cron. Choose --start and --end around at least one of them."
        )
    return chosen


def newest_intervals(pipeline: Pipeline, number: int) -> list[Interval]:
    """Returns this many of the newest intervals of the schedule that have ended, the oldest first. There may be fewer.

    Raises:
        SettingsError: there is no such interval.
    """
    schedule = pipeline.schedule
    newest = list(islice(newest_ended(schedule, utc_now()), number))
    if not newest:
        raise SettingsError(
            f"pipeline {pipeline.name}: no interval of its schedule (cron {schedule.cron!r} in {schedule.timezone}, from "
            f"{in_zone(schedule.start, schedule.timezone)}) has ended yet. Wait, or set an earlier schedule.start."
        )
    return newest[::-1]


def steps_of_each(
    pipeline: Pipeline, intervals: list[Interval], *, allow_future: bool
) -> Iterator[tuple[Interval, Iterator[StepResult]]]:
    """Yields the intervals, each with the results of its steps. A step runs when its result is requested. All steps
    share one ledger and one JVM.
    """
    from fencepost.ledger.deployment import Deployment
    from fencepost.steps.plan import finished_before, plan_batch

    deployment = Deployment.of(pipeline)

    def steps(interval: Interval, spark: Callable[[], Any]) -> Iterator[StepResult]:
        before = finished_before(
            deployment.ledger, interval
        )  # a plan of each of hundreds of finished intervals would take minutes
        planned = before or plan_batch(pipeline, interval, allow_future=allow_future, deployment=deployment)
        yield from steps_of(pipeline, interval, planned, deployment, for_one_interval(pipeline, spark), line=False)

    with spark_session(pipeline) as spark:
        for interval in intervals:
            yield interval, steps(interval, spark)


class _Progress:
    """Prints a line for each interval, and the messages of its steps. A message that repeats is printed once."""

    def __init__(self, total: int) -> None:
        self._total, self._number, self._began = total, 0, 0.0
        self._label = ""
        self._shown: set[str] = set()

    def begin(self, interval: Interval) -> None:
        self._number += 1
        self._began = time.monotonic()
        number = f"{self._number:>{len(str(self._total))}}/{self._total}"
        self._label = f"{number}  {interval.start:%Y-%m-%d %H:%M} → {interval.end:%m-%d %H:%M}"

    def heed(self, result: StepResult) -> None:
        """Prints the messages of the step that the interval's line does not have."""
        matters = result.step == "event" or any(name in result.details for name in SHOWN_OF_A_PLAN)
        if matters and result.message not in self._shown:
            self._shown.add(result.message)
            err.print(f"[yellow]{escape(result.message)}[/]", soft_wrap=True)

    def end(self, steps: list[StepResult]) -> None:
        """Prints the line of the interval that has ended."""
        by_name = {step.step: step for step in steps}
        last = by_name.get("advance", steps[-1])
        summary = last.message.split(",")[0] if not last.changed else f"{last.state}, revision {last.revision}"
        wrote = by_name.get("write")
        if wrote is not None and wrote.changed:
            rows = wrote.details.get("rows")
            quarantined = wrote.details.get("quarantined")
            summary += f": {rows:,} out"
            if isinstance(quarantined, dict) and quarantined:
                summary += f", {sum(n for n in quarantined.values() if isinstance(n, int)):,} to quarantine"
        err.print(f"{self._label}  {escape(summary)}  [dim]{time.monotonic() - self._began:.1f} s[/]", soft_wrap=True)


def _is_over(steps: list[StepResult]) -> bool:
    """Returns whether the interval is published or skipped."""
    return any(step.state in PASSED for step in steps if step.step in ("plan", "advance"))


def _span(intervals: list[Interval]) -> str:
    return f"from {Interval(start=intervals[0].start, end=intervals[-1].end).description}"


def _left_out(part: Interval, whole: Interval) -> str:
    """Returns a part of an interval that is not run, and the option that includes it."""
    option, moment = ("--end", whole.end) if part.start == whole.start else ("--start", whole.start)
    ended = "" if whole.end <= utc_now() else ", which has not ended"
    runs = f"{option} {moment:%Y-%m-%dT%H:%M:%SZ} runs all of it"
    return f"Not run: {part.description}, part of the interval {whole.description}{ended}. {runs}."
