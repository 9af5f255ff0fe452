"""Downloads the jars of the broker and of the schema registry, in addition to those of Spark's connector.

`make setup` runs `python -m fencepost_stack.jars` while it installs packages. So this module needs nothing but Python.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fencepost.jars import CONNECTOR, JarsError, JarSet, download, is_there
from fencepost_stack.state_folder import StateFolder

LOCK = Path(__file__).with_name("jars.lock")
BROKER, SCHEMA_REGISTRY = JarSet("kafka", LOCK), JarSet("schema-registry", LOCK)
JAR_SETS = (BROKER, CONNECTOR, SCHEMA_REGISTRY)


def ensure(state: StateFolder, jar_sets: Sequence[JarSet] = JAR_SETS) -> list[JarSet]:
    """Downloads the sets that do not match their pins, in parallel. Returns these sets."""
    wanted = [jar_set for jar_set in jar_sets if not is_there(jar_set, state.jars / jar_set.name)]
    with ThreadPoolExecutor(max_workers=len(JAR_SETS)) as pool:
        list(pool.map(lambda jar_set: download(jar_set, state.jars / jar_set.name), wanted))
    return wanted


def class_path(folder: Path) -> str:
    """Returns all jars of a folder as a Java class path. Raises JarsError if set-up has not run."""
    if not any(folder.glob("*.jar")):
        raise JarsError(f"no jars in {folder}. Run `make setup`.")
    return f"{folder}/*"


def main() -> int:
    """Downloads what is missing, and prints it. Returns 0, or 1 with the reason on stderr."""
    state, begin = StateFolder.default(), time.monotonic()
    try:
        wanted = ensure(state)
    except JarsError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    if wanted:
        count = sum(len(jar_set.jars()) for jar_set in wanted)
        sys.stdout.write(f"setup: {count} jars in {state.jars}, {time.monotonic() - begin:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
