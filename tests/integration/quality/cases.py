"""One or more cases for every proven expectation type, each with what plain Python says the answer is."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from integration.quality.batches import records

RECORDS = records()
Row = dict[str, Any]


class Case(NamedTuple):
    """`unexpected` are (partition, offset) in order, None if no single records are judged; `status` is the answer."""

    type: str
    kwargs: dict[str, Any]
    status: str
    unexpected: list[tuple[int, int]] | None = None
    missing: int | None = None
    observed: Any = None


CASES: list[Case] = []


def by_record(type_: str, judge: Callable[[Row], bool | None], /, **kwargs: Any) -> None:
    """A case judged record by record: True holds, False does not, None is not judged."""
    said = [(row, judge(row)) for row in RECORDS]
    bad = sorted((row["_partition"], row["_offset"]) for row, verdict in said if verdict is False)
    judged = sum(verdict is not None for _, verdict in said)
    holds = not judged or (judged - len(bad)) / judged >= kwargs.get("mostly", 1)
    CASES.append(Case(type_, kwargs, "passed" if holds else "failed", bad, len(RECORDS) - judged))


def by_value(type_: str, column: str, holds: Callable[[Any], bool], **kwargs: Any) -> None:
    """A case judged value by value, nulls left out."""
    by_record(type_, lambda r: None if r[column] is None else holds(r[column]), column=column, **kwargs)


def drawn(type_: str, holds: bool, observed: Any, /, **kwargs: Any) -> None:
    """A case about one thing drawn from all records."""
    CASES.append(Case(type_, kwargs, "passed" if holds else "failed", None, None, observed))


def refused(type_: str, /, **kwargs: Any) -> None:
    """A case that is errored, with one sentence."""
    CASES.append(Case(type_, kwargs, "errored"))


def plain(value: Any) -> Any:
    """A kwarg as YAML would have given it."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str):  # a report shows what is no UTF-8 as Spark gives it to Python
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value.isoformat() if hasattr(value, "isoformat") else value


def values(column: str) -> list[Any]:
    return [row[column] for row in RECORDS if row[column] is not None]


COLUMNS = (
    "id half big bigger single ratio price wide flag maybe name code day moment raw tags later twin nothing no_number"
).split()
V = "expect_column_values_to_"
C = "expect_column_"

# Nulls, uniqueness and sets, on every kind of column.
# Each of these is a job of its own on Spark, so only some columns have them.
COSTLY = {"half", "ratio", "maybe", "name", "day", "moment", "raw", "no_number"}
for column in COLUMNS:
    by_record(f"{V}not_be_null", lambda r, c=column: r[c] is not None, column=column)
    by_record(f"{V}be_null", lambda r, c=column: r[c] is None, column=column)
    times = Counter(values(column))
    if column not in COSTLY | {"id", "big", "bigger"}:
        continue
    by_value(f"{V}be_unique", column, lambda v, t=times: t[v] == 1)
    by_value(f"{V}be_unique", column, lambda v, t=times: t[v] == 1, mostly=0.4)
    found = sorted(times)
    share = len(found) / len(values(column)) if found else None
    n = len(found)
    drawn(f"{C}unique_value_count_to_be_between", True, n, column=column, min_value=n, max_value=n)
    drawn(f"{C}unique_value_count_to_be_between", False, n, column=column, max_value=n, strict_max=True)
    drawn(
        f"{C}proportion_of_unique_values_to_be_between",
        share is not None,
        share,
        column=column,
        min_value=0,
        strict_min=True,
    )
    known = len(values(column)) / len(RECORDS)
    drawn(f"{C}proportion_of_non_null_values_to_be_between", known >= 0.65, known, column=column, min_value=0.65)
    if not found:
        by_value(f"{V}be_in_set", column, lambda v: False, value_set=["x"] if column == "nothing" else [1])
        continue
    sayable = [v for v in found if plain(v) == v or not isinstance(v, str)]
    for some in (found[:1], sayable):
        by_value(f"{V}be_in_set", column, lambda v, s=some: v in s, value_set=some)
        by_value(f"{V}be_in_set", column, lambda v, s=some: v in s, value_set=some, mostly=0.3)
        by_value(f"{V}not_be_in_set", column, lambda v, s=some: v not in s, value_set=some)
        if column not in COSTLY:
            continue
        outside = [v for v in found if v not in some]
        differs = {"not in the set": outside if len(outside) < 20 else f"{len(outside)} values"} if outside else None
        drawn(f"{C}distinct_values_to_be_in_set", not outside, differs, column=column, value_set=some)
        drawn(f"{C}distinct_values_to_equal_set", not outside, differs, column=column, value_set=some)
        drawn(f"{C}distinct_values_to_contain_set", True, None, column=column, value_set=some)
        top = {v for v, count in times.items() if count == max(times.values())}
        drawn(
            f"{C}most_common_value_to_be_in_set",
            len(top) == 1 and top <= set(some),
            sorted(top) if len(top) <= 20 else ...,
            column=column,
            value_set=some,
        )
