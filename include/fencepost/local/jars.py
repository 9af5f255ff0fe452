"""Resolves the jars of the broker, of Spark's connector and of the schema registry, once, with the Ivy that PySpark includes.

Every resolved file has to be in `jars.sha256`; any other never reaches the folders that are used. A step of `make setup` is
`python -m fencepost.local.jars`, so this module imports as little of the package as it can.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.sax.saxutils import quoteattr

from fencepost.local.errors import JarsError, log_tail
from fencepost.local.state_folder import StateFolder

KAFKA_VERSION = "4.3.0"
# Later connectors need a token provider that some registries lack; 4.0.0 works with PySpark 4.0.x.
CONNECTOR_VERSION = "4.0.0"
AVRO_VERSION = "4.0.2"  # the newest that some registries have; works with PySpark 4.0.4
SCHEMA_REGISTRY_VERSION = "3.0.9"  # later ones need Java 21

# In the format of `sha256sum`, so `cd .fencepost/jars && sha256sum --check .../jars.sha256` reads it too.
PINS = Path(__file__).with_name("jars.sha256")

_VERSION = re.compile(r"-\d[\w.]*(?:-[A-Za-z]+\d*)?$")


@dataclass(frozen=True, slots=True)
class Dependency:
    """A Maven coordinate; `transitive` also resolves its dependencies at run time.

    `archive` is the classifier of a tar.gz that brings jars in folders of its own. `main` is then the jar to run.
    """

    org: str
    name: str
    revision: str
    transitive: bool = True
    archive: str = ""
    main: str = ""

    @property
    def file(self) -> str:
        """The jar that proves that the dependency is there."""
        return self.main or f"{self.name}-{self.revision}.jar"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together in one folder."""

    name: str
    dependencies: tuple[Dependency, ...]
    excluded_orgs: tuple[str, ...] = ()
    beside_pyspark: bool = False

    @property
    def direct(self) -> set[str]:
        """The file names of the dependencies themselves, without theirs."""
        return {dependency.file for dependency in self.dependencies}


