"""Every error Fencepost raises on purpose.

    FencepostError
    ├── Retriable                  the same command, run again, may succeed       exit code 3
    │   ├── KafkaUnavailable       no broker answered, or it answered "not now"
    │   ├── CommitStateUnknown     a commit was sent and its outcome not heard
    │   ├── CoordinatorFenced      another run took the pipeline's ledger over
    │   ├── WriterFenced           a newer attempt took this writer's transactional.id over
    │   │   └── TransactionTimedOut   or the broker ended its transaction, which was open for too long
    │   ├── WriteFailed            a transaction was aborted; nothing of it is visible
    │   ├── JobFailed              a Spark job failed that only reads
    │   ├── DriverDied             the JVM that runs Spark ended in the middle of a step
    │   ├── Overtaken              another attempt at the step, or something newer, was recorded first
    │   ├── NoFreeLane             as many batches are being written as there are lanes
    │   └── OpenTransaction        another producer's open transaction hides committed records
    └── Terminal                   a person has to change or decide something
        ├── SettingsError          a file or an option is wrong                   exit code 2
        ├── AccessDenied           Kafka refused the credentials or the right     exit code 2
        ├── BatchRejected          the suite failed on a critical expectation     exit code 1
        └── NeedsOperator          anything else a retry cannot mend              exit code 4
            ├── SourceDataExpired, TopicRecreated, LedgerUnreadable, LedgerLost, MalformedRecords,
            ├── TransitionRefused, Superseded, VerdictUndetermined, ReceiptsDisagree, RecordRefused,
            ├── TransformNotDeterministic, TransformFailed, KafkaRefused, TopicMissing
            └── Unexpected         a defect of Fencepost's own

A message names the pipeline, batch, partition or transactional id it is about, and ends with what to do next.
"""

from __future__ import annotations


class FencepostError(Exception):
    """Root of the tree. `exit_code` is what the command line ends with."""

    exit_code = 4


class Retriable(FencepostError):
    """Nothing is lost and nothing is half done: the same step run again decides."""

    exit_code = 3


class KafkaUnavailable(Retriable):
    """No broker answered in time, or a broker asked to come back later."""


class CommitStateUnknown(Retriable):
    """A commit was sent and not answered. The next attempt's init_transactions settles it."""


class CoordinatorFenced(Retriable):
    """Another run of the same pipeline opened the ledger after us, so our transaction was refused."""


class WriterFenced(Retriable):
    """A newer producer with the same transactional.id exists; this one's transaction was refused."""


class TransactionTimedOut(WriterFenced):
    """The broker ended a transaction that was open for longer than its `transaction.timeout.ms`."""


class WriteFailed(Retriable):
    """A transaction was aborted before its commit; readers with read_committed never see it."""


class JobFailed(Retriable):
    """A Spark job that only reads failed; nothing was changed."""


class DriverDied(Retriable):
    """Spark's JVM ended, most often for want of memory, while a step was at work."""


class Overtaken(Retriable):
    """Another attempt at the same step, or something newer than an answer is about, was recorded first and takes precedence."""


class NoFreeLane(Retriable):
    """Every lane of the pipeline is held by a batch that is planned and not yet written."""


class OpenTransaction(Retriable):
    """The last stable offset stayed behind the end of the data: another producer has an open transaction."""


class Terminal(FencepostError):
    """Running the same thing again ends the same way; a person has to act."""


class SettingsError(Terminal):
    """A setting is wrong. Names file, field, what was found and what is allowed."""

    exit_code = 2


class AccessDenied(Terminal):
    """Kafka refused the credentials, or the right to a topic, group or transactional id."""

    exit_code = 2


class BatchRejected(Terminal):
    """A critical expectation failed: the ledger says rejected and no offset moved."""

    exit_code = 1


class NeedsOperator(Terminal):
    """The state in Kafka does not allow the step, and no retry will change that."""


class SourceDataExpired(NeedsOperator):
    """Records of a frozen or contiguous range are no longer in the source topic."""


class TopicRecreated(NeedsOperator):
    """A topic has another id than when the batch was planned: its offsets mean other records."""


class LedgerUnreadable(NeedsOperator):
    """A record in the ledger is not Fencepost's, is damaged, or was written by a newer version."""


class LedgerLost(NeedsOperator):
    """The ledger is empty or an old copy: the pipeline's group or its output's records know of batches that it lacks."""


class MalformedRecords(NeedsOperator):
    """Source records do not parse and the pipeline says `on_malformed: fail`."""


class TransitionRefused(NeedsOperator):
    """The batch's state does not allow the transition that was asked for."""


class Superseded(NeedsOperator):
    """A newer revision or a later lease took the batch's place while this attempt was at work."""


class VerdictUndetermined(NeedsOperator):
    """The suite could not be evaluated in full, so there is no verdict and nothing advances."""


class ReceiptsDisagree(NeedsOperator):
    """What read_committed shows is not what the writers' receipts say was committed."""


class TransformNotDeterministic(NeedsOperator):
    """A retry's rows are not those that the chain before it has committed."""


class RecordRefused(NeedsOperator):
    """Kafka will never take one of the output's records (too large, for example)."""


class TransformFailed(NeedsOperator):
    """The transform's own code, or an expression in it, failed on a record: the same record fails again."""


class KafkaRefused(NeedsOperator):
    """Kafka answered that it will not do what was asked, and would answer so again."""


class TopicMissing(NeedsOperator):
    """A topic that is needed does not exist."""


class Unexpected(NeedsOperator):
    """An error that only a defect of Fencepost's explains."""
