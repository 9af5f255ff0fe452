"""The names of a pipeline's topics, consumer groups and transactional ids. Fencing depends on these names.

A broker knows nothing of pipelines, lanes and batches. A broker fences a writer once another writer takes the same
transactional id, and it keeps one offset for each partition of a group. So names decide which writer fences which
writer, and which mark overwrites which mark:

1. **A name belongs to one pipeline.** A pipeline's name has no dot. A pipeline's groups and ids are its name, or begin
   with the name and a dot. A pipeline's topics begin with `fencepost.`, its name and a dot. So no two pipelines share a
   name, and one prefix grants them all (`config/rights.py`).
2. **One id changes the ledger**, the coordinator's. If two runs change the ledger at once, the later run fences the
   earlier run.
3. **A mark of a lane is committed under one id for ever**, whichever batch holds the lane. The id has the topic and the
   partition of the mark, so it stays the same if a source or a partition comes or goes. So each attempt fences every
   earlier one, also those of earlier batches, and aborts the transaction that it left open.
4. **A mark is in the group of its lane**, and only ids of that lane write marks there. So a late attempt can overwrite
   only marks of its own lane, and the lease in a mark says which batch it belongs to.
5. **Lanes never share a name.** A batch's lane is written `<number>`, an addition's `replay-<number>`, and a
   publication's `publish-<number>`.

A writer that still runs is fenced by its name alone. If these names changed, nothing would fence it.
"""

from __future__ import annotations

import re

PIPELINE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Names:
    """The names of one pipeline's resources in Kafka. Settings may replace the names of the staging and the quarantine topic."""

    name: str

    @property
    def prefix(self) -> str:
        """Returns the prefix of every group and transactional id of the pipeline. The frontier's group has no prefix."""
        return f"{self.name}."

    @property
    def topic_prefix(self) -> str:
        """Returns the prefix of the pipeline's own topics."""
        return f"fencepost.{self.name}."

    @property
    def ledger_topic(self) -> str:
        """Returns the compacted topic that holds the truth about every batch."""
        return f"{self.topic_prefix}ledger"

    @property
    def announcements_topic(self) -> str:
        """Returns the topic that announces each publication, skip and withdrawal to readers."""
        return f"{self.topic_prefix}published"

    @property
    def default_staging_topic(self) -> str:
        """Returns the topic of batches that are not judged yet."""
        return f"{self.topic_prefix}staging"

    @property
    def default_quarantine_topic(self) -> str:
        """Returns the topic of malformed records and of records that failed a quarantine rule."""
        return f"{self.topic_prefix}quarantine"

    @property
    def coordinator_id(self) -> str:
        """Returns the transactional.id that writes the ledger."""
        return f"{self.prefix}coordinator"

    @property
    def group(self) -> str:
        """Returns the consumer group whose offsets are the frontier."""
        return self.name

    @property
    def validated_group(self) -> str:
        """Returns the consumer group whose offsets are the ends of validated output."""
        return f"{self.prefix}validated"

    def lane_group(self, lane: str) -> str:
        """Returns the consumer group that holds a lane's marks."""
        return f"{self.prefix}lane-{lane}"

    def malformed_group(self, lane: str) -> str:
        """Returns the consumer group that holds the marks of a lane's task-partitions for malformed records."""
        return f"{self.prefix}malformed-{lane}"

    def writer_id(self, lane: str, topic: str, partition: int) -> str:
        """Returns the transactional.id of the task-partitions of a lane whose marks are at this partition."""
        return f"{self.prefix}{lane}.{topic}.{partition}"

    def publisher_group(self, lane: int) -> str:
        """Returns the consumer group that holds a publishing lane's marks."""
        return f"{self.prefix}publish-{lane}"

    def publisher_id(self, lane: int, task: int) -> str:
        """Returns the transactional.id of one task-partition of a publishing lane."""
        return f"{self.prefix}publish-{lane}.{task}"
