"""Drafts the text of `pipeline.yaml`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import indent

from fencepost.config.intervals import in_zone
from fencepost.config.source import Source
from fencepost.counts import count_of
from fencepost.drafting.columns import Fields
from fencepost.drafting.connection import DraftConnection
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.draft_source import DraftSource
from fencepost.drafting.times import ChosenInterval
from fencepost.drafting.writing import column_line, listed, scalar, with_comments
from fencepost.formats import FORMATS
from fencepost.kafka.sample import Sample
from fencepost.model import Interval, Layout
from fencepost.protocol.unread import EPOCH, FIRST_CREDIBLE

LIMIT = 0.01  # the default share of records that may go to quarantine
LARGE = 900_000  # bytes of a record: producers send at most 1,000,000 by default, and a result may be longer than its source


def settings_yaml(
    wanted: DraftRequest,
    connection: DraftConnection,
    sources: Sequence[DraftSource],
    chosen: ChosenInterval,
    layout: Layout = Layout.SOURCE,
) -> str:
    """Returns the text of `pipeline.yaml`. An only source is in the section `source`, and several are in `sources`."""
    formats = {one.source.format for one in sources}
    output_format = formats.pop() if len(formats) == 1 else "json"
    sampled = " and ".join(_sampled(one) for one in sources)
    lines = [
        f"# Drafted by `fencepost new` from {sampled}. It is yours.\n",
        "# docs/pipelines.md has every setting. `fencepost try` shows what a change does.\n",
    ]
    if wanted.more:
        lines.append("sources:  # each is an argument of the transform, or a view in SQL\n")
        lines += [f"  {scalar(one.name)}:\n{indent(_source(one), '  ')}" for one in sources]
    else:
        lines += ["source:\n", *map(_source, sources)]
    partitions = max(one.sample.topic.partitions for one in sources)
    as_many = "as the source with the most partitions has" if wanted.more else "as the source has"
    lines += [
        "\n# tables: a file, a topic or a query that the transform looks something up in (docs/side-tables.md)\n",
        "\noutput:  # a topic; or a table: kind: postgres (docs/tables.md) or kind: iceberg (docs/iceberg.md)\n",
        f"  topic: {scalar(wanted.output_topic)}  # created by the first run\n",
        f"  format: {output_format}\n",
        "  key: _key\n",
        "  layout: output  # the transform may join and aggregate\n" if layout is Layout.OUTPUT else "",
        f"  partitions: {partitions}  # as many {as_many}\n",
        "\nschedule:\n",
        f"  cron: {scalar(wanted.cron)}\n",
        f"  timezone: {scalar(wanted.timezone)}\n",
        f"  start: {in_zone(chosen.interval.start, wanted.timezone)}{_begins(chosen, wanted)}\n",
    ]
    worst = max(sources, key=lambda one: limit_of(one.fields))
    if (limit := limit_of(worst.fields)) > LIMIT:
        of = f" of topic {worst.source.topic}" if wanted.more else ""
        lines.append(
            f"\nquality:\n  quarantine_limit: {{share: {limit}}}  # {worst.fields.bad:,} of {worst.fields.records:,} sampled "
            f"records{of} are malformed\n"
        )
    lines.append(f"\n{_with_size(connection.kafka, max(largest_of(one.sample) for one in sources))}")
    if FORMATS[output_format].has_registry:
        lines.append(f"\n{_auto_register(connection.registry)}")
    elif any(FORMATS[one.source.format].has_registry for one in sources):
        lines.append(f"\n{connection.registry}")
    if connection.spark:
        lines.append(f"\n{connection.spark}")
    return "".join(lines)


def _sampled(drafted: DraftSource) -> str:
    sample = drafted.sample
    of = "" if sample.is_whole else f" of about {sample.offsets:,}"
    return f"{len(sample.records):,}{of} records of topic {drafted.source.topic}"


def _source(drafted: DraftSource) -> str:
    """Returns the lines of a source in the section `source`."""
    source, fields = drafted.source, drafted.fields
    lines = [f"  topic: {scalar(source.topic)}\n", f"  format: {source.format}\n"]
    if source.subject is not None:
        lines.append(f"  subject: {scalar(source.subject)}\n")
    if source.only is not None:
        names = ", ".join(map(scalar, source.only.values))
        lines.append(f"  only: [{names}]  # records of other types are counted and left out\n")
    lines += [*_envelope(source), *_key(source)]
    lines.append("  on_malformed: quarantine  # a record that does not fit goes to quarantine with the reason\n")
    if source.tombstones == "pass":
        lines.append(
            "  tombstones: pass  # writes a tombstone as a tombstone; drop leaves it out, fail stops the batch\n"
        )
    if source.tombstones == "drop":
        lines.append("  tombstones: drop  # the row before it says that it is deleted (__deleted)\n")
    declared = [(column_line(c.name, c.declared), c.note) for c in fields.columns if c.declared is not None]
    if declared or fields.left_out:
        lines.append("  schema:\n" if declared else "")
        lines.append(with_comments(declared, "    "))
        lines.append(listed(fields.left_out))
    return "".join(lines)


def _envelope(source: Source) -> list[str]:
    """Returns the lines for a topic of changes: the envelope and the table."""
    if source.envelope is None:
        return []
    lines = [f"  envelope: {source.envelope}  # each value is a change of a row; docs/change-data.md\n"]
    if source.captured_table is not None:
        lines.append(
            f"  table: {scalar(source.captured_table)}  # the topic has other tables too; they are counted and left out\n"
        )
    return lines


def _key(source: Source) -> list[str]:
    """Returns the lines for the columns of the key."""
    if not source.key:
        return []
    has = "every change" if source.envelope is not None else "a tombstone too"
    return [
        f"  key_format: {source.key_format}\n",
        f"  key:  # the columns of the {'table' if source.envelope is not None else 'record'}'s key, which {has} has\n",
        with_comments([(column_line(name, one), "") for name, one in source.key.items()], "    "),
    ]


def _begins(chosen: ChosenInterval, wanted: DraftRequest) -> str:
    """Returns a comment for the setting `start`. The comment says how many of the topics' offsets no run reads, and how
    to include these offsets.
    """
    if not chosen.unread:
        return f"  # {'no topic has' if wanted.more else 'the topic has no'} records before this time"
    lie = count_of(chosen.unread, "offset")
    if chosen.whole >= FIRST_CREDIBLE:
        return (
            f"  # no run reads the {lie} before this time: start at {in_zone(chosen.whole, wanted.timezone)} to "
            "include them"
        )
    reads = Interval(start=EPOCH, end=chosen.interval.start).command("run", wanted.name)
    return f"  # only this command reads the {lie} before this time: {reads}"


def largest_of(sample: Sample) -> int:
    """Returns the bytes of key and value of the largest sampled record."""
    return max((len(one.key or b"") + len(one.value or b"") for one in sample.records), default=0)


def _with_size(section: str, largest: int) -> str:
    """Returns the section. The section gets a larger size limit for producers if they could not send the largest record
    under the present limit.
    """
    if largest < LARGE or "message.max.bytes" in section:
        return section
    size = min(2 * math.ceil(largest / 1_000_000) * 1_000_000, 1_000_000_000)
    return f"{section.rstrip()}\n  message.max.bytes: {size}  # the largest sampled record has {largest:,}\n"


def _auto_register(section: str) -> str:
    if "auto_register" in section:
        return section
    return (
        f"{section.rstrip()}\n  auto_register: true  # the first run registers the schema of the transform's result\n"
    )


def limit_of(fields: Fields) -> float:
    """Returns a limit for the share of malformed records. The limit is twice the sample's share, so a similar batch
    stays below it.
    """
    known = max(1, fields.records)
    return min(1.0, max(LIMIT, math.ceil(200 * fields.bad / known) / 100)) if fields.bad else LIMIT
