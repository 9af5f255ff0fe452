"""The doctor's checks of an output table: whether the server answers, may be relied upon, and has what the ledger has
published."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.errors import LedgerLost, StoreRefused
from fencepost.finding import Finding, error, ok, skipped, warning
from fencepost.model import State
from fencepost.outputs.output import Checks, Examined
from fencepost.outputs.postgres.columns import schema_of, what_differs
from fencepost.outputs.postgres.connection import ASK_SECONDS, Session, asking, told
from fencepost.outputs.postgres.names import RESERVED_COLUMNS
from fencepost.outputs.postgres.output import PostgresTable
from fencepost.outputs.postgres.rights import needed_rights
from fencepost.outputs.postgres.settings import PostgresSettings
from fencepost.outputs.postgres.store import Store
from fencepost.outputs.postgres.table_checks import doubts, why_not_published_to
from fencepost.outputs.table.pipeline_table import Owner, check_owner
from fencepost.outputs.table.values import TablePublication
from fencepost.protocol.snapshot import snapshot_of
from fencepost.protocol.view import View

BLOATED = 1.0  # dead rows for each live one: a reader reads twice what it needs
FEW = 10_000  # dead rows that do not matter
FEW_TABLES = 5  # tables in a message
FULL = 0.9  # share of max_connections


def _settings(look: Examined) -> PostgresSettings:
    output = look.pipeline.output
    assert isinstance(output, PostgresSettings), "these checks are for tables"
    return output


def _table(look: Examined) -> str:
    return _settings(look).table


def check_store(look: Examined) -> Finding:
    """PostgreSQL answers, accepts the login, and is not a standby."""
    with asking(look.pipeline) as tx:
        ((version, standby),) = tx.run("SELECT current_setting('server_version'), pg_is_in_recovery()")
    if standby:
        return error(
            f"{told(look.pipeline)} is a standby.",
            "Name the primary in postgres.host, or all servers.",
            kind=StoreRefused,
        )
    return ok(f"{told(look.pipeline)} answers, version {version}")


def check_store_limits(look: Examined) -> Iterator[Finding]:
    """The server keeps what it has committed, and accepts more sessions."""
    with asking(look.pipeline) as tx:
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
                kind=StoreRefused,
            )
    if used > most * FULL:
        found = True
        yield warning(
            f"The server has {used} sessions of {most} at most (max_connections).",
            "Raise max_connections, or put a pooler before the server.",
        )
    if not found:
        yield ok(f"fsync and full_page_writes are on; {used} sessions of {most}")


def check_table_rights(look: Examined) -> Finding:
    """The user has the rights on the tables that a publication needs."""
    table, lacking = _table(look), list[str]()
    with asking(look.pipeline) as tx:
        for right, what, name in needed_rights(table):
            if what == "SCHEMA":
                has = tx.run(
                    "SELECT has_schema_privilege($1::name, $2) FROM pg_namespace WHERE nspname = $1::name", name, right
                )
            else:
                has = tx.run(
                    "SELECT has_table_privilege(to_regclass($1), $2) WHERE to_regclass($1) IS NOT NULL", name, right
                )
            if has and not has[0][0]:
                lacking.append(f"{right} on {what.lower()} {name}")
    if lacking:
        return error(
            f"The user of postgres: lacks {', '.join(lacking)}.",
            "Grant them. This command prints the statements, among others.",
            f"fencepost acls {look.pipeline.name} --principal User:NAME",
            kind=StoreRefused,
        )
    return ok("the user has the rights on the existing tables")


def check_table(look: Examined) -> Iterator[Finding]:
    """The table belongs to this pipeline, accepts the newest batch's columns, and has an index on its intervals."""
    table = _table(look)
    with asking(look.pipeline) as tx:
        store = Store(tx, table)
        known = store.registered() if store.is_prepared() else None
        oid = store.oid()
        if known is not None:
            check_owner(table, Owner(look.pipeline.name, look.cluster.id), known.owner)
        if why := (store.why_not_kept() if store.is_prepared() else ""):
            yield error(f"{why[:1].upper()}{why[1:]}", "Run these statements.", kind=StoreRefused)
        if not (oid and store.is_prepared()) and (why := store.why_not_made()):
            yield error(f"Tables are missing, and {why}", "", kind=StoreRefused)
            return
        if oid is None:
            yield ok(f"table {table} does not exist yet: the first write with rows creates it")
            return
        yield from _of_the_table(look, store, oid)


