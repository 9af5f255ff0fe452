"""Which checks there are, in which order, and what each needs: all of them for a person, the cheap ones for a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fencepost.config.pipeline import Pipeline
from fencepost.doctor.certificates import check_certificates
from fencepost.doctor.finding import Answer, Finding, Level, ask, name_of, require, skipped, tell
from fencepost.doctor.kafka import (
    check_expiry_of_marks,
    check_kafka,
    check_longest_write,
    check_transaction_timeout,
    check_unfinished_batches,
)
from fencepost.doctor.ledger import check_group_offsets, check_ledger, check_ledger_is_complete
from fencepost.doctor.look import Look
from fencepost.doctor.rights import check_rights
from fencepost.doctor.settings import check_pipeline, check_schema_registry, check_suite, check_transform
from fencepost.doctor.topics import (
    check_ledger_topic,
    check_open_transactions,
    check_output_retention,
    check_record_size,
    check_replication,
    check_source,
    check_source_retention,
    check_source_times,
    check_topics_of_batches,
)
from fencepost.ledger.ledger import Ledger
from fencepost.protocol.view import View

Check = Callable[[Look], Answer]

OF_FOLDER: tuple[Callable[[Pipeline], Answer], ...] = (check_transform, check_suite, check_schema_registry)
# Each list needs that the checks before it, which others rest on, found no error.
OF_CLUSTER: tuple[Check, ...] = (check_rights, check_transaction_timeout, check_expiry_of_marks, check_replication)
OF_SOURCE: tuple[Check, ...] = (
    check_source_times,
    check_output_retention,
    check_ledger_topic,
    check_open_transactions,
)
OF_LEDGER: tuple[Check, ...] = (
    check_ledger_is_complete,
    check_group_offsets,
    check_source_retention,
    check_unfinished_batches,
    check_topics_of_batches,
    check_longest_write,
    check_record_size,
)


def examine(pipeline: Pipeline) -> list[Finding]:
    """All that the checks find about a pipeline. Changes nothing; raises nothing; each check ends within a minute."""
    found = [one for check in OF_FOLDER for one in ask(check, pipeline)]
    look = Look(pipeline)
    found += ask(check_certificates, look)
    stages: tuple[tuple[Check, str, Sequence[Check]], ...] = (
        (check_kafka, "Kafka does not answer", OF_CLUSTER),
        (check_source, "the source topic cannot be seen", OF_SOURCE),
        (check_ledger, "the ledger cannot be read", OF_LEDGER),
    )
    reason = ""
    for first, why_not, checks in stages:
        for check in (first, *checks):
            found += ask(check, look) if not reason else [replace(skipped(reason), check=name_of(check))]
            if check is first and not reason and not _is_there(found):
                reason = why_not
    return found


def _is_there(found: Sequence[Finding]) -> bool:
    """Whether the last check found what others rest on."""
    return found[-1].level in {Level.OK, Level.WARNING}


def check_before_plan(ledger: Ledger, view: View) -> None:
    """The cheap checks, for a step that plans: a few requests at most, and no Spark. Warnings are logged.

    Lost records of the source stop the plan only where the planned ranges have them, which the plan itself finds.

    Raises:
        SettingsError: transform or suite would fail.
    """
    pipeline, look = ledger.pipeline, Look(ledger.pipeline, ledger, view)
    check_pipeline(pipeline)
    tell([check_longest_write(look), *check_source_retention(look)], f"pipeline {pipeline.name}")


def check_limits(ledger: Ledger) -> None:
    """The broker's limits, before topics are made.

    Raises:
        SettingsError: the broker would refuse every transaction.
    """
    require([check_transaction_timeout(Look(ledger.pipeline, ledger))], f"pipeline {ledger.pipeline.name}")
