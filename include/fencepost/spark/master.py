"""Finds and checks Spark's master, and says whether it is this machine."""

from __future__ import annotations

import re

from fencepost.errors import SettingsError

LOCAL = re.compile(r"local(\[[^\]]*\])?")
KNOWN = re.compile(rf"{LOCAL.pattern}|local-cluster\[[^\]]*\]|yarn|spark://.+|k8s://.+")


def is_local(master: str) -> bool:
    """Returns whether driver and executors are one process on this machine. `local-cluster[...]` starts executors of
    its own.
    """
    return LOCAL.fullmatch(master) is not None


def master_of(kind: str | None, host: str | None, port: int | None) -> str:
    """Returns the master of a connection with these fields, composed as in Airflow's Spark provider.

    A connection given as a URL has the scheme as its type, and only the host as its host: `spark://localhost:7077` is type
    `spark`, host `localhost` and port 7077.
    """
    host = host or ""
    is_whole = kind == "spark" and host and ("://" in host or not port)
    master = host if is_whole else f"{kind}://{host}"
    return f"{master}:{port}" if port else master


def check_master(master: str, where: str) -> None:
    """Checks that Spark accepts this master. `spark-submit` would take `localhost` for `local`, and fail later.

    Raises:
        SettingsError: Spark does not accept it. `where` says where the master is set.
    """
    if KNOWN.fullmatch(master) is None:
        raise SettingsError(
            f"{where} gives the master {master!r}, which Spark does not know. Known are local[2], spark://host:7077, yarn and "
            "k8s://https://host:443. A standalone master needs its port, or its whole address as the host."
        )