def _of_the_table(look: Examined, store: Store, oid: int) -> Iterator[Finding]:
    found = False
    settings = _settings(look)
    adds, acts = settings.add_columns, settings.allow_referential_actions
    owner = Owner(look.pipeline.name, look.cluster.id)
    if why := why_not_published_to(store.session, store.table, oid, owner, allow_referential_actions=acts):
        yield error(
            f"Table {store.table} cannot be published to: {'; '.join(why)}.", "Change the table.", kind=StoreRefused
        )
        return
    for doubt, cure in doubts(store.session, oid):
        found = True
        yield warning(f"Of table {store.table}, {doubt}.", "Defer the constraint to the end of the transaction.", cure)
    if differs := what_differs(store.altered(oid), schema_of(_newest_schema(look.view)), store.columns(oid), add=adds):
        found = True
        yield error(
            f"Table {store.table} does not accept the newest batch's columns: {'; '.join(differs)}.",
            "Change the table, or the transform.",
            kind=StoreRefused,
        )
    if unindexed := store.unindexed(oid):
        found = True
        # For a partitioned table the server creates an index for each partition, and does not accept CONCURRENTLY.
        on = f"ON {store.quoted}" if store.is_partitioned(oid) else f"CONCURRENTLY ON {unindexed[0]}"
        more = f", and {len(unindexed) - FEW_TABLES} more," if len(unindexed) > FEW_TABLES else ""
        yield warning(
            f"Table {', '.join(unindexed[:FEW_TABLES])}{more} has no index on its intervals: a valid B-tree over all rows that "
            f"begins with {RESERVED_COLUMNS[0]}. So each publication and each comparison reads the whole table.",
            "Create one.",
            f'CREATE INDEX {on} ("{RESERVED_COLUMNS[0]}")',
        )
    if not found:
        yield ok(f"table {store.table} accepts the newest batch's columns, and has an index on its intervals")


def _newest_schema(view: View) -> str:
    written = [b.written.value_schema for b in view.all() if b.written is not None and b.written.value_schema]
    return written[-1] if written else ""


def check_table_publications(look: Examined) -> Finding:
    """The publications under way, by the sessions that hold their intervals. The check locks nothing."""
    output = PostgresTable(look.ledger, _table(look))
    held = list[str]()
    for row in snapshot_of(look.view).unsettled:
        publication = row.newest.publication if row.newest.state is State.PUBLISHING else None
        if isinstance(publication, TablePublication) and publication.table == _table(look):
            sessions = output.publishers(row.interval)
            held += (
                [f"a publication of batch {row.newest.id} is under way, in {', '.join(sessions)}"] if sessions else []
            )
    return ok("; ".join(held) or "no publication is under way")


def check_table_bloat(look: Examined) -> Finding:
    """The table does not have more dead rows than live ones."""
    table = _table(look)
    with asking(look.pipeline) as tx:
        live, dead = _rows_of(tx, table)
    if dead > FEW and dead > live * BLOATED:
        return warning(
            f"Table {table} has some {dead:,} dead rows and {live:,} live ones: autovacuum is behind.",
            "Vacuum it, and let autovacuum run more often (autovacuum_vacuum_scale_factor).",
            f"VACUUM {Store(tx, table).quoted}",
        )
    return ok(f"some {dead:,} dead rows, {live:,} live ones")


def _rows_of(tx: Session, table: str) -> tuple[int, int]:
    """The server's estimates of live and dead rows, partitions included."""
    ((live, dead),) = tx.run(
        "SELECT coalesce(sum(n_live_tup), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables "
        "WHERE relid = to_regclass($1) OR relid IN (SELECT relid FROM pg_partition_tree(to_regclass($1)))",
        Store(tx, table).quoted,
    )
    return live, dead


def check_table_contents(look: Examined) -> Finding:
    """The table has what the ledger has published there, and no batch that is not in the ledger."""
    if not look.ledger.exists():
        return skipped("there is no ledger yet")
    try:
        found = PostgresTable(look.ledger, _table(look)).compared(look.ledger.read)
    except LedgerLost as lost:
        return error(str(lost), "", kind=LedgerLost)
    if lacks := found.lacks:
        return error(f"{lacks[:1].upper()}{lacks[1:]}.", "Run the commands.", kind=StoreRefused)
    if found.dropped:
        return ok(
            f"the table has every published interval except {found.dropped} whose partition no longer exists. To bring one "
            "back, create its partition and reprocess it"
        )
    return ok("the table has every published interval")


def check_table_rows(look: Examined) -> Finding:
    """Each interval has as many rows of each revision as were published, by a count of the whole table."""
    if not look.ledger.exists():
        return skipped("there is no ledger yet")
    differs = PostgresTable(look.ledger, _table(look)).counted(look.view)
    if differs is None:
        return warning(
            f"Counting the rows of table {_table(look)} took over {ASK_SECONDS:g} s and was stopped. Intervals may lack rows.",
            "If the table was restored alone, or somebody has changed it, reprocess the intervals that may differ.",
        )
    if differs:
        return error(f"{differs[:1].upper()}{differs[1:]}.", "Run the commands.", kind=StoreRefused)
    return ok("each interval has as many rows as were published")


CHECKS = Checks(
    check_store,
    "the store does not answer",
    (
        check_store_limits,
        check_table_rights,
        check_table,
        check_table_bloat,
        check_table_publications,
        check_table_contents,
        check_table_rows,
    ),
)
