"""Names the software that reads, computes and encodes records. A plan freezes these names."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from importlib.resources.abc import Traversable

# The packages that compute a record or its bytes. Libraries that only a transform imports are not known here.
COMPUTING = ("pyspark", "pyarrow", "pandas", "numpy", "jiter", "confluent-kafka")


def software() -> str:
    """Returns the names and versions of the installed software that reads, computes and encodes records. A plan freezes
    this text, and a write compares its own text with it.
    """
    packages = [f"{name} {_version(name)}" for name in COMPUTING]
    return ", ".join([f"fencepost {_version('fencepost')} ({_code()})", *packages, f"python {_python()}"])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "not installed"


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


@cache
def _code() -> str:
    """Returns a digest of this package's modules, because the version does not change between two releases."""
    modules = [[name, hashlib.sha256(text).hexdigest()] for name, text in _modules(resources.files("fencepost"), "")]
    return hashlib.sha256(json.dumps(modules).encode()).hexdigest()[:8]


def _modules(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yields the name and text of each module. A job on a cluster may have imported the package from a zip."""
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _modules(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield f"{path}{entry.name}", entry.read_bytes()
