"""The transform of `nyc_flights` on a few rows: what a pipeline's own tests look like.

The file stands beside the pipeline's folder and not in it: whatever lies in the folder counts as part of the transform.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.testing.trial import Trials

NYC_FLIGHTS = Path(__file__).with_name("nyc_flights")
FLIGHT = {"carrier": "UA", "flight": 1545, "origin": "EWR", "dest": "IAH", "tailnum": "N14228", "year": 2013}
ON_TIME = {**FLIGHT, "sched_dep_time": 515, "dep_time": 517, "dep_delay": 2, "arr_delay": 11}


def test_a_flight_finds_its_airline_and_its_aircraft(fencepost_transform: Trials) -> None:
    at = datetime(2013, 1, 1, 10, tzinfo=UTC)
    outcome = fencepost_transform(NYC_FLIGHTS, [{**ON_TIME, "_key": b"EWR", "_timestamp": at}])
    assert outcome.keys == [b"EWR"]
    (row,) = outcome.rows
    assert row is not None
    assert (row["airline"], row["model"], row["aircraft_age"]) == ("United Air Lines Inc.", "737-824", 14)
    assert (row["dep_delay_bucket"], row["delayed_15"], row["made_up_minutes"]) == ("on_time", False, -9)
    assert row["scheduled_departure_ms"] == 1_357_034_400_000


def test_what_is_unlikely_or_unreadable_goes_to_quarantine(fencepost_transform: Trials) -> None:
    rows = [
        ON_TIME,
        {**ON_TIME, "dep_delay": 99_999},
        {**FLIGHT, "sched_dep_time": 515},
        b'{"year": 2013, "month": "January"}',
    ]
    outcome = fencepost_transform(NYC_FLIGHTS, rows)
    assert [row and row["dep_delay_bucket"] for row in outcome.rows] == ["on_time", "cancelled"]
    assert {one.given: one.rule.split("(")[0] for one in outcome.quarantined} == {
        1: "expect_column_values_to_be_between",
        3: "malformed",
    }
