"""Computes a digest for each part of a pipeline that decides a batch's output.

Every setting and file counts, except those in a list in this module, which are known to change no record. If the list
lacks an entry, the cost is an unnecessary revision. A revision never has two meanings.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from fencepost.config.client_config import ClientConfig
from fencepost.config.files import open_file, unreadable
from fencepost.config.sections import Mark, Section, marked
from fencepost.config.services.service import Service

# Spark settings for a job's resources, access and logging. A name that ends with a dot stands for all names below it.
# `spark.sql.shuffle.partitions` is missing on purpose: sums of doubles depend on it.
RESOURCES = frozenset(
    """
    spark.cores.max spark.driver.cores spark.driver.memory spark.driver.memoryOverhead spark.driver.memoryOverheadFactor
    spark.driver.maxResultSize spark.driver.host spark.driver.port spark.driver.bindAddress spark.driver.blockManager.port
    spark.executor.cores spark.executor.instances spark.executor.memory spark.executor.memoryOverhead
    spark.executor.memoryOverheadFactor spark.executor.heartbeatInterval spark.executor.pyspark.memory
    spark.python.worker.memory spark.python.worker.reuse spark.task.cpus spark.task.maxFailures spark.speculation
    spark.local.dir spark.app.name spark.serializer
    spark.acls. spark.admin. spark.authenticate. spark.blockManager. spark.broadcast. spark.decommission.
    spark.driver.log. spark.dynamicAllocation. spark.eventLog. spark.excludeOnFailure. spark.executor.resource.
    spark.history. spark.io. spark.kryoserializer. spark.locality. spark.log. spark.memory. spark.metrics. spark.modify.
    spark.network. spark.port. spark.reducer. spark.rpc. spark.scheduler. spark.shuffle. spark.speculation. spark.ssl.
    spark.stage. spark.storage. spark.task.resource. spark.ui. spark.unsafe. spark.worker.
    spark.authenticate
    """.split()
)
SHIPPED = ("spark.jars", "spark.files", "spark.archives")  # lists of files: their content counts besides their names

# Files in a pipeline's folder that are digested field by field, that only judge the output, or that no transform reads.
LEFT_OUT = frozenset({"pipeline.yaml", "expectations.yaml", "transform.py", "transform.sql", "__pycache__"})
LEFT_OUT_ENDINGS = (".md", ".pyc", ".swp", "~")


def digest_of_section(section: Section) -> str:
    """Returns a digest of a section's settings, without those that are marked to decide no record.

    The order in which the section's class declares the settings does not count. The order within a setting counts, for
    example the order of a schema's columns.
    """
    settings = section.model_dump(mode="json", exclude_defaults=True, exclude=_left_out(section))
    return digest({name: settings[name] for name in sorted(settings)})


def _left_out(section: Section) -> dict[str, Any]:
    """Returns the settings of a section, and of the sections in it, that decide no record."""
    within = {name: _left_out(value) for name, value in section if isinstance(value, Section)}
    marks = dict.fromkeys(marked(type(section), Mark.DECIDES_NO_RECORD), True)
    return {**{name: one for name, one in within.items() if one}, **marks}


def digest_of_sources(sources: Mapping[str, Section]) -> str:
    """Returns a digest of several sources by name. Their order in the file decides no record."""
    return digest([[name, digest_of_section(source)] for name, source in sorted(sources.items())])


def digest_of_tables(tables: Mapping[str, Section]) -> str:
    """Returns a digest of the declarations of side tables. Their contents are not in it, because the ledger has their
    fingerprints, nor are the servers that they are read from.
    """
    return digest([[name, digest_of_section(table)] for name, table in sorted(tables.items())])


def digest_of_service(config: ClientConfig, service: Service) -> str:
    """Returns a digest of a service's settings that decide records. Credentials are never included, because a digest
    would make them easier to guess.

    Raises:
        SettingsError: the settings are in a connection that was not looked up.
    """
    return digest({name: value for name, value in config.plain(service).items() if name in service.decides_output})


def digest(value: object) -> str:
    """Returns a digest of sixteen hex digits for a value that JSON can hold. Order counts, because the order of columns
    decides the output's order.
    """
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def digest_of_spark(settings: Mapping[str, str]) -> str:
    """Returns a digest of a pipeline's Spark settings that may change a record."""
    counted: dict[str, object] = {name: value for name, value in settings.items() if not is_resource(name)}
    for name in SHIPPED:
        if name in counted:
            counted[name] = [[entry, _content(entry)] for entry in settings[name].split(",")]
    return digest(sorted(counted.items()))


def is_resource(name: str) -> bool:
    """Returns whether a Spark setting is known to change no record."""
    parts = name.split(".")
    return name in RESOURCES or any(".".join(parts[:n]) + "." in RESOURCES for n in range(2, len(parts)))


def _content(entry: str) -> str:
    file = Path(entry.strip().removeprefix("file://").removeprefix("file:").split("#")[0])
    try:
        return digest_of_file(file) if file.is_file() else ""
    except OSError as error:
        raise unreadable(file, error) from None


def digest_of_files(folder: Path, *, without: Container[Path] = ()) -> str:
    """Returns a digest of all files in a pipeline's folder that its transform may read: helper modules, tables and
    others.

    Links are followed. Hidden files, caches, Markdown, the names in `LEFT_OUT` and the files in `without` are left out.
    """
    try:
        files = [file for file in _files(folder, folder, ()) if file not in without]
        return digest([[str(file.relative_to(folder)), digest_of_file(file)] for file in files])
    except OSError as error:
        raise unreadable(Path(error.filename), error) from None


def _files(top: Path, folder: Path, within: tuple[Path, ...]) -> Iterator[Path]:
    """Yields the regular files below a folder, in order. A link to a folder that contains the link is not followed."""
    real = folder.resolve()
    if real in within:
        return
    for file in sorted(folder.iterdir()):
        name = file.name
        if name.startswith(".") or name.endswith(LEFT_OUT_ENDINGS) or (name in LEFT_OUT and folder == top):
            continue
        if name == "__pycache__" or not file.exists():
            continue
        if file.is_dir():
            yield from _files(top, file, (*within, real))
        elif stat.S_ISREG(file.stat().st_mode):
            yield file


def digest_of_file(file: Path) -> str:
    """Returns a digest of a file's bytes.

    Raises:
        SettingsError: the file cannot be read.
    """
    with open_file(file) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:16]
