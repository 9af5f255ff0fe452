"""Ledgers as small numbers, so that a state stays small and a decision is made once per ledger.

Two ledgers have the same number when they agree in all that decides: what is left out is history, times, and who wrote what
why. Of its history a batch keeps the last line, which errors quote. Leases are numbered by their order, which is all that is
ever asked of them.
"""

from __future__ import annotations

from typing import Any

import makers
from fencepost.model import Batch
from fencepost.outputs.topic.values import published_ends
from fencepost.protocol.view import View


class Ledgers:
    """`batches[n]` and `views[n]` are ledger n: the newest record of every revision, and the product's view of it."""

    def __init__(self) -> None:
        self.batches: list[tuple[Batch, ...]] = []
        self.views: list[View] = []
        self._numbers: dict[tuple[Any, ...], int] = {}

    def number(self, batches: tuple[Batch, ...]) -> int:
        """The number of the ledger with these batches."""
        batches = tuple(sorted(batches, key=lambda b: (b.interval.start, b.revision)))
        key = tuple(_key(b) for b in batches)
        if key not in self._numbers:
            self._numbers[key] = len(self.batches)
            self.batches.append(batches)
            self.views.append(View.of(batches))
        return self._numbers[key]

    def after(self, ledger: int, records: tuple[Batch, ...]) -> int:
        """The ledger with these records at its end; a new plan, or publication, gets its lease, as the
        ledger's reader would fill it in."""
        newest = {(b.interval, b.revision): b for b in self.batches[ledger]}
        for b in records:
            lease = len(newest) if b.lease is None else b.lease
            plan = b.plan.model_copy(update={"planned_at": makers.NOW, "staging_timestamp": None, "software": "model"})
            publication = b.publication
            if publication is not None and publication.lease is None:
                begun = 1 + sum(other.publication is not None for other in newest.values())
                publication = publication.model_copy(update={"lease": begun})
            kept = {"lease": lease, "plan": plan, "publication": publication, "history": b.history[-1:]}
            newest[b.interval, b.revision] = b.model_copy(update=kept)
        return self.number(tuple(newest.values()))


def _key(b: Batch) -> tuple[Any, ...]:
    return (
        b.interval.start,
        b.revision,
        b.adds_to,
        b.state,
        b.lease,
        b.plan.lane,
        tuple(sorted(b.plan.digests.items())),
        tuple((*r.partition_id, r.start, r.end) for r in b.plan.ranges),
        tuple((*r.partition_id, r.start, r.end) for r in b.plan.lost),
        b.plan.output.ends,
        b.plan.staging and b.plan.staging.ends,
        b.plan.quarantine and b.plan.quarantine.ends,
        b.plan.replays and b.plan.replays.batch,
        tuple((state.name, state.fingerprint) for state in b.plan.tables),
        b.publication
        and (
            b.publication.lane,
            b.publication.lease,
            b.publication.begun.ends,
            (ended := published_ends(b)) and ended.ends,
            b.publication.refused,
        ),
        b.written.output.ends if b.written else None,
        b.written.quarantined_tally.rows if b.written else None,
        b.verdict.outcome if b.verdict else None,
        b.decision and b.decision.action,
    )