missing_one = {"half": 99, "code": "missing", "day": "1999-01-01", "moment": "1999-01-01T00:00:00Z", "price": 9.99}
for column, value in missing_one.items():
    drawn(f"{C}distinct_values_to_contain_set", False, {"not in the column": [value]}, column=column, value_set=[value])

# Bounds.
for column in "id half single ratio price day moment later no_number".split():
    found = sorted(values(column))
    if not found:
        by_value(f"{V}be_between", column, lambda v: False, min_value=1)
        drawn(f"{C}min_to_be_between", False, None, column=column, min_value=0)
        continue
    low, high = found[len(found) // 4], found[len(found) * 3 // 4]
    by_value(f"{V}be_between", column, lambda v, a=low, b=high: a <= v <= b, min_value=low, max_value=high)
    by_value(f"{V}be_between", column, lambda v, a=low: v > a, min_value=low, strict_min=True)
    by_value(f"{V}be_between", column, lambda v, b=high: v < b, max_value=high, strict_max=True, mostly=0.5)
    for what, value in (("min", found[0]), ("max", found[-1])):
        drawn(f"{C}{what}_to_be_between", True, value, column=column, min_value=value, max_value=value)
        drawn(f"{C}{what}_to_be_between", False, value, column=column, max_value=value, strict_max=True)
for column in ("name", "flag", "raw", "tags"):
    refused(f"{V}be_between", column=column, min_value=1)
    refused(f"{C}max_to_be_between", column=column, min_value=1)
refused(f"{V}be_between", column="half", min_value="1")
refused(f"{V}be_between", column="day", min_value=5)
refused(f"{V}be_between", column="moment", min_value=5)
refused(f"{V}be_in_set", column="half", value_set=["1"])
refused(f"{V}be_in_set", column="code", value_set=[5])
refused(f"{V}be_in_set", column="flag", value_set=[1])
refused(f"{V}be_in_set", column="nowhere", value_set=[1])
refused(f"{V}be_in_set", column="_offset", value_set=[1])


# Statistics.
def at_rank(ordered: list[Any], q: float) -> Any:
    return ordered[max(math.ceil(q * len(ordered)) - 1, 0)]


for column in "half price ratio".split():
    found = sorted(float(v) for v in values(column))
    for what, value in {
        "mean": statistics.fmean(found),
        "sum": math.fsum(found),
        "stdev": statistics.stdev(found),
        "median": statistics.median(found),
    }.items():
        drawn(f"{C}{what}_to_be_between", True, value, column=column, min_value=value - 1, max_value=value + 1)
        drawn(f"{C}{what}_to_be_between", False, value, column=column, min_value=value + 1)
    quantiles = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]
    at = [at_rank(found, q) for q in quantiles]
    ranges: list[list[float | None]] = [[v - 0.5, v + 0.5] for v in at]
    observed = {"quantiles": quantiles, "values": at}
    Q = f"{C}quantile_values_to_be_between"
    drawn(Q, True, observed, column=column, quantile_ranges={"quantiles": quantiles, "value_ranges": ranges})
    off = [
        [None, at[0]],
        *ranges[1:-1],
        [math.nextafter(at[-1], math.inf), None],
    ]
    drawn(Q, False, observed, column=column, quantile_ranges={"quantiles": quantiles, "value_ranges": off})
for what in ("mean", "sum", "stdev", "median"):
    drawn(f"{C}{what}_to_be_between", False, None, column="no_number", min_value=-1, max_value=1)
    refused(f"{C}{what}_to_be_between", column="day", min_value=0)
