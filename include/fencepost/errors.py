"""Every error Fencepost raises on purpose.

    FencepostError
    ├── Retriable                  the same command, run again, may succeed       exit code 3
    │   ├── KafkaUnavailable       no broker answered, or a broker answered "not now"
    │   ├── RegistryUnavailable    the schema registry did not answer, or answered "not now"
    │   ├── StoreUnavailable       the store of an output table did not answer, or answered "not now"
    │   ├── ConnectionNotFound     Airflow has no connection of that name, or cannot say now
    │   ├── CommitStateUnknown     a commit was sent and no answer came
    │   ├── CoordinatorFenced      another run took over the pipeline's ledger
    │   ├── WriterFenced           a newer attempt took over this writer's transactional.id
    │   │   └── TransactionTimedOut   the broker ended a transaction that was open for too long
    │   ├── WriteFailed            a transaction was aborted; none of it is visible
    │   ├── JobFailed              a read-only Spark job failed
    │   ├── DriverDied             Spark's JVM ended in the middle of a step
    │   ├── Overtaken              another attempt at the step, or something newer, was recorded first
    │   │   └── FactsOutdated         the ledger changed while a step asked what its decision depends on
    │   ├── NoFreeLane             a batch holds every lane
    │   └── OpenTransaction        another producer's open transaction hides committed records
    └── Terminal                   a person has to change or decide something
        ├── SettingsError          a file or an option is wrong                   exit code 2
        ├── AccessDenied           Kafka, the registry or the store refused a permission   exit code 2
        │   └── LoginRefused          or the login itself. If it came from a connection, it is worth another try
        ├── BatchRejected          the suite failed on a critical expectation     exit code 1
        │   └── TableRefusedData      the output table does not take the batch's rows
        └── NeedsOperator          anything else that a retry cannot fix          exit code 4
            ├── SourceDataExpired, TopicRecreated, LedgerUnreadable, LedgerLost, AnnouncementsLost, GroupInUse,
            ├── MalformedRecords, TombstonesRefused, TransitionRefused, Superseded, VerdictUndetermined, ReceiptsDisagree,
            ├── RecordRefused, AnotherCluster, TransformNotDeterministic, TransformFailed, KafkaRefused, StoreRefused,
            ├── TopicMissing
            └── Unexpected         a defect in Fencepost
                └── NotRecorded    a step needs of a batch what the ledger does not have

A message names the pipeline, batch, partition or transactional id it is about, and ends with the next step.
"""

from __future__ import annotations


class FencepostError(Exception):
    """Root of the tree. `exit_code` is the exit code of the command line."""

    exit_code = 4

    def __str__(self) -> str:
        """The message, as text that any store and any terminal takes: the name of a file need not be UTF-8."""
        return printable(super().__str__())


def printable(text: str) -> str:
    """The text, with what is no character written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


class Retriable(FencepostError):
    """Nothing is lost and nothing is half done: run the same step again."""

    exit_code = 3


class KafkaUnavailable(Retriable):
    """No broker answered in time, or a broker asked to come back later."""


class RegistryUnavailable(Retriable):
    """The schema registry did not answer in time, or failed, or asked to come back later."""


class StoreUnavailable(Retriable):
    """The store of an output table did not answer in time, or ended the session, or asked to come back later."""


class ConnectionNotFound(Retriable):
    """No connection of that name was found in Airflow, which says the same of one whose secrets backend does not answer."""


class CommitStateUnknown(Retriable):
    """A commit was sent and no answer came. The next attempt settles it: by init_transactions, or by asking the store."""


class CoordinatorFenced(Retriable):
    """Another run of the same pipeline opened the ledger after us, so our transaction was refused."""


class WriterFenced(Retriable):
    """A newer producer has this writer's transactional.id, so this writer's transaction was refused."""


class TransactionTimedOut(WriterFenced):
    """The broker ended a transaction that was open for longer than its `transaction.timeout.ms`."""


class WriteFailed(Retriable):
    """A transaction was aborted before its commit; readers with read_committed never see it."""


class JobFailed(Retriable):
    """A read-only Spark job failed; nothing was changed."""


class DriverDied(Retriable):
    """Spark's JVM ended during a step, most often because memory ran out."""


