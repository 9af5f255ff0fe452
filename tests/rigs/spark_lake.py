"""A Spark of its own that knows Iceberg: a process beside the tests, whose session has no jar of Iceberg's.

`SparkLake` asks it by statements of SQL. Run as a script, this file is that process: a line of JSON with a catalog's settings
and statements comes in, and a line with the last statement's rows, pickled, goes out.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TESTS = Path(__file__).parents[1]


class SparkLake:
    """The process; it starts with the first question. Times are in UTC."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate(timeout=60)  # it ends when nobody asks any more

    def sql(self, catalog: Mapping[str, str], name: str, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last statement, with the catalog, by its settings for Spark, as the default one."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"catalog": dict(catalog), "name": name, "statements": statements}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"Spark has ended with {process.wait()}; {self.folder / 'spark.log'} says why"
        rows, error = pickle.loads(base64.b64decode(answer))  # noqa: S301  # from this very file
        if error:
            raise SparkRefused(error)
        return [tuple(row) for row in rows]

    def _start(self) -> subprocess.Popen[str]:
        from .iceberg_jars import CATALOG, folder_of, spark_runtime

        self.folder.mkdir(parents=True, exist_ok=True)
        (driver,) = folder_of(CATALOG).glob("postgresql-*.jar")
        with (self.folder / "spark.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, f"{spark_runtime()}:{driver}"],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(TESTS), "TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self._process


class SparkRefused(Exception):
    """A statement failed; the text is Spark's."""


def serve(jars: str) -> None:
    """Answer until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed goes to the log
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    first = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraClassPath", jars)
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    sessions: dict[str, Any] = {}
    for line in sys.stdin:
        question = json.loads(line)
        key = json.dumps([question["catalog"], question["name"]])
        if key not in sessions:
            sessions[key] = first.newSession()
            prefix = f"spark.sql.catalog.{question['name']}"
            sessions[key].conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
            sessions[key].conf.set(f"{prefix}.cache-enabled", "false")
            for name, value in question["catalog"].items():
                sessions[key].conf.set(f"{prefix}.{name}", value)
            sessions[key].conf.set("spark.sql.defaultCatalog", question["name"])
        rows, error = [], ""
        try:
            for statement in question["statements"]:
                rows = sessions[key].sql(statement).collect()
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        answers.write(base64.b64encode(pickle.dumps((rows, error))).decode() + "\n")
        answers.flush()
    first.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


if __name__ == "__main__":
    serve(sys.argv[1])
