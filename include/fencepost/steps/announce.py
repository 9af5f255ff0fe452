"""Writes the topic of announcements again, from the ledger's history, where it was lost."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import NeedsOperator
from fencepost.ledger.announcements import lacking, read_announcements
from fencepost.ledger.ledger import Change, Ledger
from fencepost.protocol.announcing import history
from fencepost.protocol.view import View


@dataclass(frozen=True)
class Again:
    """How many announcements were `written`, and how many the topic `had` already."""

    topic: str
    written: int = 0
    had: int = 0

    @property
    def message(self) -> str:
        """One sentence for a person."""
        if self.written:
            return (
                f"wrote {count_of(self.written, 'announcement')} to topic {self.topic}. Readers begin there anew: its "
                "offsets are others"
            )
        return f"topic {self.topic} has all {count_of(self.had, 'announcement')}: nothing to do"


def announce_again(pipeline: Pipeline) -> Again:
    """Write the topic anew if it is missing or empty, all in one transaction; find it whole otherwise. Idempotent.

    Raises:
        TransitionRefused: there is no ledger.
        NeedsOperator: it has some, and others are missing: these would come behind them, and out of order.
    """
    ledger, found = Ledger(pipeline), Again(pipeline.announcements_topic)

    def decide(view: View) -> Change:
        # Asked behind init_transactions: of two who write it again, one finds it written.
        nonlocal found
        announcements, wanted = ledger.announcements, history(view, ledger.cluster.id)
        topic = announcements.create(ledger.cluster.find(announcements.name))
        kept = [one for _, one in read_announcements(ledger.settings, ledger.cluster, topic, pipeline.group)]
        missing, begin = lacking(kept, wanted), ledger.cluster.earliest(topic)[0]
        if missing and (kept or begin):
            raise NeedsOperator(
                f"pipeline {pipeline.name}: topic {topic.name} has {count_of(len(kept), 'announcement')} from offset {begin} "
                f"on and lacks {len(missing):,}, the first of batch {missing[0].batch}, {missing[0].state}. Behind the others "
                f"they would be out of order. Delete the topic (kafka-topics.sh --delete --topic {topic.name}), then run this "
                "again."
            )
        found = Again(topic.name, len(missing), len(kept))
        is_known = announcements.is_whole(topic) or not wanted
        return Change() if is_known and not missing else Change(announcements=tuple(missing), announced_in=topic)

    ledger.transact(decide)
    return found
