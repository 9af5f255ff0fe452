"""Every error Fencepost raises on purpose.

    FencepostError
    ├── Retriable                  the same command, run again, may succeed       exit code 3
    │   ├── KafkaUnavailable       no broker answered, or a broker answered "not now"
    │   ├── RegistryUnavailable    the schema registry did not answer, or answered "not now"
    │   ├── TableUnavailable       the store of an output table did not answer, or answered "not now"
    │   ├── ConnectionNotFound     Airflow has no connection of that name, or cannot say now
    │   ├── CommitStateUnknown     a commit was sent and no response came
    │   ├── CoordinatorFenced      another run took over the pipeline's ledger
    │   ├── WriterFenced           a newer attempt took over this writer's transactional.id
    │   │   └── TransactionTimedOut   the broker ended a transaction that was open for too long
    │   ├── WriteFailed            a transaction was aborted; readers see none of it
    │   ├── JobFailed              a read-only Spark job failed
    │   ├── DriverDied             Spark's JVM ended in the middle of a step
    │   ├── Overtaken              another attempt, or a newer state of the batch, was recorded first
    │   │   └── FactsOutdated         the ledger changed while a step gathered facts
    │   ├── NoFreeLane             a batch holds every lane
    │   └── OpenTransaction        another producer's open transaction hides committed records
    └── Terminal                   a person has to change or decide something
        ├── SettingsError          a file or an option is wrong                   exit code 2
        ├── AccessDenied           Kafka, the registry or the store refused a permission   exit code 2
        │   └── LoginRefused          or the login itself; a retry may help if it came from a connection
        ├── BatchRejected          the suite failed on a critical expectation     exit code 1
        │   └── TableRefusedData      the output table does not accept the batch's rows
        └── NeedsOperator          anything else that a retry cannot fix          exit code 4
            ├── SourceDataExpired, TopicRecreated, SourcesChanged, LedgerUnreadable, LedgerLost, AnnouncementsLost, GroupInUse,
            ├── MalformedRecords, TombstonesRefused, TransitionRefused, Superseded, VerdictUndetermined, ReceiptsDisagree,
            ├── RecordRefused, AnotherCluster, TransformNotDeterministic, TransformFailed, KafkaRefused, TableRefused,
            ├── TopicMissing, TruncationsRefused, SideTableRefused
            └── Unexpected         a defect in Fencepost
                └── NotRecorded    the ledger lacks a value that a step relies on

A message names the pipeline, batch, partition or transactional id it is about, and ends with the next step.
"""

from __future__ import annotations


class FencepostError(Exception):
    """The root of all errors. `exit_code` is the exit code of the command line."""

    exit_code = 4

    def __str__(self) -> str:
        """Returns the message as valid Unicode for any store and terminal, because file names in it may not be UTF-8."""
        return printable(super().__str__())


def printable(text: str) -> str:
    """Returns the text with escapes in place of invalid characters."""
    return text.encode("utf-8", "backslashreplace").decode()


class Retriable(FencepostError):
    """Nothing is lost, and nothing is done only in part. Run the same step again."""

    exit_code = 3


class KafkaUnavailable(Retriable):
    """No broker answered in time, or a broker asked to come back later."""


class RegistryUnavailable(Retriable):
    """The schema registry did not answer in time, or failed, or asked to come back later."""


class TableUnavailable(Retriable):
    """The store of an output table did not answer in time, or ended the session, or asked to come back later."""


class ConnectionNotFound(Retriable):
    """Airflow found no connection of that name. Airflow gives the same answer if a secrets backend does not respond."""


class CommitStateUnknown(Retriable):
    """A commit was sent and no response came. The next attempt finds the outcome, by init_transactions or by asking the
    database.
    """


class CoordinatorFenced(Retriable):
    """Another run of the same pipeline opened the ledger later, so this run's transaction was refused."""


class WriterFenced(Retriable):
    """A newer producer uses this writer's transactional.id, so this writer's transaction was refused."""


class TransactionTimedOut(WriterFenced):
    """The broker ended a transaction that was open for longer than its `transaction.timeout.ms`."""


class WriteFailed(Retriable):
    """A transaction was aborted before its commit. Readers with read_committed never see its records."""


class JobFailed(Retriable):
    """A read-only Spark job failed. Nothing was changed."""


class DriverDied(Retriable):
    """Spark's JVM ended during a step, most often because memory ran out."""


class Overtaken(Retriable):
    """Another attempt at the step, or a newer state of the batch, was recorded first and takes precedence."""


