"""Gives the checks a pipeline's settings, cluster, topics and ledger. Each is read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice

from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, TopicMissing
from fencepost.kafka.client_settings import TRANSACTION_TIMEOUT_MS
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Interval, utc_now
from fencepost.outputs.output import Destination, destination_of
from fencepost.protocol.view import View

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
PATIENCE = 10.0  # seconds for one response from Kafka; a check may give up earlier than a step


@dataclass(frozen=True)
class Role:
    """A topic and its role in the pipeline. `topic` is None if it does not exist. `settings` is None if Kafka does not
    let the user read them.
    """

    role: str
    name: str
    topic: Topic | None
    settings: Mapping[str, str] | None

    @property
    def there(self) -> Topic:
        """Returns the topic, which has to exist.

        Raises:
            TopicMissing: the topic does not exist.
        """
        if self.topic is None:
            raise TopicMissing(f"topic {self.name}, the {self.role}, does not exist. Create it, then run again.")
        return self.topic


class Inspection:
    """One pipeline under examination. The examination changes nothing: no topic, no offset, no transactional id, no
    group.
    """

    def __init__(self, pipeline: Pipeline, deployment: Deployment | None = None, view: View | None = None) -> None:
        """Keeps the pipeline. A step passes its own deployment and view."""
        self.pipeline = pipeline
        self.now: datetime = utc_now()
        self._view = view
        self._deployment = deployment

    @cached_property
    def deployment(self) -> Deployment:
        """Returns the pipeline on its cluster. If no step passed the deployment, its requests to Kafka wait at most
        `PATIENCE` seconds.
        """
        return self._deployment or Deployment.of(self.pipeline, timeout=PATIENCE)

    @property
    def ledger(self) -> Ledger:
        """Returns the pipeline's ledger."""
        return self.deployment.ledger

    @property
    def cluster(self) -> Cluster:
        """Returns the Kafka cluster."""
        return self.deployment.cluster

    @property
    def bootstrap(self) -> str:
        """Returns the cluster's bootstrap servers, for messages and commands."""
        return self.cluster.settings.bootstrap

    @property
    def view(self) -> View:
        """Returns the ledger's contents. The view is empty if there is no ledger."""
        if self._view is None:
            self._view = self.ledger.peek()
        return self._view

    def read_again(self) -> bool:
        """Reads the ledger again. Returns whether it has changed."""
        before, self._view = self.view, self.ledger.peek()
        return self._view != before

    @cached_property
    def sources(self) -> list[Role]:
        """Returns the source topics. Raises TopicMissing if one does not exist."""
        topics = [self.cluster.describe(name) for name in self.pipeline.source_topics]
        return [Role("source", topic.name, topic, self._settings(topic.name)) for topic in topics]

    @cached_property
    def own_topics(self) -> list[Role]:
        """Returns the topics that the pipeline writes to, by its settings: output, staging, quarantine, ledger and
        announcements.
        """
        return [self._role(role, name) for role, name in self._own_names()]

    @cached_property
    def destination(self) -> Destination:
        """Returns the destination of the next batch."""
        return destination_of(self.deployment)

    def role(self, role: str) -> Role | None:
        """Returns the topic with that role. Returns None if the pipeline has no such topic, or if it does not exist."""
        return next((one for one in self.own_topics if one.role == role and one.topic is not None), None)

    @cached_property
    def brokers(self) -> int:
        """Returns the number of brokers."""
        return self.cluster.brokers()

    @cached_property
    def marks_kept_for(self) -> timedelta:
        """Returns how long Kafka keeps a mark at least."""
        return self.cluster.marks_kept_for()

    @property
    def transaction_timeout(self) -> timedelta:
        """Returns how long a transaction of the pipeline may be open."""
        named = self.cluster.settings.values.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        return timedelta(milliseconds=int(named))

    @cached_property
    def transaction_limit(self) -> timedelta:
        """Returns the broker's upper limit for the timeout of transactions."""
        return timedelta(milliseconds=int(self.cluster.broker_config("transaction.max.timeout.ms", "900000")))

    @cached_property
    def has_groups(self) -> bool:
        """Returns whether any group has ever committed an offset. Returns True if the user may not know. A request
        about a group would create the topic of offsets.
        """
        try:
            return self.cluster.find(OFFSETS) is not None
        except AccessDenied:
            return True

    @property
    def newest_batches(self) -> list[Batch]:
        """Returns the latest revisions, at most a hundred."""
        return self.view.all()[-100:]

    @cached_property
    def newest_due(self) -> Interval:
        """Returns the newest interval of the cron that has ended. It may be before the schedule's start."""
        cron = self.pipeline.schedule.boundaries
        end = cron.at_or_before(self.now)
        return Interval(start=cron.before(end), end=end)

    @cached_property
    def longest_pause(self) -> timedelta:
        """Returns the duration of the longest of the schedule's next intervals."""
        following = islice(self.pipeline.schedule.boundaries.intervals_from(self.now), 31)
        return max(interval.end - interval.start for interval in following)

    def command(self, tool: str, *options: str) -> str:
        """Returns a command line of one of Kafka's tools."""
        values = self.cluster.settings.values
        login = (
            ("--command-config", "client.properties")
            if values.get("security.protocol", "PLAINTEXT") != "PLAINTEXT"
            else ()
        )
        return " ".join([f"{tool}.sh", "--bootstrap-server", self.bootstrap, *login, *options])

    def set_topic(self, topic: str, **values: object) -> str:
        """Returns the command that changes a topic's settings. `_` in a setting's name stands for `.`."""
        config = ",".join(f"{name.replace('_', '.')}={value}" for name, value in values.items())
        return self.command(
            "kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", config
        )

    def _own_names(self) -> Iterator[tuple[str, str]]:
        for topic in self.pipeline.output.topics:
            yield "output", topic
        if self.pipeline.output.is_staged:
            yield "staging", self.pipeline.staging_topic
        if self.pipeline.quarantines:
            yield "quarantine", self.pipeline.quarantine_topic
        yield "ledger", self.pipeline.ledger_topic
        yield "announcements", self.pipeline.announcements_topic

    def _role(self, role: str, name: str) -> Role:
        topic = self.cluster.find(name)
        return Role(role, name, topic, self._settings(name) if topic is not None else None)

    def _settings(self, topic: str) -> Mapping[str, str] | None:
        try:
            return self.cluster.topic_configs(topic)
        except AccessDenied:
            return None


def duration(duration: timedelta) -> str:
    """Returns a duration as text, in seconds, minutes, hours or days."""
    seconds = duration.total_seconds()
    unit, size = next(
        (
            one
            for one in (("day", 86_400), ("hour", 3_600), ("minute", 60))
            if seconds >= one[1] * (3 if one[0] == "day" else 1)
        ),
        ("second", 1),
    )
    number = f"{seconds / size:.1f}".removesuffix(".0") if unit == "hour" else f"{seconds / size:.0f}"
    return f"{number} {unit}{'' if number == '1' else 's'}"
