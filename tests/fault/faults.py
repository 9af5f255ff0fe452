"""`fencepost run` as a process of its own, struck at a failpoint, and a checker that shares no code with the writer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from conftest import at, day
from fencepost.local.broker import Broker
from fencepost.settings import Pipeline
from kafka_tools import create_topic, group_offsets, produce, read_all
from oracle.murmur2 import murmur2
from waiting import await_true

PARTITIONS = 2
PER_PARTITION = 150
LIMIT = 180.0  # seconds for one run


@dataclass
class Fault:
    """One pipeline, its source filled, and runs of its first day."""

    broker: Broker
    pipeline: Pipeline
    folder: Path

    def fill(self) -> None:
        create_topic(self.broker.bootstrap, self.pipeline.source.topic, PARTITIONS)
        produce(self.broker.bootstrap, self.pipeline.source.topic, self.source())

    @staticmethod
    def source() -> list[tuple[bytes, dict[str, object], int, int]]:
        """Seven keys a partition, again and again, so that a key's order can be lost."""
        return [
            (f"p{p}k{n % 7}".encode(), {"n": n, "name": "x"}, p, at(1, n * 20 / PER_PARTITION))
            for p in range(PARTITIONS)
            for n in range(PER_PARTITION)
        ]

    def start(self, failpoint: str = "") -> subprocess.Popen[str]:
        """`fencepost run` of day 1; a failpoint strikes once."""
        (self.folder / "struck").mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "FENCEPOST_PIPELINES": str(self.pipeline.folder.parent),
            "FENCEPOST_SPARK_MASTER": "local[2]",
            "FENCEPOST_REPORTS": str(self.folder / "reports"),
            "FENCEPOST_FAILPOINT_DIR": str(self.folder / "struck"),
            "FENCEPOST_FAILPOINTS": failpoint,
        }
        interval = ["--start", day(1).start.isoformat(), "--end", day(1).end.isoformat()]
        return subprocess.Popen(
            [str(Path(sys.executable).parent / "fencepost"), "run", self.pipeline.name, *interval, "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, failpoint: str = "") -> tuple[int, str]:
        """The exit code of a whole run, and the error it tells."""
        return finish(self.start(failpoint))

    def struck(self, failpoint: str) -> int:
        """Wait for the failpoint to strike; the pid of the process it struck."""
        file = self.folder / "struck" / failpoint
        await_true(lambda: file.exists() and file.read_text() != "", f"{failpoint} to strike")
        return int(file.read_text())

    def differences(self) -> list[str]:
        """What read_committed shows against the truth: losses, copies, wrong partitions, wrong order, wrong offsets."""
        found: list[str] = []
        seen = read_all(self.broker.bootstrap, self.pipeline.output.topic)
        wanted = Counter((key, value["n"]) for key, value, _, _ in self.source())
        there = Counter((r.key, r.json["n"]) for r in seen)
        found += [f"lost {one}" for one in (wanted - there).elements()]
        found += [f"too many of {one}" for one in (there - wanted).elements()]
        for record in seen:
            if record.partition != (murmur2(record.key or b"") & 0x7FFFFFFF) % self.pipeline.output.partitions:
                found.append(f"{record.key!r} in partition {record.partition}")
        for key in {r.key for r in seen}:
            order = [r.json["n"] for r in seen if r.key == key]
            found += [f"order of {key!r}: {order}"] if order != sorted(order) else []
        offsets = group_offsets(self.broker.bootstrap, self.pipeline.group, self.pipeline.source.topic, [0, 1])
        if offsets != dict.fromkeys(range(PARTITIONS), PER_PARTITION):
            found.append(f"group offsets {offsets}")
        return found


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a run; its exit code, and the type and text of its error, if any."""
    text, _ = process.communicate(timeout=LIMIT)
    error = json.loads(text)["error"] if text.strip() else None
    return process.returncode, f"{error['type']}: {error['message']}" if error else ""


def alive(pid: int) -> bool:
    """Whether a process still runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
