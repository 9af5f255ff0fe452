"""The doctor's checks of an output table. The checks find whether the server answers, whether it may be relied upon,
and whether the table has what the ledger has published.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.errors import LedgerLost, TableRefused
from fencepost.findings import Finding, error, ok, skipped, warning
from fencepost.model import State
from fencepost.outputs.output import Checks, Inspected
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.current import CurrentTable
from fencepost.outputs.postgres.output import PostgresTable
from fencepost.outputs.postgres.rights import needed_rights
from fencepost.outputs.postgres.settings import PostgresSettings
from fencepost.outputs.postgres.table_checks import doubts, why_not_published_to
from fencepost.outputs.table.pipeline_table import Owner, check_owner
from fencepost.outputs.table.staged_rows import newest_value_schema
from fencepost.outputs.table.values import RESERVED_COLUMNS, TablePublication
from fencepost.postgres.connection import ASK_SECONDS, Session, asking, describe_server
from fencepost.protocol.snapshot import snapshot_of

BLOATED = 1.0  # dead rows for each live one: a reader reads twice what it needs
FEW = 10_000  # dead rows that do not matter
FEW_TABLES = 5  # tables in a message
FULL = 0.9  # share of max_connections


def _settings(inspected: Inspected) -> PostgresSettings:
    output = inspected.pipeline.output
    assert isinstance(output, PostgresSettings), "these checks are for tables"
    return output


def _table(inspected: Inspected) -> str:
    return _settings(inspected).table


def check_postgres(inspected: Inspected) -> Finding:
    """Checks that PostgreSQL answers, accepts the login, and is not a standby."""
    with asking(inspected.pipeline) as tx:
        ((version, standby),) = tx.run("SELECT current_setting('server_version'), pg_is_in_recovery()")
    if standby:
        return error(
            f"{describe_server(inspected.pipeline)} is a standby.",
            "Name the primary in postgres.host, or all servers.",
            kind=TableRefused,
        )
    return ok(f"{describe_server(inspected.pipeline)} answers, version {version}")


def check_postgres_limits(inspected: Inspected) -> Iterator[Finding]:
    """Checks that the server keeps what it has committed, and accepts more sessions."""
    with asking(inspected.pipeline) as tx:
        ((fsync, pages, used, most),) = tx.run(
            "SELECT current_setting('fsync'), current_setting('full_page_writes'), (SELECT count(*) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend'), current_setting('max_connections')::integer"
        )
    found = False
    for name, value in (("fsync", fsync), ("full_page_writes", pages)):
        if value != "on":
            found = True
            yield error(
                f"The server runs with {name}={value}, so after a crash committed data may be lost or damaged.",
                f"Set {name}=on.",
                kind=TableRefused,
            )
    if used > most * FULL:
        found = True
        yield warning(
            f"The server has {used} sessions of {most} at most (max_connections).",
            "Raise max_connections, or put a pooler before the server.",
        )
    if not found:
        yield ok(f"fsync and full_page_writes are on; {used} sessions of {most}")


def check_table_rights(inspected: Inspected) -> Finding:
    """Checks that the user has the rights on the tables that a publication needs."""
    table, lacking = _table(inspected), list[str]()
    with asking(inspected.pipeline) as tx:
        current = _settings(inspected).current
        for right, what, name in needed_rights(table, current.table if current is not None else None):
            if what == "DATABASE":
                has = tx.run("SELECT has_database_privilege(current_database(), $1)", right)
            elif what == "SCHEMA":
                has = tx.run(
                    "SELECT has_schema_privilege($1::name, $2) FROM pg_namespace WHERE nspname = $1::name", name, right
                )
            else:
                has = tx.run(
                    "SELECT has_table_privilege(to_regclass($1), $2) WHERE to_regclass($1) IS NOT NULL", name, right
                )
            if has and not has[0][0]:
                lacking.append(f"{right} on {what.lower()} {name}".rstrip())
    if lacking:
        return error(
            f"The user of postgres: lacks {', '.join(lacking)}.",
            "Grant them. This command prints the statements, among others.",
            f"fencepost acls {inspected.pipeline.name} --principal User:NAME",
            kind=TableRefused,
        )
    return ok("the user has the rights on the existing tables")


def check_table(inspected: Inspected) -> Iterator[Finding]:
    """Checks that the table belongs to this pipeline, accepts the newest batch's columns, and has an index on its
    intervals.
    """
    table = _table(inspected)
    with asking(inspected.pipeline) as tx:
        bookkeeping = Bookkeeping(tx, table)
        known = bookkeeping.registered() if bookkeeping.is_prepared() else None
        oid = bookkeeping.oid()
        if known is not None:
            check_owner(table, Owner(inspected.pipeline.name, inspected.deployment.cluster.id), known.owner)
        if why := (bookkeeping.why_not_kept() if bookkeeping.is_prepared() else ""):
            yield error(f"{why[:1].upper()}{why[1:]}", "Run these statements.", kind=TableRefused)
        if not (oid and bookkeeping.is_prepared()) and (why := bookkeeping.why_not_made()):
            yield error(f"Tables are missing, and {why}", "", kind=TableRefused)
            return
        if oid is None:
            yield ok(f"table {table} does not exist yet: the first write with rows creates it")
            return
        yield from _of_the_table(inspected, bookkeeping, oid)


def _of_the_table(inspected: Inspected, bookkeeping: Bookkeeping, oid: int) -> Iterator[Finding]:
    found = False
    settings = _settings(inspected)
    adds, acts = settings.add_columns, settings.allow_referential_actions
    owner = Owner(inspected.pipeline.name, inspected.deployment.cluster.id)
    if why := why_not_published_to(bookkeeping.session, bookkeeping.table, oid, owner, allow_referential_actions=acts):
        yield error(
            f"Table {bookkeeping.table} cannot be published to: {'; '.join(why)}.",
            "Change the table.",
            kind=TableRefused,
        )
        return
    for doubt, cure in doubts(bookkeeping.session, oid):
        found = True
        yield warning(
            f"Of table {bookkeeping.table}, {doubt}.", "Defer the constraint to the end of the transaction.", cure
        )
    if differs := bookkeeping.why_not_accepted(oid, newest_value_schema(inspected.view), add=adds):
        found = True
        yield error(
            f"Table {bookkeeping.table} does not accept the newest batch's columns: {'; '.join(differs)}.",
            "Change the table, or the transform.",
            kind=TableRefused,
        )
    if unindexed := bookkeeping.unindexed(oid):
        found = True
        # For a partitioned table the server creates an index for each partition, and does not accept CONCURRENTLY.
        on = f"ON {bookkeeping.quoted}" if bookkeeping.is_partitioned(oid) else f"CONCURRENTLY ON {unindexed[0]}"
        more = f", and {len(unindexed) - FEW_TABLES} more," if len(unindexed) > FEW_TABLES else ""
        yield warning(
            f"Table {', '.join(unindexed[:FEW_TABLES])}{more} has no index on its intervals: a valid B-tree over all rows that "
            f"begins with {RESERVED_COLUMNS[0]}. So each publication and each comparison reads the whole table.",
            "Create one.",
            f'CREATE INDEX {on} ("{RESERVED_COLUMNS[0]}")',
        )
    if not found:
        yield ok(f"table {bookkeeping.table} accepts the newest batch's columns, and has an index on its intervals")


def check_table_publications(inspected: Inspected) -> Finding:
    """Reports the publications under way, by the sessions that hold their intervals. The check locks nothing."""
    output = PostgresTable(inspected.deployment, _table(inspected))
    held = list[str]()
    for row in snapshot_of(inspected.view).unfinished:
        publication = row.newest.publication if row.newest.state is State.PUBLISHING else None
        if isinstance(publication, TablePublication) and publication.table == _table(inspected):
            sessions = output.publishers(row.interval)
            held += (
                [f"a publication of batch {row.newest.id} is under way, in {', '.join(sessions)}"] if sessions else []
            )
    return ok("; ".join(held) or "no publication is under way")


def check_table_bloat(inspected: Inspected) -> Finding:
    """Checks that the table does not have more dead rows than live rows."""
    table = _table(inspected)
    with asking(inspected.pipeline) as tx:
        live, dead = _rows_of(tx, table)
    if dead > FEW and dead > live * BLOATED:
        return warning(
            f"Table {table} has some {dead:,} dead rows and {live:,} live ones: autovacuum is behind.",
            "Vacuum it, and let autovacuum run more often (autovacuum_vacuum_scale_factor).",
            f"VACUUM {Bookkeeping(tx, table).quoted}",
        )
    return ok(f"some {dead:,} dead rows, {live:,} live ones")


def _rows_of(tx: Session, table: str) -> tuple[int, int]:
    """Returns the server's estimates of live and dead rows, partitions included."""
    ((live, dead),) = tx.run(
        "SELECT coalesce(sum(n_live_tup), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables "
        "WHERE relid = to_regclass($1) OR relid IN (SELECT relid FROM pg_partition_tree(to_regclass($1)))",
        Bookkeeping(tx, table).quoted,
    )
    return live, dead


