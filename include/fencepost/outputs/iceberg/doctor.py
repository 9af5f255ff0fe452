"""The doctor's checks of an Iceberg table. The checks find whether the catalog answers, whether the table may be published
to, whether it has what the ledger has published, and whether somebody maintains it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyiceberg.table import Table, TableProperties
from pyiceberg.utils.properties import property_as_bool

from fencepost.counts import count_of, first_of
from fencepost.errors import AccessDenied, LedgerLost, TableRefused
from fencepost.findings import Finding, error, ok, skipped, warning
from fencepost.outputs.iceberg.catalog import translated
from fencepost.outputs.iceberg.files_in_base import FileInBase
from fencepost.outputs.iceberg.lake_table import base_of
from fencepost.outputs.iceberg.output import IcebergTable
from fencepost.outputs.iceberg.table_base import TAG
from fencepost.outputs.output import Checks, Inspected
from fencepost.outputs.table.staged_rows import newest_value_schema

SMALL = 16 * 1024 * 1024  # bytes of a data file
MANY_SMALL = 20  # small files of a partition: a reader opens each of them
MANY_SNAPSHOTS = 500  # each commit writes the list of all of them again
TAGS_EXPIRE = "history.expire.max-ref-age-ms"  # of a table
MOST_TABLES = 200  # of a namespace that are looked at
SHOWN = 5

ABSENT = "the table does not exist yet"


def _output(inspected: Inspected) -> IcebergTable:
    return IcebergTable(inspected.deployment, inspected.pipeline.output.name)


def check_catalog(inspected: Inspected) -> Finding:
    """Checks that the catalog answers, and accepts the login."""
    lake = _output(inspected).lake
    try:
        lake.load()
    except AccessDenied as denied:
        return error(str(denied), "", kind=type(denied))
    return ok(f"{lake.where} answers")


def check_lake_table(inspected: Inspected) -> Finding:
    """Checks that the table belongs to this pipeline, that its format and partition spec can be published to, and that
    it accepts the newest batch's columns. A table that is gone may have been renamed.
    """
    output = _output(inspected)
    table = output.lake.load()
    if table is None:
        if renamed := _renamed(output):
            return error(
                f"Table {output.lake.name} does not exist, and table {renamed} is registered for this pipeline: it was renamed.",
                f"Rename it back (ALTER TABLE {renamed} RENAME TO {output.lake.name}), or name it in output.table.",
                kind=TableRefused,
            )
        return ok(f"table {output.lake.name} does not exist yet: the first publication creates it")
    output.columns.check_columns(table, newest_value_schema(inspected.view))
    return ok(f"table {output.lake.name} is this pipeline's, and accepts the newest batch's columns")


def _renamed(output: IcebergTable) -> str:
    """Returns another table of the namespace that is registered for this pipeline, or an empty text."""
    lake = output.lake
    namespace = tuple(lake.name.split(".")[:-1])
    with translated(lake.pipeline):
        if not lake.catalog.namespace_exists(namespace):
            return ""
        for named in lake.catalog.list_tables(namespace)[:MOST_TABLES]:
            name = ".".join(named)
            table = lake.load(name)
            if table is not None and base_of(table, name).owner == lake.of.owner:
                return name
    return ""


def check_lake_contents(inspected: Inspected) -> Iterator[Finding]:
    """Checks that the table has the rows that the ledger has published there, and no others. It counts them by the table's
    manifests, so it also finds rows that somebody has deleted. A table of many intervals has many manifests, so the same
    read of them shows whether a partition has many small data files.
    """
    if not inspected.deployment.ledger.exists():
        yield skipped("there is no ledger yet")
        return
    output = _output(inspected)
    with translated(inspected.pipeline):
        try:
            found = output.examined(inspected.deployment.ledger.read)
        except LedgerLost as lost:
            yield error(str(lost), "", kind=LedgerLost)
            return
    if found.missing:
        yield error(f"{found.missing[:1].upper()}{found.missing[1:]}.", "Run the commands.", kind=TableRefused)
    if found.unknown:
        yield warning(
            f"Table {output.lake.name} has rows of {count_of(len(found.unknown), 'revision')} that belong to no batch: "
            f"{first_of(found.unknown, SHOWN)}.",
            "Somebody else has written them. Remove them, or write them to another table.",
        )
    if not found.missing and not found.unknown:
        yield ok("the table has every published interval, and no other rows")
    yield _of_files(output, found.files)


def _of_files(output: IcebergTable, files: list[FileInBase]) -> Finding:
    small = Counter(
        (one.file.spec_id, *(one.file.partition[n] for n in range(len(one.file.partition))))
        for one in files
        if one.file.file_size_in_bytes < SMALL
    )
    many = [count for count in small.values() if count > MANY_SMALL]
    if many:
        return warning(
            f"Table {output.lake.name} has {count_of(len(many), 'partition')} with more than {MANY_SMALL} data files below "
            f"{SMALL // 1024**2} MiB, up to {max(many):,}: a reader opens each of them.",
            "Let a maintainer compact them, with the table's spec.",
            f"CALL system.rewrite_data_files(table => '{output.lake.name}')",
        )
    return ok("no partition has many small data files")


def check_lake_snapshots(inspected: Inspected) -> Finding:
    """Checks that snapshots expire, which Iceberg does not do by itself, and that the tag does not expire with them."""
    output = _output(inspected)
    table = output.lake.load()
    if table is None:
        return skipped(ABSENT)
    if TAGS_EXPIRE in table.metadata.properties:
        return warning(
            f"Table {output.lake.name} has the property {TAGS_EXPIRE}, by which the tag {TAG} expires. Without the tag, an "
            "attempt that was given up could commit after a rollback.",
            "Unset the property.",
            f"ALTER TABLE {output.lake.name} UNSET TBLPROPERTIES ('{TAGS_EXPIRE}')",
        )
    snapshots = table.metadata.snapshots
    if len(snapshots) > MANY_SNAPSHOTS:
        return warning(
            f"Table {output.lake.name} has {len(snapshots):,} snapshots, so nobody expires them. Each commit writes their list "
            "again, and the files of replaced revisions stay.",
            "Let a maintainer expire them regularly. Nothing that is published is lost by it.",
            f"CALL system.expire_snapshots(table => '{output.lake.name}')",
        )
    return ok(count_of(len(snapshots), "snapshot"))


def check_lake_metadata(inspected: Inspected) -> Finding:
    """Checks that old metadata files are deleted. Each commit writes one."""
    output = _output(inspected)
    table = output.lake.load()
    if table is None:
        return skipped(ABSENT)
    if not _deletes_metadata(table):
        name = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED
        return warning(
            f"Table {output.lake.name} keeps the metadata file of every commit, because its property {name} is not true.",
            "Set it. A commit then keeps the newest hundred (write.metadata.previous-versions-max).",
            f"ALTER TABLE {output.lake.name} SET TBLPROPERTIES ('{name}' = 'true')",
        )
    return ok("old metadata files are deleted")


def _deletes_metadata(table: Table) -> bool:
    return property_as_bool(
        table.metadata.properties,
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED,
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED_DEFAULT,
    )


CHECKS = Checks(
    check_catalog,
    "the catalog does not answer",
    (check_lake_table, check_lake_contents, check_lake_snapshots, check_lake_metadata),
)
