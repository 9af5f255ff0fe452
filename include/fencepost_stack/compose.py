"""docker-compose.yaml runs `python -m fencepost_stack.compose prepare`, `broker NAME` and `users` for Kafka, and
`reporting` for the tables of `nyc_delays`, `nyc_airport_hours` and `nyc_weather_lake`.

The brokers are those of `fencepost cluster`, each in a container of its own. `prepare` runs once before the brokers,
and makes certificates and the secret of the Spark cluster. `users` runs once after the brokers, and makes the
pipelines' users. `reporting` runs once PostgreSQL answers, and makes the tables' databases and users.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from pathlib import Path

import psycopg2

from fencepost.paths import pipelines_folder
from fencepost_stack.certificates import ensure_certificates, hold
from fencepost_stack.pipeline_users import let_in, names_of, password_variable
from fencepost_stack.ports import LOOPBACK, answers
from fencepost_stack.reporting import READER, REPORTING, WEATHER_LAKE, WRITERS, ensure_reporting
from fencepost_stack.secured_kafka import ADMIN, BROKER, BROKERS, SecuredKafka
from fencepost_stack.standalone_spark import write_settings

PORTS = {"clients": 19092, "host": 9092, "brokers": 19093, "controller": 19094}


class ComposeKafka(SecuredKafka):
    """The brokers, by the names of their containers. Clients on the machine that runs compose use `host`."""

    listeners = tuple(PORTS)

    def __init__(self) -> None:
        """Creates the object. The environment names the folders, and the brokers' names in the network."""
        super().__init__(Path(os.environ["FENCEPOST_CLUSTER"]), data=Path(os.environ["FENCEPOST_BROKER"]))
        self.hosts = dict(zip(BROKERS, os.environ["FENCEPOST_KAFKA_HOSTS"].split(","), strict=True))

    def address(self, name: str, listener: str) -> str:
        """Returns where a broker listens."""
        return f"{self.hosts[name]}:{PORTS[listener]}"

    def advertised(self, name: str, listener: str) -> str:
        """Returns the address under which others find a broker."""
        if listener == "host":
            return f"{LOOPBACK}:{os.environ['FENCEPOST_KAFKA_PORT']}"
        return self.address(name, listener)


def prepare() -> None:
    """Makes certificates, the cluster's id and Spark's settings, unless they exist.

    A broker reads its certificate when it starts. So expiring certificates are created again only while no broker runs.
    Otherwise clients would trust the new authority, and refuse a broker that still presents a certificate of the old
    authority.
    """
    kafka = ComposeKafka()
    names = (BROKER, ADMIN)
    if not hold(kafka.certificates, names) and any(answers(host, PORTS["clients"]) for host in kafka.hosts.values()):
        raise SystemExit(
            "The brokers' certificates end within a month, or have ended. They are made again when no broker runs, so that all"
            " take them at once: `docker compose down`, then `docker compose up --detach`. Data stay. Nothing was changed."
        )
    ensure_certificates(kafka.certificates, names, kafka.hosts.values())
    shutil.copyfile(kafka.authority, os.environ["KAFKA_CA_LOCATION"])
    kafka.make_identity()
    kafka.write_admin_file()
    settings = Path(os.environ["SPARK_CONF_DIR"]) / "spark-defaults.conf"
    if not settings.exists():
        write_settings(settings, {}, secrets.token_hex(24))


def broker(name: str) -> None:
    """Becomes the broker of this name."""
    command = ComposeKafka().broker(name).prepare()
    os.execvp(command[0], command)  # noqa: S606  # the container's one process, which gets its signals


def users() -> None:
    """Makes the pipelines' users, with the passwords in the environment."""
    wanted = {name: os.environ.get(password_variable(name)) for name in names_of(pipelines_folder())}
    let_in(ComposeKafka(), pipelines_folder(), {name: password for name, password in wanted.items() if password})


def make_reporting() -> None:
    """Makes the databases and the users of `reporting`. The environment has the superuser's login in libpq's variables."""
    passwords = {
        WRITERS[REPORTING]: os.environ["REPORTING_PASSWORD"],
        WRITERS[WEATHER_LAKE]: os.environ["LAKE_PASSWORD"],
        READER: os.environ["REPORTING_READER_PASSWORD"],
    }
    ensure_reporting(lambda database: psycopg2.connect(dbname=database), passwords)


def main(what: str, name: str = "") -> None:
    """Runs one of the four commands."""
    if what == "broker":
        broker(name)
    elif what == "prepare":
        prepare()
    elif what == "users":
        users()
    elif what == "reporting":
        make_reporting()
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
