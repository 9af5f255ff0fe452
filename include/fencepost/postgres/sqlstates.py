"""The meaning of PostgreSQL's SQLSTATEs for a publication, in Fencepost's own words.

A statement may run foreign code: a trigger, a rule, or a function of a check or column. Foreign code can raise any
SQLSTATE, and can put a row's values into the error's text and names. So the server's text is never shown. A message has
the SQLSTATE, its words from this module, and names that the catalogue has.
"""

from __future__ import annotations

import re

LOCK_TIMED_OUT, CANCELLED, READ_ONLY = "55P03", "57014", "25006"
# A later attempt may succeed. A trigger may raise these too, so a publication to a table can always be given up.
UNAVAILABLE = re.compile(r"08|40001|40P01|53|57|58000|58030|XX000|25006|25P03|25P04|55006|55P03")
DENIED = re.compile(r"28|42501")
# Errors of a statement itself, or of a trigger's own statements: the table has to change, not the rows.
OF_THE_TABLE = re.compile(r"0A|25|26|2BP01|34|3D|3F|42|58|XX")

SAID = {
    "08": "the connection failed",
    "0A": "the table does not support a statement of the publication",
    "21": "a trigger or a function got more rows than it accepts",
    "22": "a value that the column does not accept",
    "22001": "a text that is too long",
    "22003": "a number out of range",
    "22008": "a date or time out of range",
    "22021": "a text with a NUL character, or that is not UTF-8",
    "22P05": "JSON with \\u0000, which jsonb cannot hold",
    "23": "a row that violates a constraint",
    "23001": "a row that others refer to would be removed or changed",
    "23502": "a null where the column has to have a value",
    "23503": "a value that the referenced table does not have",
    "23505": "a duplicate of a value that has to be unique",
    "23514": "a row that fails a check",
    "23P01": "a row that an exclusion constraint forbids",
    "25": "the transaction does not allow the statement",
    "25006": "the server, or this session, is read-only",
    "25P03": "the server has ended the session",
    "25P04": "the server has ended the session",
    "28": "the login is refused",
    "3D": "there is no such database",
    "3F": "there is no such schema",
    "40001": "a conflict with another transaction",
    "40P01": "a deadlock with another transaction",
    "42": "a statement does not fit the objects in the database",
    "42501": "permission denied",
    "42703": "a column that a statement names does not exist",
    "42704": "an object that a statement names does not exist",
    "42883": "a function that a statement names does not exist",
    "42P01": "a table that a statement names does not exist",
    "44": "a row that a view's check option forbids",
    "53": "the server is short of resources",
    "53100": "No space left on device",
    "53200": "the server is out of memory",
    "53300": "the server accepts no more sessions",
    "54": "a row that exceeds a limit of the server, such as the size of an index's row",
    "55": "an object is not in the state that a statement needs",
    "55006": "an object is in use by other sessions",
    "55P03": "a lock was not granted in time",
    "57": "the server has ended the statement or the session",
    "57014": "the statement was canceled",
    "57P01": "the server is being stopped, or a person has ended the session",
    "57P02": "the server is restarted after a crash",
    "57P03": "the server does not accept sessions now",
    "58": "the server's operating system reported an error",
    "P0": "a trigger or a function raised an exception",
    "P0001": "a row for which a trigger raised an exception",
    "P0004": "a row for which an assertion in a trigger failed",
    "XX": "an internal error of the server",
    "XX001": "the server found damaged data",
    "XX002": "the server found a damaged index",
}
OTHERS = "a trigger or a function raised an error of its own"


def description(sqlstate: str) -> str:
    """Returns the meaning of a SQLSTATE for a message, without any text of the server."""
    return SAID.get(sqlstate) or SAID.get(sqlstate[:2], OTHERS)


def is_unavailable(sqlstate: str) -> bool:
    """Returns whether the same statement may succeed later, without a change."""
    return UNAVAILABLE.match(sqlstate) is not None


def is_denied(sqlstate: str) -> bool:
    """Returns whether the login or a right is missing."""
    return DENIED.match(sqlstate) is not None


def is_of_rows(sqlstate: str) -> bool:
    """Returns whether an error of a statement that copies rows is about the rows. Errors that are known to be the
    server's own are not about the rows.
    """
    return not any(own.match(sqlstate) for own in (UNAVAILABLE, DENIED, OF_THE_TABLE))
