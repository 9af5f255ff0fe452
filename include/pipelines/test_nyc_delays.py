"""The transform of `nyc_delays` on a few flights: an aggregate, and a day that was written again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.testing.trial import Trials

NYC_DELAYS = Path(__file__).with_name("nyc_delays")
DAY = {"year": 2013, "month": 1, "day": 1, "origin": "EWR", "carrier": "UA", "airline": "United Air Lines Inc."}
AT_TEN, AT_ELEVEN = "2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"


def flight(number: int, delay: int | None, hour: str = AT_TEN, **more: Any) -> dict[str, Any]:
    """A flight as the topic has it."""
    return {**DAY, "flight": number, "dep_delay": delay, "time_hour": hour, **more}


def counted(outcome: Any) -> set[tuple[Any, ...]]:
    """The rows: carrier, hour in UTC, flights, departed, late, minutes."""
    names = ("carrier", "flights", "departed", "late", "delay_minutes")
    return {(f"{row['hour']:%H}", *(row[name] for name in names)) for row in outcome.rows}


def test_flights_are_counted_by_carrier_and_hour_and_a_cancelled_one_has_no_delay(fencepost_transform: Trials) -> None:
    rows = [
        flight(1, 15),
        flight(2, -3),
        flight(3, None),
        flight(4, 14, AT_ELEVEN),
        flight(1, 100, carrier="B6", airline="JetBlue Airways"),
        flight(9, None, AT_ELEVEN, carrier="B6", airline="JetBlue Airways"),
    ]
    outcome = fencepost_transform(NYC_DELAYS, rows)
    assert counted(outcome) == {
        ("10", "UA", 3, 2, 1, 12),
        ("11", "UA", 1, 1, 0, 14),
        ("10", "B6", 1, 1, 1, 100),
        ("11", "B6", 1, 0, 0, 0),
    }


def test_of_a_flight_that_was_published_again_the_newer_record_counts(fencepost_transform: Trials) -> None:
    old, other = {**flight(1, 15), "_offset": 3}, {**flight(1, 15, origin="JFK"), "_offset": 4}
    new = {**flight(1, 20, AT_ELEVEN), "_offset": 5}
    assert counted(fencepost_transform(NYC_DELAYS, [new, old, other])) == {
        ("10", "UA", 1, 1, 1, 15),
        ("11", "UA", 1, 1, 1, 20),
    }