class Overtaken(Retriable):
    """Another attempt at the step, or something newer than the answer, was recorded first and takes precedence."""


class FactsOutdated(Overtaken):
    """The ledger changed while a step gathered what its decision depends on. The step gathers it again, a few times."""


class NoFreeLane(Retriable):
    """Every lane of the pipeline is held by a batch that is planned but not written yet."""


class OpenTransaction(Retriable):
    """Another producer's open transaction keeps the last stable offset behind the end of the data."""


class Terminal(FencepostError):
    """Running the same thing again ends the same way; a person has to act."""


class SettingsError(Terminal):
    """A setting is wrong. The message names the file, the field, what was found and what is allowed."""

    exit_code = 2


class AccessDenied(Terminal):
    """Kafka, the schema registry or the store refused the credentials, or access to a topic, group, subject or table."""

    exit_code = 2


class LoginRefused(AccessDenied):
    """The credentials themselves were refused. Those of a connection may have been rotated since it was looked up."""


class BatchRejected(Terminal):
    """A critical expectation failed: the ledger says rejected and no offset moved."""

    exit_code = 1


class TableRefusedData(BatchRejected):
    """The output table does not take the batch's rows: nothing of it is there, and the ledger says rejected.

    `why` has SQLSTATE, column and constraint, and nothing of a row.
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why


class NeedsOperator(Terminal):
    """The state in Kafka does not allow the step, and no retry will change that."""


class SourceDataExpired(NeedsOperator):
    """Records of a frozen or contiguous range are no longer in the source topic."""


class TopicRecreated(NeedsOperator):
    """A topic was deleted and created again after the batch was planned: its offsets mean other records."""


class AnotherCluster(NeedsOperator):
    """The pipeline's Kafka is another cluster than the one of its last publication, and nobody said that it has moved."""


class LedgerUnreadable(NeedsOperator):
    """A record in the ledger is damaged, was not written by Fencepost, or was written by another version."""


class LedgerLost(NeedsOperator):
    """The ledger is empty or an old copy: the pipeline's group, or records in its output, show batches that it lacks."""


class AnnouncementsLost(NeedsOperator):
    """The topic of announcements lacks some that the ledger has made; the ledger can write it again."""


class GroupInUse(NeedsOperator):
    """The ledger has no batch, but the pipeline's group has offsets of the source: somebody else's, or those of a lost ledger."""


class MalformedRecords(NeedsOperator):
    """Source records do not parse and the pipeline says `on_malformed: fail`."""


class TombstonesRefused(NeedsOperator):
    """Source records have no value and the pipeline says `tombstones: fail`."""


class TransitionRefused(NeedsOperator):
    """The batch's state does not allow the requested transition."""


class Superseded(NeedsOperator):
    """A newer revision or a later lease took the batch's place during this attempt."""


class VerdictUndetermined(NeedsOperator):
    """The suite could not be evaluated in full, so nothing advances."""


class ReceiptsDisagree(NeedsOperator):
    """What a read_committed reader sees differs from the writers' receipts."""


class TransformNotDeterministic(NeedsOperator):
    """A retry's rows differ from those that an earlier attempt committed."""


class RecordRefused(NeedsOperator):
    """Kafka will never take one of the output's records (too large, for example), or the output's schema does not hold it."""


class TransformFailed(NeedsOperator):
    """The transform's own code, or an expression in it, failed on a record: the same record fails again."""


class KafkaRefused(NeedsOperator):
    """Kafka refused a request, and would refuse it again."""


class StoreRefused(NeedsOperator):
    """The output table, or its store, is not as it has to be: a column that differs, a missing partition, another owner."""


class TopicMissing(NeedsOperator):
    """A required topic does not exist."""


class Unexpected(NeedsOperator):
    """An error that only a defect in Fencepost explains."""


class NotRecorded(Unexpected):
    """The ledger does not have of a batch or an interval what a step relies on: a defect in Fencepost."""


DEFECT = "This is a defect in Fencepost: report this line."
