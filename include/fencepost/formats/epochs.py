"""Times as numbers that count from 1970: the first and the last of the years 1 to 9999, and the numbers for infinities."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST, LAST = ((end.replace(tzinfo=UTC) - EPOCH) // MICROSECOND for end in (datetime.min, datetime.max))  # noqa: DTZ901
FIRST_DAY, LAST_DAY = ((day - EPOCH.date()).days for day in (date.min, date.max))
# What connectors write for an infinity of PostgreSQL: its driver's times in milliseconds, which Debezium also takes as
# microseconds, and the ends of 64 bits as nanoseconds; the same in days, which a 32-bit number cuts; and PostgreSQL's
# own days since 2000, likewise.
ENDLESS = (9_223_372_036_825_200_000, -9_223_372_036_832_400_000)
INFINITIES: dict[str, frozenset[int]] = {
    "epoch_millis": frozenset([*ENDLESS, 9_223_372_036_825_200, -9_223_372_036_832_400]),
    "epoch_micros": frozenset(ENDLESS),
    "epoch_nanos": frozenset([2**63 - 1, -(2**63)]),
    "epoch_days": frozenset(
        [-622_191_234, 622_191_232, 622_191_233, -2_147_472_692, -2_147_472_691, 2_147_483_647, -2_147_483_648]
    ),
}
