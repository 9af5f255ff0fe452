"""Whether a batch can go on to its output, and what has become of it where it cannot; pure.

One answer for everybody who asks: advance, before it copies; write, skip and reprocess, before they put a new revision or a
decision in the batch's place. An obstacle that lasts ends a publication. One that does not, Kafka's own refusal, ends an attempt:
the next one may succeed once somebody has changed what Kafka named. Either way the publication may be given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.errors import NeedsOperator, TopicRecreated
from fencepost.model import Batch, OffsetRange, Publication, Receipt, State, Tally, describe_ranges
from fencepost.protocol.advice import write_again


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a batch finds of what it was planned with, by the names in its plan. A topic without an id does not exist.

    Of a staged batch: the deleted part of its staged offsets (`staged_gone`). While it is being published also the mark of each
    task-partition of its copy, None where it is gone, and why the output cannot tell what such marks stood for (`untold`).
    """

    output_topic_id: str
    ledger_topic_id: str = ""
    staging_topic_id: str = ""
    staged_gone: tuple[OffsetRange, ...] = ()
    marks: tuple[Receipt | None, ...] = ()
    untold: str = ""


@dataclass(frozen=True)
class Obstacle:
    """Why a batch cannot go on. `lasting`: no attempt can succeed any more, whatever is changed."""

    why: str
    kind: type[NeedsOperator] = NeedsOperator
    lasting: bool = True

    def error(self, batch: Batch) -> NeedsOperator:
        """The error that ends with the next step."""
        return self.kind(f"batch {batch.id}: {self.why}. {write_again(batch)}.")


@dataclass(frozen=True)
class GivenUp:
    """A publication that was given up: its lease, and how many of its records readers may have seen."""

    lease: int
    seen: int

    def is_of(self, batch: Batch) -> bool:
        """Whether it is the batch's present publication."""
        return batch.publication_under(self.lease) is not None

    def told(self, batch: Batch) -> str:
        """For the batch's history."""
        rows = batch.written.rows if batch.written else 0
        return f"given up while it was published, when readers may have seen {self.seen} of its {rows} records"


def obstacle(batch: Batch, found: Found) -> Obstacle | None:
    """What keeps a batch from its output, or None. A copy that is complete needs its staged records no more."""
    publication = batch.publication if batch.state is State.PUBLISHING else None
    output, since = batch.plan.output, "while it was published" if publication else "since it was planned"
    if output.topic_id != found.output_topic_id:
        return Obstacle(f"its output topic {output.topic} {_remade(found.output_topic_id)} {since}", TopicRecreated)
    if publication is not None and publication.ledger != found.ledger_topic_id:
        return Obstacle(
            "its ledger was made anew from a copy while it was published, so its lease says nothing about its marks"
        )
    copied = copied_receipts(publication, found.marks) if publication else None
    if copied is not None and is_whole(batch, copied):
        return None
    staging = batch.plan.staging
    if staging is not None and (batch.written is None or batch.is_staged):
        if staging.topic_id != found.staging_topic_id:
            return Obstacle(
                f"its staging topic {staging.topic} {_remade(found.staging_topic_id)} since it was planned",
                TopicRecreated,
            )
        if found.staged_gone:
            return Obstacle(
                f"its staging topic {staging.topic} no longer has {describe_ranges(found.staged_gone)}: retention "
                "(output.staging_hours when it was made), or somebody, deleted them before it was published"
            )
    if publication is None:
        return None
    refused = f"Kafka refused its copy: {publication.refused}" if publication.refused else ""
    if copied is not None:
        # Who gives a publication up closes what was not copied with empty marks, and may ask again before that is recorded.
        nothing = not sum(r.tally(output.topic).rows for r in copied)
        return Obstacle(refused if refused and nothing else "its copy does not hold the records that were written")
    if None in found.marks and found.untold:
        return Obstacle(f"marks of its publication are gone, and {found.untold}: nothing says what was copied")
    return Obstacle(refused, lasting=False) if refused else None


def copied_receipts(publication: Publication, marks: Sequence[Receipt | None]) -> tuple[Receipt, ...] | None:
    """The receipts of all task-partitions of the copy where its marks say that each has ended; else None."""
    own = (publication.ledger, publication.known_lease)
    done = tuple(m for m in marks if m is not None and (m.ledger, m.lease) == own)
    return done if len(done) == publication.tasks else None


def is_whole(batch: Batch, receipts: Sequence[Receipt]) -> bool:
    """Whether these receipts of all task-partitions of the copy hold the records that were written."""
    copied, wanted = Tally.total(r.tally(batch.plan.output.topic) for r in receipts), batch.known_written.tally
    return (copied.rows, copied.fingerprint) == (wanted.rows, wanted.fingerprint)


def _remade(topic_id: str) -> str:
    return "was deleted and created again" if topic_id else "was deleted"
