"""A current table has one row for each key of an output table: the newest row of that key. Pure, for any store.

The output table is the history. Each publication computes the keys that it touches from the history, in its own commit.
So a reprocess or a replay brings older values back. Nothing is computed if the current table may differ from the
history already. The current table then stays as it is, is marked stale, and is computed as a whole once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fencepost.counts import count_of
from fencepost.formats.framing import ExcludedKind
from fencepost.model import Interval, State
from fencepost.protocol.view import View

NOT_COMPUTED = "it was not computed yet, because the output table or the current table had rows when it was added"
PUBLISHED_WITHOUT = "a batch was published while output.current did not name it"


@dataclass(frozen=True)
class CurrentBasis:
    """What a current table was computed from: the tables by number, so that another table of the same name is noticed,
    and a digest of columns, key, order and `deleted`.

    `oid` is the current table's number. All are None or empty for a current table that is reserved and not there yet.
    """

    history: str
    oid: int | None = None
    history_oid: int | None = None
    digest: str = ""


@dataclass(frozen=True)
class RegisteredCurrent:
    """A current table in the store. `stale` says why it may differ from the history, and is empty if it does not."""

    basis: CurrentBasis
    stale: str = ""


def digest_of(
    columns: Sequence[Mapping[str, str]], key: Sequence[str], order_by: Sequence[str], deleted: str | None
) -> str:
    """Returns the digest of what decides a current table's rows. `columns` has the type of each column, of both tables."""
    decides = [[sorted(one.items()) for one in columns], list(key), list(order_by), deleted]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]


def why_stale(registered: RegisteredCurrent, present: CurrentBasis, same: Sequence[str], lacking: int) -> str:
    """Returns why a publication must not touch the current table. The text is empty if it may.

    `same` are digests that count as the present one: columns were added that are null in every row of both tables.
    `lacking` is the number of published intervals whose rows the history lacks, before this publication.
    """
    if registered.stale:
        return registered.stale
    basis = registered.basis
    if basis.history != present.history:
        return f"it was computed from table {basis.history}, and the output table is {present.history}"
    if basis.history_oid != present.history_oid:
        return f"table {present.history} was replaced (restored, moved, swapped or created again)"
    if basis.oid != present.oid:
        return "it was replaced (restored, moved, swapped or created again)"
    if basis.digest not in {present.digest, *same}:
        return "its columns, key, order_by or deleted have changed"
    if lacking:
        return f"table {present.history} lacks rows of {count_of(lacking, 'published interval')}"
    return ""


def describe_stale(pipeline: str, table: str, why: str) -> str:
    """Returns the sentence about a stale current table, with the command that computes it. The text is empty if it is
    not stale.
    """
    if not why:
        return ""
    return (
        f"current table {table} is stale, so publications do not change it: {why}. `fencepost current {pipeline} --rebuild` "
        "computes it from the output table"
    )


def truncated_intervals(view: View, history: str) -> list[Interval]:
    """Returns the intervals, in order, whose rows in the output table leave out a truncation of the source table. The
    output table has the rows that the truncation removed, and no deletions of them.
    """
    found = list[Interval]()
    for interval, revisions in view.in_order:
        if revisions.in_force.state is State.PUBLISHED:
            batches = [revisions.in_force, *revisions.additions_in_force]
            written = [one.written for one in batches if one.plan.output.name == history and one.written is not None]
            if any(one.excluded.get(ExcludedKind.TRUNCATIONS) for one in written):
                found.append(interval)
    return found


def describe_truncated(intervals: Sequence[Interval], why: str) -> str:
    """Returns the sentence about published truncations that a batch would be refused for by the setting `why`. The text
    is empty if there are none.
    """
    if not intervals or not why:
        return ""
    return (
        f"a truncation of the source table is in {count_of(len(intervals), 'published interval')}, the last of them "
        f"{intervals[-1]}, and {why}: the output table has no deletions of the rows that it removed"
    )