drawn(
    f"{C}quantile_values_to_be_between",
    False,
    None,
    column="no_number",
    quantile_ranges={"quantiles": [0.5], "value_ranges": [[0, None]]},
)


# Texts.
def as_java(pattern: str) -> str:
    """A pattern for Python that means what this one means to Java, where several characters end a line."""
    ends = r"\n\r\u0085\u2028\u2029"
    return pattern.replace(".", f"[^{ends}]").replace("$", rf"(?=(?:\r\n|[{ends}])?\Z)")


for column in "name code raw nothing".split():
    for pattern in (r"^\d", r"^\w+$", r"a.*b", "^A", r"(?i)^a", r"^(?:A|U)A$", "()", "^end.$", "x$", r"\s"):
        flags = re.ASCII | (re.IGNORECASE if pattern.startswith("(?i)") else 0)
        said = re.compile(as_java(pattern.removeprefix("(?i)")), flags)
        by_value(f"{V}match_regex", column, lambda v, p=said: bool(p.search(v)), regex=pattern)
        by_value(f"{V}not_match_regex", column, lambda v, p=said: not p.search(v), regex=pattern)
    for one, two in ((r"^\d", "(?i)^u"), ("(?i)^a", "^u"), ("A", "b|a")):
        first, second = (re.compile(x.removeprefix("(?i)"), re.A | (re.I if "(?i)" in x else 0)) for x in (one, two))
        both: dict[str, Any] = {"regex_list": [one, two]}
        by_value(f"{V}match_regex_list", column, lambda v, a=first, b=second: bool(a.search(v) or b.search(v)), **both)
        by_value(
            f"{V}match_regex_list",
            column,
            lambda v, a=first, b=second: bool(a.search(v) and b.search(v)),
            match_on="all",
            **both,
        )
        by_value(
            f"{V}not_match_regex_list", column, lambda v, a=first, b=second: not (a.search(v) or b.search(v)), **both
        )
    by_value(f"{C}value_lengths_to_be_between", column, lambda v: 2 <= len(v) <= 4, min_value=2, max_value=4)
    by_value(f"{C}value_lengths_to_be_between", column, lambda v: len(v) < 4, max_value=4, strict_max=True)
    by_value(f"{C}value_lengths_to_equal", column, lambda v: len(v) == 2, value=2)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def is_date(text: str) -> bool:
    try:
        datetime.strptime(text, "%Y-%m-%d")  # noqa: DTZ007
    except ValueError:
        return False
    return True


for column in ("code", "raw", "tags"):
    by_value(f"{V}be_json_parseable", column, is_json)
    by_value(f"{V}match_strftime_format", column, is_date, strftime_format="%Y-%m-%d")
refused(f"{V}match_regex", column="half", regex="1")
refused(f"{V}match_like_pattern", column="name", like_pattern="A%")
refused(f"{V}be_dateutil_parseable", column="code")
refused(f"{V}be_increasing", column="id")
refused(f"{V}be_in_sett", column="code", value_set=["AA"])


# Several columns of one record.
def pair(a: str, b: str, test: Callable[[Any, Any], bool], either: bool) -> Callable[[Row], bool | None]:
    def judge(row: Row) -> bool | None:
        x, y = row[a], row[b]
        if (x is None and y is None) or (either and (x is None or y is None)):
            return None
        return x is not None and y is not None and test(x, y)

    return judge


EITHER = {"ignore_row_if": "either_value_is_missing"}
for a, b in (("half", "twin"), ("moment", "later"), ("id", "big"), ("id", "half"), ("bigger", "big")):
    for extra in ({}, EITHER):
        names: dict[str, Any] = {"column_A": a, "column_B": b, **extra}
        P = f"{C}pair_values_"
        by_record(f"{P}to_be_equal", pair(a, b, lambda x, y: x == y, bool(extra)), **names)
        by_record(f"{P}a_to_be_greater_than_b", pair(a, b, lambda x, y: x > y, bool(extra)), **names)
        by_record(
            f"{P}a_to_be_greater_than_b",
            pair(a, b, lambda x, y: x >= y, bool(extra)),
            or_equal=True,
            mostly=0.5,
            **names,
        )
