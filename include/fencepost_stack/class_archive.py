"""Makes an archive of the classes that a job loads, so that Spark's JVM starts and compiles in about half the time.

This is Java's class data sharing (JEP 350). A JVM started with `-XX:ArchiveClassesAtExit` writes its loaded classes to
a file, parsed and verified. A JVM started with `-XX:SharedArchiveFile` maps that file. The archive belongs to one Java
and one class path. With any other, the JVM prints a warning and ignores the archive. The archive is in the folder of
the connector's jars.

`python -m fencepost_stack.class_archive` is the last step of `make setup`. It runs real write and validate steps on its
own broker. Without an archive, jobs do the same work more slowly.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fencepost.jars import CONNECTOR, java, log_tail
from fencepost.spark.class_archive import ARCHIVE, RECORD, java_options, quoted_option, read_archive_record
from fencepost_stack.pins import pyspark_jars
from fencepost_stack.state_folder import StateFolder

JOB = Path(__file__).with_name("archived_job.py")
QUICK_END = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"  # they do not change the archive
TIMEOUT = 300.0  # seconds


def key_of(folder: Path) -> str:
    """Returns a value that changes if this folder needs a new archive. It depends on Java, PySpark, the connector and
    the job.
    """
    files = [Path(java()).resolve(), *sorted(pyspark_jars().glob("spark-core_*.jar")), Path(__file__), JOB]
    stamps = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return f"{folder} {stamps} {CONNECTOR.jars()}"


def is_made(folder: Path) -> bool:
    """Returns whether the archive exists, is whole, and belongs to this Java and these jars."""
    return bool(java_options(folder)) and read_archive_record(folder).get("key") == key_of(folder)


def make(folder: Path, log: Path) -> bool:
    """Runs the two steps, and keeps the archive of their JVM. Returns whether that worked. The output of the steps is
    in the log.
    """
    from fencepost_stack.broker import Broker

    key = key_of(folder)
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=folder.parent) as name:
        work = Path(name)
        at_exit = quoted_option("-XX:ArchiveClassesAtExit", work / ARCHIVE)
        with Broker(work / "kafka") as broker, log.open("w") as said:
            ended = subprocess.run(
                [
                    str(Path(sys.executable).with_name("spark-submit")),
                    *("--master", "local[1]", "--name", "class archive"),
                    *("--conf", f"spark.driver.defaultJavaOptions={at_exit} {QUICK_END}"),
                    *("--conf", f"spark.driver.extraClassPath={folder}/*"),
                    *("--conf", "spark.ui.enabled=false"),
                    *(str(JOB), str(work)),
                ],
                env=_environment(work, broker.bootstrap),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
                check=False,
            )
        if ended.returncode != 0 or not (work / ARCHIVE).exists():
            return False
        record = {"key": key, "size": (work / ARCHIVE).stat().st_size}
        (folder / RECORD).unlink(missing_ok=True)
        (work / ARCHIVE).replace(folder / ARCHIVE)  # processes that have mapped an older one keep it
        (folder / RECORD).write_text(json.dumps(record))
    return True


def _environment(work: Path, bootstrap: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in {"JDK_JAVA_OPTIONS", "SPARK_HOME"}}
    return own | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",  # the spark-submit of this environment
        "PYSPARK_PYTHON": sys.executable,
        "KAFKA_BOOTSTRAP": bootstrap,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "FENCEPOST_REPORTS": str(work / "reports"),
    }


def main() -> int:
    """Makes the archive if it is missing. Set-up does not fail if this fails."""
    folder = StateFolder.default().jars_spark
    if is_made(folder):
        return 0
    sys.stdout.write("setup: archive of the classes that jobs load, so that they start sooner (a minute)\n")
    sys.stdout.flush()
    begin, log = time.monotonic(), folder.parent / "class-archive.log"
    try:
        made = make(folder, log)
        why = "" if made else log_tail(log)
    except Exception as error:
        made, why = False, f"{type(error).__name__}: {error}"
    if made:
        sys.stdout.write(f"setup: class archive took {time.monotonic() - begin:.0f} s\n")
    else:
        sys.stderr.write(f"setup: no class archive; everything works, jobs start later. {log}: {why}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
