"""Breadth-first search over all states of a model, and what it found.

Invariant: a search that ends with `complete` has seen every state that can be reached, so `fault is None` then is a proof
for that model and that bound; a fault comes with the shortest way to it, since states are visited in order of depth.

A model is anything with these four:

    start                 its first states
    steps(state)          every (label, next state); the next state may be a `Fault` where a step itself breaks a rule
    fault(state)          what is wrong with a state, or None
    show(state)           a state in words, for traces

and, where liveness is asked for, `settled(state)` and `ordinary(state, label)`.

States are hashable and small; only the number of a state's predecessor is kept, and labels are found again when a trace
is told.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pytest

from fencepost.garbage_collector import without_collector

# FENCEPOST_MODEL_DEPTH=deep (`make model`) searches the larger bounds too; `make test` the smaller ones.
DEEP = os.environ.get("FENCEPOST_MODEL_DEPTH", "") == "deep"


def cases(bounds: Iterable[str], costly: Container[str]) -> list[Any]:
    """The bounds as parameters of a test; `make test` leaves the costly ones to `make test-all`."""
    return [pytest.param(one, marks=pytest.mark.deep if one in costly else ()) for one in bounds]


@dataclass(frozen=True)
class Fault:
    """A broken promise: its kind in one word or two (`doubled`, `lost`), and what exactly is wrong."""

    kind: str
    text: str


class Model(Protocol):
    """What a search needs to know."""

    @property
    def start(self) -> Iterable[Hashable]: ...

    def steps(self, state: Hashable) -> Iterable[tuple[str, Hashable | Fault]]: ...

    def fault(self, state: Hashable) -> Fault | None: ...

    def show(self, state: Hashable) -> str: ...


class LiveModel(Model, Protocol):
    """What a search for states without a way out needs besides."""

    def settled(self, state: Hashable) -> bool: ...

    def ordinary(self, state: Hashable, label: str) -> bool: ...


@dataclass
class Search:
    """The outcome of a search. `trace` is empty where there is no fault."""

    states: int
    steps: int
    depth: int
    seconds: float
    complete: bool
    fault: Fault | None = None
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rate = self.states / self.seconds if self.seconds else 0
        size = (
            f"{self.states} states, {self.steps} steps, depth {self.depth}, {self.seconds:.1f} s ({rate:.0f} states/s)"
        )
        if self.fault is None:
            return size if self.complete else f"{size}, cut off"
        announced = "\n".join(f"  {n:2}. {line}" for n, line in enumerate(self.trace))
        return f"{self.fault.kind}: {self.fault.text}\n{announced}\n{size}"


def explore(model: Model, limit: int = 50_000_000) -> Search:
    """Visit every state until a fault is found or none is left; `limit` states at most."""
    return _explore(model, limit, None)


def without_way_out(model: LiveModel, limit: int = 50_000_000) -> Search:
    """Look for a state from which ordinary steps alone never reach a settled one.

    1. visit every state, and note the ordinary steps between them;
    2. go back from the settled states along these;
    3. a state that was not met is stuck: the fault, and the shortest way into it.
    """
    edges = (array("I"), array("I"))
    found = _explore(model, limit, edges, keep=(kept := _Kept()))  # 1
    if found.fault is not None or not found.complete:
        return found
    states, parents = kept.states, kept.parents
    good = np.zeros(len(states), dtype=bool)
    todo = [n for n, state in enumerate(states) if model.settled(state)]
    good[todo] = True
    sources, targets = (np.frombuffer(e, dtype=np.uint32) if len(e) else np.zeros(0, np.uint32) for e in edges)
    order = np.argsort(targets, kind="stable")
    sources, targets = sources[order], targets[order]
    first = np.searchsorted(targets, np.arange(len(states) + 1))
    while todo:  # 2
        wave: set[int] = set()
        for state in todo:
            wave.update(int(s) for s in sources[first[state] : first[state + 1]] if not good[s])
        todo = sorted(wave)
        good[todo] = True
    stuck = np.flatnonzero(~good)
    if len(stuck):  # 3
        number = int(stuck[0])
        found.fault = Fault("stuck", f"{len(stuck)} states have no way out by ordinary retries; the nearest is shown")
        found.trace = _trace(model, states, parents, number)
    return found


@dataclass
class _Kept:
    states: list[Hashable] = field(default_factory=list)
    parents: array[int] = field(default_factory=lambda: array("i"))


@without_collector()  # all states stay, and it would go through them again and again
def _explore(
    model: Model, limit: int, edges: tuple[array[int], array[int]] | None, keep: _Kept | None = None
) -> Search:
    began = time.perf_counter()
    kept = keep or _Kept()
    states, parents = kept.states, kept.parents
    seen: dict[Hashable, int] = {}
    for state in model.start:
        if state not in seen:
            seen[state] = len(states)
            states.append(state)
            parents.append(-1)
    done, taken, depth, layer = 0, 0, 0, len(states)
    search_steps, fault_of = model.steps, model.fault

    def outcome(fault: Fault | None, trace: list[str], *, complete: bool) -> Search:
        return Search(len(states), taken, depth, time.perf_counter() - began, complete, fault, trace)

    for number, state in enumerate(states):
        fault = fault_of(state)
        if fault is not None:
            return outcome(fault, _trace(model, states, parents, number), complete=False)
    while done < len(states):
        if done == layer:
            depth, layer = depth + 1, len(states)
        state = states[done]
        for label, after in search_steps(state):
            taken += 1
            if type(after) is Fault:
                return outcome(after, [*_trace(model, states, parents, done), f"{label}  ✗"], complete=False)
            number = seen.get(after, -1)
            if number < 0:
                number = len(states)
                seen[after] = number
                states.append(after)
                parents.append(done)
                fault = fault_of(after)
                if fault is not None:
                    depth += 1
                    return outcome(fault, _trace(model, states, parents, number), complete=False)
            if edges is not None and model.ordinary(state, label):  # type: ignore[attr-defined]
                edges[0].append(done)
                edges[1].append(number)
        done += 1
        if len(states) > limit:
            return outcome(None, [], complete=False)
    return outcome(None, [], complete=True)


def _trace(model: Model, states: list[Hashable], parents: array[int], number: int) -> list[str]:
    """The way from a first state to this one, a line per step."""
    lines: list[str] = []
    while parents[number] >= 0:
        before = states[parents[number]]
        label = next(label for label, after in model.steps(before) if after == states[number])
        lines.append(f"{label:55} {model.show(states[number])}")
        number = parents[number]
    lines.append(f"{'(begin)':55} {model.show(states[number])}")
    return lines[::-1]
