"""The search itself: it finds the shortest way, says when it saw everything, and knows a state without a way out."""

from __future__ import annotations

from collections.abc import Iterator

from model.search import Fault, explore, without_way_out


class Counter:
    """Counts up by one or two to `top`; from an odd number of `trap` there is no way on."""

    def __init__(self, top: int, wrong: int = -1, trap: int = -1) -> None:
        self.top, self.wrong, self.trap = top, wrong, trap

    @property
    def start(self) -> list[int]:
        return [0]

    def steps(self, state: int) -> Iterator[tuple[str, int | Fault]]:
        if state != self.trap:
            yield from ((f"+{n}", state + n) for n in (1, 2) if state + n <= self.top)

    def fault(self, state: int) -> Fault | None:
        return Fault("wrong", f"it is {state}") if state == self.wrong else None

    def settled(self, state: int) -> bool:
        return state == self.top

    def ordinary(self, state: int, label: str) -> bool:
        return True

    def show(self, state: int) -> str:
        return str(state)


def test_a_search_that_finds_nothing_has_seen_every_state() -> None:
    found = explore(Counter(9))
    assert (found.fault, found.complete, found.states) == (None, True, 10)


def test_a_fault_comes_with_the_shortest_way_to_it() -> None:
    found = explore(Counter(9, wrong=5))
    assert found.fault == Fault("wrong", "it is 5")
    assert [line.split()[-1] for line in found.trace] in (
        ["0", "1", "3", "5"],
        ["0", "2", "3", "5"],
        ["0", "2", "4", "5"],
    )


def test_a_search_that_was_cut_off_says_so() -> None:
    assert not explore(Counter(99), limit=10).complete


def test_a_state_without_a_way_out_is_found() -> None:
    assert without_way_out(Counter(9)).fault is None
    found = without_way_out(Counter(9, trap=4))
    assert found.fault is not None
    assert found.fault.kind == "stuck"
    assert found.trace[-1].split()[-1] == "4"
