"""Resolves the broker's and the Spark connector's jars, once, with the Ivy that PySpark ships.

`python -m fencepost.local.jars` is the last step of `make setup`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from fencepost.local.errors import JarsError, log_tail
from fencepost.local.state import State

KAFKA_VERSION = "4.3.0"
# Later connectors need a token provider that not every registry has; 4.0.0 works with PySpark 4.0.x.
CONNECTOR_VERSION = "4.0.0"

_VERSION = re.compile(r"-\d[\w.]*(?:-[A-Za-z]+\d*)?$")


@dataclass(frozen=True, slots=True)
class Dependency:
    """A Maven coordinate; `transitive` brings what it needs at run time too."""

    org: str
    name: str
    revision: str
    transitive: bool = True


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together in one folder. `must_have` are artifact names without version."""

    name: str
    dependencies: tuple[Dependency, ...]
    must_have: tuple[str, ...]
    excluded_orgs: tuple[str, ...] = ()
    beside_pyspark: bool = False

    def key(self) -> str:
        """Changes when, and only when, the folder must be resolved anew."""
        return f"2 {self!r}"


BROKER = JarSet(
    name="kafka",
    dependencies=(
        Dependency("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        # Its own dependencies are Connect's; the performance tools need none of them.
        Dependency("org.apache.kafka", "kafka-tools", KAFKA_VERSION, transitive=False),
        # Kafka's pom leaves the choice of a logging binding open; without one it logs nothing.
        Dependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
    must_have=("kafka_2.13", "kafka-clients", "kafka-server", "kafka-tools", "log4j-slf4j-impl", "scala-library"),
)
CONNECTOR = JarSet(
    name="spark",
    dependencies=(Dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),),
    must_have=("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2"),
    excluded_orgs=("org.apache.hadoop", "org.scala-lang"),
    beside_pyspark=True,
)


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


def is_resolved(jar_set: JarSet, folder: Path) -> bool:
    """Whether the folder holds exactly this set, every jar of the size it had when it was checked."""
    try:
        record = json.loads((folder / "resolved.json").read_text())
        sizes = {name: (folder / name).stat().st_size for name in record["sizes"]}
    except (OSError, ValueError, KeyError):
        return False
    return bool(record["key"] == jar_set.key() and sizes == record["sizes"])


def resolve(jar_set: JarSet, folder: Path, cache: Path) -> None:
    """Download the set into `folder`, replacing what was there only once all of it is whole.

    Raises JarsError naming the artifacts that could not be had.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    # Ivy may find a half-filled ~/.m2 and trip over it: settings and cache are ours alone.
    with tempfile.TemporaryDirectory(prefix=f".{jar_set.name}-", dir=folder.parent) as scratch:
        work = Path(scratch)
        out = work / "out"
        (work / "ivysettings.xml").write_text(_ivy_settings())
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
                    *("-ivy", str(work / "ivy.xml"), "-types", "jar", "bundle"),
                    *("-retrieve", f"{out}/[artifact]-[revision](-[classifier]).[ext]"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        jars = sorted(out.glob("*.jar"))
        missing = set(jar_set.must_have) - {artifact_name(jar) for jar in jars}
        if done.returncode != 0 or missing:
            raise JarsError(_failure(jar_set, log, missing))
        broken = [jar.name for jar in jars if not _is_whole(jar)]
        if broken:
            shutil.rmtree(cache)
            raise JarsError(f"downloaded jars are not whole: {', '.join(broken)}. Run again.")
        if jar_set.beside_pyspark:
            shipped = {artifact_name(jar) for jar in pyspark_jars().glob("*.jar")}
            for jar in jars:
                if artifact_name(jar) in shipped:
                    jar.unlink()
        record = {"key": jar_set.key(), "sizes": {jar.name: jar.stat().st_size for jar in out.glob("*.jar")}}
        (out / "resolved.json").write_text(json.dumps(record, indent=2, sort_keys=True))
        shutil.rmtree(folder, ignore_errors=True)
        out.rename(folder)
    # It has served; after a failure it stays, so that the next try fetches only what is missing.
    shutil.rmtree(cache)


def ensure(state: State, jar_sets: Sequence[JarSet] = (BROKER, CONNECTOR)) -> list[JarSet]:
    """Resolve the sets that are not there yet, side by side; returns those that had to be."""
    wanted = [jar_set for jar_set in jar_sets if not is_resolved(jar_set, state.jars / jar_set.name)]

    def fetch(jar_set: JarSet) -> None:
        resolve(jar_set, state.jars / jar_set.name, state.jars / "cache" / jar_set.name)

    with ThreadPoolExecutor(max_workers=max(1, len(wanted))) as pool:
        list(pool.map(fetch, wanted))
    return wanted


def class_path(folder: Path) -> str:
    """All jars of a folder as a Java class path. Raises JarsError when set-up has not been run."""
    if not any(folder.glob("*.jar")):
        raise JarsError(f"no jars in {folder}. Run `make setup`.")
    return f"{folder}/*"


def java() -> str:
    """The Java to run: JAVA_HOME's when that is set, else the one on PATH. Raises JarsError without one."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java") if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise JarsError(f"no java in {where}. Install Java 17 or newer, or set JAVA_HOME.")
    return found


def _ivy_settings() -> str:
    """Ivy's settings: Maven Central, or the mirror of it that FENCEPOST_MAVEN_MIRROR names."""
    mirror = os.environ.get("FENCEPOST_MAVEN_MIRROR")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return f"""<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="${{ivy.cache.dir}}"/>
  <resolvers><ibiblio name="central" m2compatible="true"{root}/></resolvers>
</ivysettings>
"""


def _ivy_file(jar_set: JarSet) -> str:
    wanted = "".join(
        f'<dependency org="{d.org}" name="{d.name}" rev="{d.revision}" conf="default->default"'
        f' transitive="{str(d.transitive).lower()}"/>'
        for d in jar_set.dependencies
    )
    excluded = "".join(f'<exclude org="{org}"/>' for org in jar_set.excluded_orgs)
    return f"""<ivy-module version="2.0">
  <info organisation="fencepost" module="{jar_set.name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{wanted}{excluded}</dependencies>
</ivy-module>
"""


def _failure(jar_set: JarSet, log: Path, missing: set[str]) -> str:
    """What could not be had, in Ivy's own words where it says so."""
    text = log.read_text(errors="replace")
    named = set(re.findall(r":: (\S+#\S+?): (?:not found|.*error)", text))
    named |= set(re.findall(r"\[FAILED +\] (\S+)", text))
    what = ", ".join(sorted(named) or sorted(missing) or [str(d) for d in jar_set.dependencies])
    return (
        f"could not resolve the {jar_set.name} jars: {what}. Is the Maven registry reachable"
        f" (FENCEPOST_MAVEN_MIRROR names a mirror)? Then run again. Ivy's log ({log}) ends with:\n{log_tail(log)}"
    )


def _is_whole(jar: Path) -> bool:
    """Whether every member of the jar reads back with the checksum it was stored with."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def main() -> int:
    """Resolve what is missing and say so; 0, or 1 with the reason on stderr."""
    state = State.default()
    begin = time.monotonic()
    if not all(is_resolved(jar_set, state.jars / jar_set.name) for jar_set in (BROKER, CONNECTOR)):
        sys.stdout.write("setup: jars of Kafka and of Spark's Kafka connector (a minute the first time)\n")
        sys.stdout.flush()
    try:
        resolved = ensure(state)
    except JarsError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    for jar_set in resolved:
        folder = state.jars / jar_set.name
        sys.stdout.write(f"setup: {len(list(folder.glob('*.jar')))} jars in {folder}\n")
    if resolved:
        sys.stdout.write(f"setup: jars took {time.monotonic() - begin:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
