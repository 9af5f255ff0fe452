"""Transactions made up by chance, the same for a seed: what a busy application does with its rows, and what it seldom does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from random import Random

from .database import FULL, KEYED, TABLES, Database
from .every_type import COLUMNS, random_value

IDS = 40  # rows come and go below this


def change(database: Database, chance: Random, transactions: int) -> None:
    """Change both tables by so many transactions of two sessions at once, some of them rolled back.

    One session has the even ids and the other the odd ones, so neither waits for the other. The order of statements, and of
    commits, is the seed's.
    """
    with ExitStack() as stack:
        sessions = [stack.enter_context(database.session()) for _ in range(2)]
        pending: list[Iterator[str]] = [iter(()), iter(())]
        left = transactions
        while left:
            turn = chance.randrange(2)
            statement = next(pending[turn], None)
            if statement is not None:
                with sessions[turn].cursor() as cursor:
                    cursor.execute(statement)
                continue
            if chance.random() < 0.12:
                sessions[turn].rollback()
            else:
                sessions[turn].commit()
            left -= 1
            pending[turn] = iter(_transaction(chance, turn))
        for session in sessions:
            session.commit()


def truncate(database: Database) -> None:
    """Empty the table without a current table: that one would keep the rows."""
    database.run(f"truncate {KEYED}")


def mend(database: Database, chance: Random, unread: Sequence[tuple[int, str]]) -> None:
    """Change the rows of FULL whose newest change cannot be read, so that a later one, most likely, can be.

    `unread` has their ids with the operation of that change. A row that is deleted comes back and is deleted again.
    """
    for number, op in unread:
        again = [_insert(chance, number), f"delete from {{table}} where id = {number}"]
        statements = again if op == "d" else [_update(chance, number, len(COLUMNS))]
        database.run(*(statement.replace("{table}", FULL) for statement in statements))


def _transaction(chance: Random, parity: int) -> list[str]:
    """Statements on the rows with ids of one parity. Both tables get the same ones."""
    statements = [each for _ in range(chance.randint(1, 5)) for each in _statements(chance, parity)]
    if chance.random() < 0.15:
        at = chance.randrange(len(statements) + 1)
        undone = _statements(chance, parity)
        statements[at:at] = ["savepoint here", *undone, "rollback to savepoint here"]
    return statements


def _statements(chance: Random, parity: int) -> list[str]:
    one, other = (2 * chance.randint(1, IDS // 2) + parity for _ in range(2))
    third = 2 * chance.randrange(3) + parity
    absent = f"not exists (select from {{table}} where id = {other})"
    made = {
        "insert": [_insert(chance, one)],
        "update": [_update(chance, one, chance.randint(1, 4))],
        "update much": [_update(chance, one, len(COLUMNS) // 2)],
        "delete": [f"delete from {{table}} where id = {one}"],
        "move": [f"update {{table}} set id = {other} where id = {one} and {absent}"],
        "replace": [f"delete from {{table}} where id = {one}", _insert(chance, one)],
        "nothing": [f"update {{table}} set id = id where id = {one}"],
        "several": [f"update {{table}} set whole = -(whole / 2), words = words || '.' where id % 6 = {third}"],
    }
    often = ["insert"] * 5 + ["update"] * 8 + ["update much"] * 2 + ["delete"] * 2 + ["move"] * 2
    chosen = chance.choice([*often, "replace", "nothing", "several"])
    return [statement.replace("{table}", table) for table in TABLES for statement in made[chosen]]


def _insert(chance: Random, number: int) -> str:
    values = {column.name: random_value(column, chance) for column in COLUMNS}
    into, of = ", ".join(values), ", ".join(values.values())
    return f"insert into {{table}} (id, {into}) values ({number}, {of}) on conflict do nothing"


def _update(chance: Random, number: int, count: int) -> str:
    values = [f"{column.name} = {random_value(column, chance)}" for column in chance.sample(COLUMNS, count)]
    return f"update {{table}} set {', '.join(values)} where id = {number}"
