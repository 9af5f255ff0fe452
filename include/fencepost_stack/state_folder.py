"""The folder with the local stack's state. git ignores it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost import paths


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Paths inside one state folder. A path may not exist yet; `make_folders` makes the folders."""

    root: Path
    shared_jars: Path | None = None  # jars are the same for every state, so several may share them

    @classmethod
    def default(cls) -> StateFolder:
        """Returns the state folder in use on this machine."""
        return cls(paths.state_folder())

    @property
    def jars(self) -> Path:
        """Returns `shared_jars`, or the folder in `FENCEPOST_JARS`, or a folder in this state folder."""
        return self.shared_jars or paths.named_folder("FENCEPOST_JARS") or self.root / "jars"

    @property
    def jars_spark(self) -> Path:
        """Returns the folder of the connectors to Kafka and Avro, which PySpark does not include."""
        return self.jars / "spark"

    @property
    def jars_kafka(self) -> Path:
        """Returns the folder with the whole class path of the broker and of Kafka's command line tools."""
        return self.jars / "kafka"

    @property
    def jars_schema_registry(self) -> Path:
        """Returns the folder with the schema registry's runner. The runner's class path is in a folder beside it."""
        return self.jars / "schema-registry"

    @property
    def kafka(self) -> Path:
        return self.root / "kafka"

    @property
    def schema_registry(self) -> Path:
        return self.root / "schema-registry"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def warehouse(self) -> Path:
        """Returns the folder of the files of Iceberg tables. Each catalog has a folder in it, with the name of its
        database.
        """
        return self.root / "warehouse"

    @property
    def airflow(self) -> Path:
        """Returns AIRFLOW_HOME."""
        return self.root / "airflow"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def secrets_file(self) -> Path:
        """Returns the file of the generated passwords and keys. It has mode 0600."""
        return self.root / "secrets.json"

    @property
    def services_file(self) -> Path:
        """Returns the file of the running processes and their ports. It has mode 0600."""
        return self.root / "services.json"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    def make_folders(self) -> None:
        """Makes the folder and the subfolders that services write to. Other users may not read the records and reports
        in them.

        Existing folders are closed to other users too. PostgreSQL makes its own folder, which may belong to another
        user.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in (self.kafka, self.schema_registry, self.airflow, self.logs, self.reports, self.warehouse):
            folder.mkdir(mode=0o750, exist_ok=True)
            folder.chmod(folder.stat().st_mode & ~0o027)


def write_private(path: Path, text: str) -> None:
    """Replaces a file as a whole. Only its owner can ever read it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def write_private_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON object with `write_private`."""
    write_private(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file. It is empty if there is no file."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return dict(value)