BROKER = JarSet(
    name="kafka",
    dependencies=(
        Dependency("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        # Its dependencies belong to Connect; the performance tools need none of them.
        Dependency("org.apache.kafka", "kafka-tools", KAFKA_VERSION, transitive=False),
        # Kafka's pom leaves the choice of a logging binding open; without one it logs nothing.
        Dependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
)
CONNECTOR = JarSet(
    name="spark",
    dependencies=(
        Dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
        # PySpark includes what it depends on.
        Dependency("org.apache.spark", "spark-avro_2.13", AVRO_VERSION, transitive=False),
    ),
    excluded_orgs=("org.apache.hadoop", "org.scala-lang"),
    beside_pyspark=True,
)
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
)


JAR_SETS = (BROKER, CONNECTOR, SCHEMA_REGISTRY)


def pyspark_jars() -> Path:
    """The folder of jars inside the installed PySpark, found without importing it."""
    import importlib.util

    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JarsError("PySpark is not installed in this environment. Run `make setup`.")
    return Path(next(iter(spec.submodule_search_locations))) / "jars"


def artifact_name(jar: Path) -> str:
    """A jar's name without version: `kafka_2.13-4.3.0.jar` is `kafka_2.13`."""
    return _VERSION.sub("", jar.stem)


def pins(jar_set: JarSet, file: Path = PINS) -> dict[str, str]:
    """The SHA-256 of every jar of the set, by path in its folder. Raises JarsError if a dependency itself has none."""
    lines = (line.split(maxsplit=1) for line in file.read_text().splitlines())
    paths = ((digest, *path.split("/", 1)) for digest, path in lines)
    pinned = {path: digest for digest, name, path in paths if name == jar_set.name}
    if not_pinned := jar_set.direct - pinned.keys():
        raise JarsError(f"no digest for {', '.join(sorted(not_pinned))} in {file}. After a new version: `make pins`.")
    return pinned


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every jar in a folder, by path."""
    found = {}
    for jar in folder.rglob("*.jar"):
        with jar.open("rb") as file:
            found[jar.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def is_resolved(jar_set: JarSet, folder: Path) -> bool:
    """Whether the folder has the pinned jars, byte for byte, and no other file. Reads them: a tenth of a second."""
    return digests(folder) == pins(jar_set)


def resolve(jar_set: JarSet, folder: Path, cache: Path, *, pinned: Mapping[str, str] | None) -> None:
    """Download the set into `folder`. It replaces the old files only once the new ones match their pins.

    `pinned` is None to accept whatever the registry has, for new pins. JarsError names the artifacts that could not be
    downloaded, or that do not match.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    # Ivy could stumble over a half-filled ~/.m2, so it gets settings and a cache of its own.
    with tempfile.TemporaryDirectory(prefix=f".{jar_set.name}-", dir=folder.parent) as scratch:
        work = Path(scratch)
        out = work / "out"
        out.mkdir()
        (work / "ivysettings.xml").write_text(_ivy_settings(jar_set))
        (work / "ivy.xml").write_text(_ivy_file(jar_set))
        log = folder.parent / f"resolve-{jar_set.name}.log"
        with log.open("w") as log_file:
            done = subprocess.run(
                [
                    java(),
                    f"-Divy.cache.dir={cache}",
                    "-jar",
                    str(next(pyspark_jars().glob("ivy-*.jar"))),
                    *("-settings", str(work / "ivysettings.xml"), "-cache", str(cache)),
                    *("-ivy", str(work / "ivy.xml"), "-types", "jar", "bundle", "tar.gz"),
                    *("-retrieve", f"{out}/[artifact]-[revision](-[classifier]).[ext]"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        for archive in out.glob("*.tar.gz"):
            _unpack(archive, out)
            archive.unlink()
        if jar_set.beside_pyspark:
            shipped = {artifact_name(jar) for jar in pyspark_jars().glob("*.jar")}
            for jar in out.glob("*.jar"):
                if artifact_name(jar) in shipped:
                    jar.unlink()
        found = digests(out)
        missing = jar_set.direct - found.keys()
        if done.returncode != 0 or missing:
            raise JarsError(_failure(jar_set, log, missing))
        if pinned is not None and found != pinned:
            shutil.rmtree(cache)  # otherwise the next run would take the same files from it
            raise JarsError(_refusal(jar_set, found, pinned))
        shutil.rmtree(folder, ignore_errors=True)
        out.rename(folder)
    # The cache has served. After a failure it stays, so the next try fetches only what is missing.
    shutil.rmtree(cache)


def unresolved(state: StateFolder, jar_sets: Sequence[JarSet] = JAR_SETS) -> list[JarSet]:
    """The sets whose folder does not match their pins."""
    return [jar_set for jar_set in jar_sets if not is_resolved(jar_set, state.jars / jar_set.name)]


def ensure(state: StateFolder) -> list[JarSet]:
    """Resolve the sets that do not match their pins, in parallel; return those."""
    wanted = unresolved(state)
    _resolve_all(state, {jar_set: pins(jar_set) for jar_set in wanted})
    return wanted


def ensure_connector(folder: Path) -> bool:
    """Make sure that a folder has the pinned jars of Spark's Kafka connector; return whether that needed a download.

    Raises:
        JarsError: the folder has other files, or the jars could not be downloaded.
    """
    if is_resolved(CONNECTOR, folder):
        return False
    own = folder == StateFolder.default().jars_spark
    if not own and folder.is_dir() and any(folder.iterdir()):
        raise JarsError(f"{folder} has other files. Empty it, or set FENCEPOST_SPARK_JARS to another folder.")
    resolve(CONNECTOR, folder, folder.parent / f".{folder.name}-cache", pinned=pins(CONNECTOR))
    return True


def renew_pins(state: StateFolder, file: Path = PINS) -> None:
    """Resolve the sets again without their pins, and pin the result: the next `git diff` shows what changed."""
    _resolve_all(state, dict.fromkeys(JAR_SETS))
    lines = [
        f"{digest}  {jar_set.name}/{name}\n"
        for jar_set in JAR_SETS
        for name, digest in sorted(digests(state.jars / jar_set.name).items())
    ]
    file.write_text("".join(lines))


def _unpack(archive: Path, folder: Path) -> None:
    """The jars of an archive, at the paths that they have in it. Other members, and paths out of the folder, stay in it."""
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


def java() -> str:
    """The Java to run: JAVA_HOME's if that is set, else the one on PATH. Raises JarsError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java") if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise JarsError(f"no java in {where}. Install Java 17 or newer, or set JAVA_HOME.")
    return found


def _ivy_settings(jar_set: JarSet) -> str:
    """Ivy's settings: Maven Central, or the mirror that FENCEPOST_MAVEN_MIRROR names.

    A set of lone artifacts needs no poms, and some registries lack the parents of these.
    """
    poms = str(any(dependency.transitive for dependency in jar_set.dependencies)).lower()
    mirror = os.environ.get("FENCEPOST_MAVEN_MIRROR")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return f"""<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="${{ivy.cache.dir}}"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="{poms}"{root}/></resolvers>
</ivysettings>
"""


def _ivy_file(jar_set: JarSet) -> str:
    wanted = "".join(
        f'<dependency org="{d.org}" name="{d.name}" rev="{d.revision}" conf="default->default"'
        f' transitive="{str(d.transitive).lower()}">{_ivy_artifact(d)}</dependency>'
        for d in jar_set.dependencies
    )
    excluded = "".join(f'<exclude org="{org}"/>' for org in jar_set.excluded_orgs)
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="fencepost" module="{jar_set.name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{wanted}{excluded}</dependencies>
</ivy-module>
"""


def _ivy_artifact(dependency: Dependency) -> str:
    """The archive to fetch in place of the jar, if the dependency is one."""
    if not dependency.archive:
        return ""
    return f'<artifact name="{dependency.name}" type="tar.gz" ext="tar.gz" m:classifier="{dependency.archive}"/>'


def _refusal(jar_set: JarSet, found: Mapping[str, str], pinned: Mapping[str, str]) -> str:
    """The jars that do not match their pins, with both digests."""
    differing = [name for name in sorted({*found, *pinned}) if found.get(name) != pinned.get(name)]
    what = "\n".join(
        f"  {name}: expected {pinned.get(name, 'no such jar')}, found {found.get(name, 'no such jar')}"
        for name in differing
    )
    return (
        f"{len(differing)} of the {jar_set.name} jars are not the ones pinned in {PINS} (SHA-256):\n{what}\n"
        "They were deleted and nothing uses them. If the download was cut short, run again. Else find out what the"
        " registry (or the mirror in FENCEPOST_MAVEN_MIRROR) serves there, and do not use it; only where the jars were"
        " to change, as with a new version, pin the new ones: `make pins`."
    )


def _failure(jar_set: JarSet, log: Path, missing: set[str]) -> str:
    """What could not be downloaded, in Ivy's own words if it says so."""
    text = log.read_text(errors="replace")
    named = set(re.findall(r":: (\S+#\S+?): (?:not found|.*error)", text))
    named |= set(re.findall(r"\[FAILED +\] (\S+)", text))
    what = ", ".join(sorted(named) or sorted(missing) or [str(d) for d in jar_set.dependencies])
    return (
        f"could not resolve the {jar_set.name} jars: {what}. Is the Maven registry reachable"
        f" (FENCEPOST_MAVEN_MIRROR names a mirror)? Then run again. Ivy's log ({log}) ends with:\n{log_tail(log)}"
    )


def main() -> int:
    """Resolve what is missing and print it; return 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m fencepost.local.jars")
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
