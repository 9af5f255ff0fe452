"""Decides whether a pipeline's topics may be deleted. The topics may be deleted only if nothing of the pipeline is
published. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.counts import count_of, first_of
from fencepost.model import State
from fencepost.protocol.announcement import Announcement
from fencepost.protocol.view import View

LISTED = 3  # intervals in a text


def why_not_removed(view: View, announcements: Iterable[Announcement]) -> str:
    """Returns why nothing may be deleted. The reasons are the intervals that are published or being published, by the
    ledger or by the last announcement.

    The text is empty if there are none. Announcements are checked too, because they remain if the ledger is lost.
    """
    standing = {batch.interval for batch in view.all() if batch.state in {State.PUBLISHED, State.PUBLISHING}}
    announced = {one.interval: one.state for one in announcements}
    published = sorted(
        {*standing, *(interval for interval, state in announced.items() if state == State.PUBLISHED.value)},
        key=lambda interval: interval.start,
    )
    if not published:
        return ""
    what = count_of(len(published), "interval is", "intervals are")
    return f"{what} published, or being published ({first_of([one.description for one in published], LISTED)})"