by_record(
    f"{C}pair_values_to_be_equal", pair("name", "code", lambda x, y: x == y, False), column_A="name", column_B="code"
)
by_record(
    f"{C}pair_values_to_be_equal", pair("flag", "maybe", lambda x, y: x == y, False), column_A="flag", column_B="maybe"
)
refused(f"{C}pair_values_to_be_equal", column_A="name", column_B="half")
for some in (["half", "code"], ["id", "name"], ["flag", "maybe", "half"]):
    for rule, skip in (("all_values_are_missing", all), ("any_value_is_missing", any), ("never", lambda _: False)):
        kept = Counter(tuple(r[c] for c in some) for r in RECORDS if not skip([r[c] is None for c in some]))
        by_record(
            "expect_compound_columns_to_be_unique",
            lambda r, s=some, k=kept: None if tuple(r[c] for c in s) not in k else k[tuple(r[c] for c in s)] == 1,
            column_list=some,
            ignore_row_if=rule,
        )
by_record(
    "expect_multicolumn_sum_to_equal",
    lambda r: None if r["half"] is None or r["twin"] is None else r["half"] + r["twin"] == 0,
    column_list=["half", "twin"],
    sum_total=0,
    ignore_row_if="any_value_is_missing",
)


# Expressions: what is null is not judged.
def sums(row: Row) -> bool | None:
    return None if row["half"] is None or row["twin"] is None else row["half"] + row["twin"] > 0


by_record("expect_expression_to_be_true", sums, expression="half + twin > 0")
by_record("expect_expression_to_be_true", sums, expression="half + twin > 0", mostly=0.2)
by_record("expect_expression_to_be_true", lambda r: (r["half"] or 0) < 4, expression="coalesce(half, 0) < 4")
refused("expect_expression_to_be_true", expression="nowhere > 0")
refused("expect_expression_to_be_true", expression="sum(half) > 0")

# The table, and row conditions.
for total in (len(RECORDS), 5):
    drawn("expect_table_row_count_to_equal", total == len(RECORDS), len(RECORDS), value=total)
    drawn("expect_table_row_count_to_be_between", total == len(RECORDS), len(RECORDS), min_value=1, max_value=total)
drawn("expect_table_row_count_to_equal", True, 30, value=30, row_condition="id < 30")
drawn("expect_table_row_count_to_equal", True, 0, value=0, row_condition="half > 100")
drawn("expect_column_sum_to_be_between", False, None, column="id", min_value=0, row_condition="half > 100")
refused("expect_table_row_count_to_equal", value=30, row_condition="id <")
refused("expect_table_row_count_to_equal", value=30, row_condition="sum(id) > 3")
refused("expect_table_row_count_to_equal", value=30, row_condition="unknown > 3")

# Names and types, by Spark's schema.
ALL_COLUMNS = [c for c in RECORDS[0] if not c.startswith("_")]
drawn("expect_table_columns_to_match_ordered_list", True, ..., column_list=ALL_COLUMNS)
drawn("expect_table_columns_to_match_ordered_list", False, ..., column_list=ALL_COLUMNS[::-1])
drawn("expect_table_columns_to_match_set", True, ..., column_set=ALL_COLUMNS[::-1])
drawn("expect_table_columns_to_match_set", False, ..., column_set=ALL_COLUMNS[1:])
drawn("expect_table_columns_to_match_set", True, ..., column_set=ALL_COLUMNS[1:], exact_match=False)
drawn("expect_table_column_count_to_equal", True, len(ALL_COLUMNS), value=len(ALL_COLUMNS))
drawn("expect_table_column_count_to_be_between", False, len(ALL_COLUMNS), max_value=3)
drawn(f"{C}to_exist", True, ..., column="half")
drawn(f"{C}to_exist", False, ..., column="nowhere")
for index in (0, 1):
    drawn(f"{C}to_exist", True, ..., column=ALL_COLUMNS[index], column_index=index)
    drawn(f"{C}to_exist", False, ..., column=ALL_COLUMNS[2], column_index=index)
for column, name in (
    ("half", "IntegerType"),
    ("price", "DecimalType"),
    ("moment", "TimestampType"),
    ("tags", "ArrayType"),
):
    drawn(f"{V}be_of_type", True, name, column=column, type_=name)
    drawn(f"{V}be_of_type", False, name, column=column, type_="StringType")
    drawn(f"{V}be_in_type_list", True, name, column=column, type_list=["StringType", name])
