"""The files of a folder. A file is an interval's row and its rows: it is replaced as a whole, so both are committed together."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from fencepost.outputs.table.pipeline_table import Owner
from fencepost.outputs.table.revisions import Committed, IntervalRow


@dataclass(frozen=True)
class IntervalFile:
    """An interval's row, the batch that it names, and the values of each revision."""

    interval_row: IntervalRow
    batch: str = ""
    values: dict[int, list[str]] = field(default_factory=dict)


class Files:
    """The files of one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def register(self, owner: Owner, *, moved: bool = False) -> Owner:
        """Make the folder this owner's, unless it is somebody's (or `moved` here from another cluster); whose it is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.locked():
            if moved or self.owner() is None:
                self._write("owner", [*owner])
            return self.owner() or owner

    def owner(self) -> Owner | None:
        """Whose the folder is; None if it is nobody's."""
        file = self.folder / "owner"
        return Owner(*json.loads(file.read_text())) if file.exists() else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The lock that whoever publishes or gives up holds."""
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def read(self, start: datetime) -> IntervalFile:
        """The interval's file; an empty one if there is none."""
        file = self.folder / f"{start:%Y%m%dT%H%M%S}.json"
        return self._parsed(file) if file.exists() else IntervalFile(IntervalRow(start))

    def all(self) -> list[IntervalFile]:
        """The files of all intervals, in order of time."""
        return [self._parsed(file) for file in sorted(self.folder.glob("*.json"))]

    def replace(self, one: IntervalFile) -> None:
        """Put the file in the place of the interval's."""
        interval_row = one.interval_row
        self._write(
            f"{interval_row.start:%Y%m%dT%H%M%S}.json",
            {
                "start": interval_row.start.isoformat(),
                "end": interval_row.end.isoformat() if interval_row.end else None,
                "ledger": interval_row.ledger,
                "lease": interval_row.lease,
                "closed": interval_row.closed,
                "revisions": {number: list(done) for number, done in interval_row.revisions.items()},
                "batch": one.batch,
                "values": one.values,
            },
        )

    def close(self, start: datetime, ledger: str, lease: int) -> None:
        """Have the interval's row refuse every later attempt at that publication. Its rows stay."""
        one = self.read(start)
        self.replace(replace(one, interval_row=replace(one.interval_row, ledger=ledger, lease=lease, closed=True)))

    def _write(self, name: str, value: object) -> None:
        new = self.folder / f".{name}.new"
        new.write_text(json.dumps(value))
        new.replace(self.folder / name)

    @staticmethod
    def _parsed(file: Path) -> IntervalFile:
        found = json.loads(file.read_text())
        interval_row = IntervalRow(
            start=datetime.fromisoformat(found["start"]),
            end=datetime.fromisoformat(found["end"]) if found["end"] else None,
            ledger=found["ledger"],
            lease=found["lease"],
            closed=found["closed"],
            revisions={int(number): Committed(*done) for number, done in found["revisions"].items()},
        )
        return IntervalFile(
            interval_row, found["batch"], {int(number): values for number, values in found["values"].items()}
        )
