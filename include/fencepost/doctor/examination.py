"""Runs the doctor's checks in order. Some checks have to pass before others make sense."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fencepost.config.pipeline import Pipeline
from fencepost.doctor.certificates import check_certificates
from fencepost.doctor.fields import check_source_fields
from fencepost.doctor.folder import check_schedule, check_suite, check_transform
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.kafka import (
    check_expiry_of_marks,
    check_kafka,
    check_unfinished_batches,
)
from fencepost.doctor.ledger import (
    check_announcements,
    check_changed_sources,
    check_group_offsets,
    check_intervals_left_out,
    check_ledger,
    check_ledger_is_complete,
    check_unread_records,
)
from fencepost.doctor.limits import (
    check_longest_write,
    check_look_back,
    check_source_retention,
    check_transaction_timeout,
)
from fencepost.doctor.rights import check_rights
from fencepost.doctor.run_check import name_of, run_check
from fencepost.doctor.settings import check_schema_registry
from fencepost.doctor.side_tables import check_side_tables
from fencepost.doctor.topics import (
    check_ledger_topic,
    check_open_transactions,
    check_output_retention,
    check_record_size,
    check_replication,
    check_source_times,
    check_sources,
    check_table_topics,
    check_topics_of_batches,
)
from fencepost.findings import Answer, Finding, Level, skipped
from fencepost.outputs.output import checks_of

Check = Callable[[Inspection], Answer]

OF_FOLDER: tuple[Callable[[Pipeline], Answer], ...] = (
    check_transform,
    check_suite,
    check_schedule,
    check_schema_registry,
    check_side_tables,
)
# Each list runs only if the first check of its stage, and of the stages before, found no error.
OF_CLUSTER: tuple[Check, ...] = (
    check_rights,
    check_transaction_timeout,
    check_expiry_of_marks,
    check_replication,
    check_table_topics,
)
OF_SOURCE: tuple[Check, ...] = (
    check_source_times,
    check_source_fields,
    check_output_retention,
    check_ledger_topic,
    check_open_transactions,
)
OF_LEDGER: tuple[Check, ...] = (
    check_ledger_is_complete,
    check_unread_records,
    check_changed_sources,
    check_intervals_left_out,
    check_announcements,
    check_group_offsets,
    check_source_retention,
    check_look_back,
    check_unfinished_batches,
    check_topics_of_batches,
    check_longest_write,
    check_record_size,
)


def examine(pipeline: Pipeline) -> list[Finding]:
    """Runs all checks of a pipeline. It changes nothing and raises nothing, and each check ends within a minute."""
    found = [one for check in OF_FOLDER for one in run_check(check, pipeline)]
    inspection = Inspection(pipeline)
    found += run_check(check_certificates, inspection)
    stages: tuple[tuple[Check, str, Sequence[Check]], ...] = (
        (check_kafka, "Kafka does not answer", OF_CLUSTER),
        (check_sources, "the source topic cannot be seen", OF_SOURCE),
        (check_ledger, "the ledger cannot be read", OF_LEDGER),
    )
    if (of_output := checks_of(pipeline)) is not None:
        stages += ((of_output.first, of_output.without, of_output.others),)
    reason = ""
    for first, why_not, checks in stages:
        for check in (first, *checks):
            found += run_check(check, inspection) if not reason else [replace(skipped(reason), check=name_of(check))]
            if check is first and not reason and not _is_there(found):
                reason = why_not
    return list(_each_once(found))


def _each_once(found: Sequence[Finding]) -> Iterator[Finding]:
    """Yields the findings without repetitions. If several checks met the same error, such as a wrong suite, only the
    first reports it.
    """
    first_checks: dict[str, str] = {}
    for one in found:
        first = first_checks.setdefault(one.found, one.check) if one.level is Level.ERROR else one.check
        yield one if first == one.check else replace(skipped(f"the error of {first}"), check=one.check)


def _is_there(found: Sequence[Finding]) -> bool:
    """Returns whether the last check found no error. Other checks may then rely on it."""
    return found[-1].level in {Level.OK, Level.WARNING}