def check_current_table(inspected: Inspected) -> Finding:
    """Checks that the current table can be kept, that publications keep it up to date, and that no published batch left
    out a truncation of the source table.
    """
    settings = _settings(inspected).current
    if settings is None:
        return skipped("there is no output.current")
    owner = Owner(inspected.pipeline.name, inspected.deployment.cluster.id)
    with asking(inspected.pipeline) as tx:
        history = Bookkeeping(tx, _table(inspected))
        current = CurrentTable(history, settings, owner)
        if history.is_prepared():
            current.check_reserved()
        schema = newest_value_schema(inspected.view)
        if why := current.why_not() or current.why_not_rows(schema, adds=_settings(inspected).add_columns):
            return error(
                f"Current table {settings.table} cannot be kept: {'; '.join(why)}.",
                "Change the table.",
                kind=TableRefused,
            )
    table = PostgresTable(inspected.deployment, _table(inspected)).current
    assert table is not None, "output.current names it"
    if stale := table.why_stale():
        return warning(
            f"{stale[:1].upper()}{stale[1:]}.", "Compute it.", f"fencepost current {inspected.pipeline.name} --rebuild"
        )
    if truncated := table.describe_truncated(inspected.view):
        return warning(
            f"Current table {settings.table} may have rows that the source table no longer has: {truncated}.",
            "Set source.truncations in pipeline.yaml to drop to keep these rows until the topic has their deletions.",
        )
    return ok(f"current table {settings.table} is kept up to date")


