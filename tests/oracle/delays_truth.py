"""What the table `delays_by_hour` must hold for given days, computed with pandas from the CSV files alone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd

from oracle.flights_truth import expected_records

NEW_YORK = ZoneInfo("America/New_York")
TABLE = """SELECT fencepost_interval, hour, carrier, airline, flights, departed, late, delay_minutes FROM delays_by_hour
ORDER BY fencepost_interval, hour, carrier"""


def expected_delays(days: Iterable[date]) -> list[tuple[Any, ...]]:
    """What `TABLE` gives: interval, hour, carrier, airline, flights, departed, late, minutes of delay."""
    rows = []
    for day in days:
        start = datetime(day.year, day.month, day.day, tzinfo=NEW_YORK)
        frame = pd.DataFrame([record.value for record in expected_records([day])])
        for (hour, carrier, airline), some in frame.groupby(["time_hour", "carrier", "airline"]):
            delays = some.dep_delay.dropna()
            counts = (len(some), len(delays), int((delays >= 15).sum()), int(delays.sum()))
            rows.append((start, datetime.fromisoformat(hour), carrier, airline, *counts))
    return sorted(rows)
