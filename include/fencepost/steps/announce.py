"""Writes a lost topic of announcements again, from the ledger's history."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import NeedsOperator
from fencepost.ledger.announcements import missing_announcements, read_announcements
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change
from fencepost.protocol.announcing import history
from fencepost.protocol.view import View


@dataclass(frozen=True)
class AnnounceResult:
    """The result: how many announcements were `written`, and how many the topic `had` before."""

    topic: str
    written: int = 0
    had: int = 0

    @property
    def message(self) -> str:
        """Returns the result in a sentence or two."""
        if self.written:
            return (
                f"wrote {count_of(self.written, 'announcement')} to topic {self.topic}. Its offsets have changed, so readers "
                "begin at its start"
            )
        return f"topic {self.topic} has all {count_of(self.had, 'announcement')}: nothing to do"


def announce_again(pipeline: Pipeline) -> AnnounceResult:
    """Writes all announcements in one transaction if the topic is missing or empty. Otherwise the function checks that
    the topic is complete. It is idempotent.

    Raises:
        TransitionRefused: there is no ledger.
        NeedsOperator: the topic has some announcements and lacks others. If these were added, the announcements would
            be out of order.
    """
    deployment, found = Deployment.of(pipeline), AnnounceResult(pipeline.announcements_topic)
    cluster = deployment.cluster

    def decide(view: View) -> Change:
        # Read after init_transactions: if two processes write it again, the second finds it written.
        nonlocal found
        announcements, wanted = deployment.ledger.announcements, history(view, cluster.id)
        topic = announcements.create(cluster.find(announcements.name))
        kept = [one for _, one in read_announcements(cluster, topic, pipeline.group)]
        missing, begin = missing_announcements(kept, wanted), cluster.earliest(topic)[0]
        if missing and (kept or begin):
            raise NeedsOperator(
                f"pipeline {pipeline.name}: topic {topic.name} has {count_of(len(kept), 'announcement')} from offset "
                f"{begin} on and lacks {len(missing):,}, the first of them for batch {missing[0].batch}, "
                f"{missing[0].state}. If they were written now, they would follow later announcements. Delete the "
                f"topic (kafka-topics.sh --delete --topic {topic.name}), then run this again."
            )
        found = AnnounceResult(topic.name, len(missing), len(kept))
        is_known = announcements.is_whole(topic) or not wanted
        return Change() if is_known and not missing else Change(announcements=tuple(missing), announced_in=topic)

    deployment.ledger.transact(decide)
    return found