def check_table_contents(inspected: Inspected) -> Finding:
    """Checks that the table has what the ledger has published there, and no batch that is not in the ledger."""
    if not inspected.deployment.ledger.exists():
        return skipped("there is no ledger yet")
    try:
        found = PostgresTable(inspected.deployment, _table(inspected)).compared(inspected.deployment.ledger.read)
    except LedgerLost as lost:
        return error(str(lost), "", kind=LedgerLost)
    if missing := found.missing_batches:
        return error(f"{missing[:1].upper()}{missing[1:]}.", "Run the commands.", kind=TableRefused)
    if found.dropped:
        return ok(
            f"the table has every published interval except {found.dropped} whose partition no longer exists. To bring one "
            "back, create its partition and reprocess it"
        )
    return ok("the table has every published interval")


def check_table_rows(inspected: Inspected) -> Finding:
    """Checks that each interval has as many rows of each revision as were published. It counts the whole table."""
    if not inspected.deployment.ledger.exists():
        return skipped("there is no ledger yet")
    differs = PostgresTable(inspected.deployment, _table(inspected)).counted(inspected.view)
    if differs is None:
        return warning(
            f"Counting the rows of table {_table(inspected)} took over {ASK_SECONDS:g} s and was stopped. Intervals may "
            "lack rows.",
            "If the table was restored alone, or somebody has changed it, reprocess the intervals that may differ.",
        )
    if differs:
        return error(f"{differs[:1].upper()}{differs[1:]}.", "Run the commands.", kind=TableRefused)
    return ok("each interval has as many rows as were published")


CHECKS = Checks(
    check_postgres,
    "the store does not answer",
    (
        check_postgres_limits,
        check_table_rights,
        check_table,
        check_table_bloat,
        check_table_publications,
        check_table_contents,
        check_table_rows,
        check_current_table,
    ),
)