class FactsOutdated(Overtaken):
    """The ledger changed while a step gathered facts for a decision. The step gathers the facts again, a few times."""


class NoFreeLane(Retriable):
    """Every lane of the pipeline is held by a batch that is planned but not written yet."""


class OpenTransaction(Retriable):
    """Another producer's open transaction keeps the last stable offset behind the end of the data."""


class Terminal(FencepostError):
    """The same command would fail again. A person has to act."""


class SettingsError(Terminal):
    """A setting is wrong. The message names the file, the field, the wrong value and the allowed values."""

    exit_code = 2


class AccessDenied(Terminal):
    """Kafka, the schema registry or the store refused the credentials, or access to a topic, group, subject or table."""

    exit_code = 2


class LoginRefused(AccessDenied):
    """Kafka, the schema registry or the store refused the credentials themselves. If they come from a connection, they
    may have changed since it was looked up.
    """


class BatchRejected(Terminal):
    """A critical expectation failed. The batch is rejected, and no offset moved."""

    exit_code = 1


class TableRefusedData(BatchRejected):
    """The output table does not accept the batch's rows. None of the rows are in the table, and the batch is rejected.

    `why` has SQLSTATE, column and constraint, and no data of a row.
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why


class NeedsOperator(Terminal):
    """The state in Kafka or a database does not allow the step, and no retry will change that."""


class SourceDataExpired(NeedsOperator):
    """The source topic no longer has all records of a range."""


class TopicRecreated(NeedsOperator):
    """A topic was deleted and created again after the batch was planned, so its offsets belong to other records."""


class AnotherCluster(NeedsOperator):
    """The pipeline's Kafka is not the cluster of its last publication, and nobody has confirmed that the pipeline
    moved.
    """


class SourcesChanged(NeedsOperator):
    """The pipeline reads other topics than its newest batch, and nobody has confirmed the change. Or a batch needs a topic that
    the pipeline no longer reads.
    """


class LedgerUnreadable(NeedsOperator):
    """A record in the ledger is damaged, was not written by Fencepost, or was written by another version."""


class LedgerLost(NeedsOperator):
    """The ledger is empty or an old copy. The offsets of the pipeline's group, or its output, show batches that are not
    in the ledger.
    """


class AnnouncementsLost(NeedsOperator):
    """The topic of announcements lacks some of the ledger's announcements. `fencepost announce` writes it again."""


class GroupInUse(NeedsOperator):
    """The ledger has no batch, but the pipeline's group has offsets of the source. Another application uses the group, or the
    ledger was lost."""


class MalformedRecords(NeedsOperator):
    """Source records are malformed, and the pipeline has `on_malformed: fail`."""


class TombstonesRefused(NeedsOperator):
    """Source records have no value, and the pipeline has `tombstones: fail`."""


class TruncationsRefused(NeedsOperator):
    """The source table was truncated, and the pipeline has `truncations: fail`, which is the default with a current
    table.
    """


class SideTableRefused(NeedsOperator):
    """A side table is empty, too large, has a key twice, or has other columns than declared. Nothing is written."""


class TransitionRefused(NeedsOperator):
    """The batch's state does not allow the requested transition."""


class Superseded(NeedsOperator):
    """A newer revision or a later lease has replaced the batch's revision or lease during this attempt."""


class VerdictUndetermined(NeedsOperator):
    """The suite could not be evaluated in full, so nothing advances."""


class ReceiptsDisagree(NeedsOperator):
    """The records that a read_committed reader sees differ from the writers' receipts."""


class TransformNotDeterministic(NeedsOperator):
    """A retry's rows differ from the rows that an earlier attempt committed."""


class RecordRefused(NeedsOperator):
    """Kafka will never accept one of the output's records. For example, the record is too large, or does not fit the
    output's schema.
    """


class TransformFailed(NeedsOperator):
    """The transform, or a quarantine rule, failed on a record. The same record would fail again."""


class KafkaRefused(NeedsOperator):
    """Kafka refused a request, and would refuse it again."""


class TableRefused(NeedsOperator):
    """The output table or its database does not allow the publication: a different column, a missing partition, another owner."""


class TopicMissing(NeedsOperator):
    """A required topic does not exist."""


class Unexpected(NeedsOperator):
    """An error that only a defect in Fencepost explains."""


class NotRecorded(Unexpected):
    """The ledger lacks a value of a batch or interval that a step relies on. This is a defect in Fencepost."""


DEFECT = "This is a defect in Fencepost: report this line."
