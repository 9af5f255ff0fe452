"""Tests in several pytest processes, since each of them waits for Kafka, Spark or Airflow half of the time.

The archive of Spark's classes, which the last step of `make setup` makes, is made while the tests run that start no JVM.

How each ended is said last, and of one that failed its last lines once more, or those from where it crashed.

python tests/side_by_side.py          what proves each claim once
python tests/side_by_side.py --deep   the rest: matrices, clusters, and whatever else takes long
python tests/side_by_side.py --deep cluster changes     these parts of it (`PARTS`, `DEEP`)
python tests/side_by_side.py [arguments of one ordinary pytest]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [str(Path(sys.executable).with_name("pytest"))]
# Each of `steps`, `more`, `hard`, `quality` and `lake` starts one broker and one Spark session; only `hard` starts a schema
# registry, `hard`, `quality` and `lake` a PostgreSQL, and only `lake` Iceberg's catalog and the Spark that reads its tables. So
# that they end together, what takes long is listed here, and `steps` has the others.
LAKE_FAULTS = "tests/fault/test_lake_faults.py"
LAKE = [
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/integration").glob("test_lake*.py")),
    LAKE_FAULTS,
]
HARD = [
    "tests/integration/schemas",
    "tests/integration/test_retries.py",
    "tests/integration/test_topic_tables.py",
    "tests/fault",
    "tests/hostile",
    "tests/mechanisms",
]
MORE = [
    f"tests/integration/test_{name}.py"
    for name in (
        *("avro_values", "class_archive", "file_tables", "flights", "kafka_errors", "ledger_reader", "logins", "new"),
        *("obstacle", "producer", "reading", "refusals", "replay", "sample", "several_rows", "side_table_frames"),
        "transaction_timeout",
    )
]
QUALITY = [
    *("tests/integration/quality", "include/pipelines"),
    *(
        f"tests/integration/test_{name}.py"
        for name in (
            "announcements",
            "changed_tables",
            "compare",
            "drift",
            "given_tables",
            "lake_rig",
            "query_tables",
            "run_each",
            "side_tables_shown",
            "suggest_and_judge",
            "table_behind",
            "table_views",
            "tables",
            "testing",
            "try",
        )
    ),
]
INTEGRATION = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/integration").iterdir())
STEPS = [
    path for path in INTEGRATION if path not in {*HARD, *MORE, *QUALITY, *LAKE} and not path.endswith("__pycache__")
]
CLUSTER = "tests/local/test_cluster.py"
CHANGES = "tests/cdc"  # a broker that is killed, PostgreSQL, a schema registry, Kafka Connect and a Spark session
WITHOUT_JVM = "rest"
# In the order of their start; what starts no JVM comes first of all.
PARTS = {
    "stack": ["tests/stack"],
    "hard": [*HARD, f"--ignore={LAKE_FAULTS}"],
    "steps": STEPS,
    "more": MORE,
    "lake": LAKE,
    "quality": QUALITY,
    "local": ["tests/local", f"--ignore={CLUSTER}"],
    WITHOUT_JVM: [
        "tests",
        *(f"--ignore={path}" for path in ("tests/stack", "tests/local", "tests/integration", CHANGES, *HARD)),
    ],
}
# By their lengths there, so that the three that end last end together.
DEEP = {
    "stack": PARTS["stack"],
    "steps": STEPS,
    "hard": PARTS["hard"],
    "cluster": [CLUSTER],
    "changes": [CHANGES],
    **PARTS,
}
ARCHIVE = [sys.executable, "-m", "fencepost_stack.class_archive"]
SLOWEST = "--durations=25"
# One more than processors, since each waits now and then. On two processors `--deep` took 5450 seconds of them with four at once
# and some 4100 with two.
AT_ONCE = 1 + len(os.sched_getaffinity(0))
CRASH = b"Fatal Python error"  # what faulthandler says first
LAST = 40  # lines that are shown once more


class Part:
    """One of the processes, whose lines are shown with its name in front."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        environment = {**os.environ, "PY_COLORS": "1"} if sys.stdout.isatty() else None
        self.name = name
        self.lines: list[bytes] = []
        # In a session of its own: Ctrl-C comes to it once, from here, or it would not clean up to the end.
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.reader = Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self.show([line])

    def show(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            sys.stdout.buffer.write(f"{self.name:5} | ".encode() + line)
        sys.stdout.buffer.flush()

    def show_end(self) -> None:
        code = self.process.returncode
        if code:
            crash = islice(dropwhile(lambda line: CRASH not in line, self.lines), LAST)
            self.show(list(crash) or self.lines[-LAST:])
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self.show([f"{ended}\n".encode()])


def main(arguments: list[str]) -> int:
    """The worst of the exit codes. Interrupted, it ends all and waits until they have cleaned up."""
    deep, names = arguments[:1] == ["--deep"], arguments[1:]
    if arguments and not deep:
        os.chdir(ROOT)
        subprocess.run(ARCHIVE, check=True)
        os.execv(PYTEST[0], [*PYTEST, *arguments])  # noqa: S606  # its place is taken, so nothing is between it and Ctrl-C
    # A job in a script's background ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    which = ["-m", f"{'' if deep else 'not '}deep and not fault"]
    together = DEEP if deep else PARTS
    if unknown := [name for name in names if name not in together]:
        sys.exit(f"no part {unknown[0]}; the parts are {', '.join(together)}")
    together = {name: together[name] for name in names} or together
    commands = {name: [*PYTEST, *part, *which, SLOWEST] for name, part in together.items()}
    parts: list[Part] = []
    try:
        if WITHOUT_JVM in commands:
            parts.append(Part(WITHOUT_JVM, commands.pop(WITHOUT_JVM)))
        parts.append(Part("setup", ARCHIVE))
        parts[-1].process.wait()
        for name, command in commands.items():
            while sum(part.process.poll() is None for part in parts) == AT_ONCE:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            parts.append(Part(name, command))
        codes = [part.process.wait() for part in parts]
    except KeyboardInterrupt:
        for part in parts:
            part.process.send_signal(signal.SIGINT)
        codes = [part.process.wait() or 130 for part in parts]
    for part in parts:
        part.reader.join(timeout=10)  # a process that it left behind could hold its output open
    for part in sorted(parts, key=lambda part: part.process.returncode != 0):
        part.show_end()
    return max(abs(code) for code in codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
