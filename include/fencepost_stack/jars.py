"""The jars of the broker and of the schema registry, resolved as `fencepost.jars` resolves those of Spark's connector.

A step of `make setup` is `python -m fencepost_stack.jars`, so this module imports as little as it can.
"""

import argparse
import shutil
import sys
import tarfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from fencepost.jars import CONNECTOR, Dependency, JarsError, JarSet, digests, is_resolved, pins, resolve
from fencepost_stack.state_folder import StateFolder

KAFKA_VERSION = "4.3.0"
SCHEMA_REGISTRY_VERSION = "3.0.9"  # later ones need Java 21

PINS = Path(__file__).with_name("jars.sha256")

BROKER = JarSet(
    name="kafka",
    dependencies=(
        Dependency("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        # Its dependencies belong to Connect; the performance tools need none of them.
        Dependency("org.apache.kafka", "kafka-tools", KAFKA_VERSION, transitive=False),
        # Kafka's pom leaves the choice of a logging binding open; without one it logs nothing.
        Dependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
    pins=PINS,
)


def _unpack(folder: Path) -> None:
    """In place of each archive, its jars, at the paths that they have in it; no other member, and none out of the folder."""
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as members:
            for member in members:
                path = PurePosixPath(member.name)
                content = members.extractfile(member) if member.isfile() else None
                if content is None or path.suffix != ".jar" or path.is_absolute() or ".." in path.parts:
                    continue
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)
        archive.unlink()


SCHEMA_REGISTRY = JarSet(
    name="schema-registry",
    dependencies=(
        Dependency(
            *("io.apicurio", "apicurio-registry-app", SCHEMA_REGISTRY_VERSION),
            transitive=False,
            archive="all",
            main=f"apicurio-registry-app-{SCHEMA_REGISTRY_VERSION}-runner.jar",
        ),
    ),
    pins=PINS,
    prepare=_unpack,
)
JAR_SETS = (BROKER, CONNECTOR, SCHEMA_REGISTRY)


def unresolved(state: StateFolder, jar_sets: Sequence[JarSet] = JAR_SETS) -> list[JarSet]:
    """The sets whose folder does not match their pins."""
    return [jar_set for jar_set in jar_sets if not is_resolved(jar_set, state.jars / jar_set.name)]


def ensure(state: StateFolder, jar_sets: Sequence[JarSet] = JAR_SETS) -> list[JarSet]:
    """Resolve the sets that do not match their pins, in parallel; return those."""
    wanted = unresolved(state, jar_sets)
    _resolve_all(state, {jar_set: pins(jar_set) for jar_set in wanted})
    return wanted


def renew_pins(state: StateFolder) -> None:
    """Resolve the sets again without their pins, and pin the result: the next `git diff` shows what changed."""
    _resolve_all(state, dict.fromkeys(JAR_SETS))
    lines: dict[Path, str] = defaultdict(str)
    for jar_set in JAR_SETS:
        assert jar_set.pins is not None
        for name, digest in sorted(digests(state.jars / jar_set.name).items()):
            lines[jar_set.pins] += f"{digest}  {jar_set.name}/{name}\n"
    for file, text in lines.items():
        file.write_text(text)


def _resolve_all(state: StateFolder, pinned: Mapping[JarSet, Mapping[str, str] | None]) -> None:
    def fetch(jar_set: JarSet) -> None:
        cache = state.jars / "cache" / jar_set.name
        resolve(jar_set, state.jars / jar_set.name, cache, pinned=pinned[jar_set])

    with ThreadPoolExecutor(max_workers=max(1, len(pinned))) as pool:
        list(pool.map(fetch, pinned))


def class_path(folder: Path) -> str:
    """All jars of a folder as a Java class path. Raises JarsError if set-up has not run."""
    if not any(folder.glob("*.jar")):
        raise JarsError(f"no jars in {folder}. Run `make setup`.")
    return f"{folder}/*"


def main() -> int:
    """Resolve what is missing and print it; return 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m fencepost_stack.jars")
    parser.add_argument("--renew-pins", action="store_true", help="resolve all jars again, and pin those that come")
    renew = parser.parse_args().renew_pins
    state = StateFolder.default()
    begin = time.monotonic()
    try:
        wanted = list(JAR_SETS) if renew else unresolved(state)
        if wanted:
            sys.stdout.write(
                "setup: jars of Kafka, of Spark's connectors and of the schema registry (a minute the first time)\n"
            )
            sys.stdout.flush()
        if renew:
            renew_pins(state)
        else:
            ensure(state)
    except JarsError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    for jar_set in wanted:
        folder = state.jars / jar_set.name
        sys.stdout.write(f"setup: {len(list(folder.rglob('*.jar')))} jars in {folder}\n")
    if wanted:
        sys.stdout.write(f"setup: jars took {time.monotonic() - begin:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
