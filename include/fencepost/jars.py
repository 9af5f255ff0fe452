"""The jars of Spark's connector to Kafka, and of Avro: resolved once, with the Ivy that PySpark includes.

Every resolved file has to be in the set's file of pins; any other never reaches the folder that is used. Set-up resolves other
sets with this too, before all packages are there, so this module imports as little as it can.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from fencepost import paths
from fencepost.errors import Retriable

# Later connectors need a token provider that some registries lack; 4.0.0 works with PySpark 4.0.x.
CONNECTOR_VERSION = "4.0.0"
AVRO_VERSION = "4.0.2"  # the newest that some registries have; works with PySpark 4.0.4

_VERSION = re.compile(r"-\d[\w.]*(?:-[A-Za-z]+\d*)?$")


class JarsError(Retriable):
    """A jar could not be resolved, or a download is not complete."""


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
    """Jars that belong together in one folder.

    `pins` has the SHA-256 of each, as `sha256sum` writes it. `prepare` is given the folder of what was downloaded.
    """

    name: str
    dependencies: tuple[Dependency, ...]
    pins: Path | None = None
    excluded_orgs: tuple[str, ...] = ()
    prepare: Callable[[Path], None] = lambda folder: None

    @property
    def direct(self) -> set[str]:
        """The file names of the dependencies themselves, without theirs."""
        return {dependency.file for dependency in self.dependencies}


def _leave_out_pyspark_s(folder: Path) -> None:
    shipped = {artifact_name(jar) for jar in pyspark_jars().glob("*.jar")}
    for jar in folder.glob("*.jar"):
        if artifact_name(jar) in shipped:
            jar.unlink()


CONNECTOR = JarSet(
    name="spark",
    dependencies=(
        Dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
        # PySpark includes what it depends on.
        Dependency("org.apache.spark", "spark-avro_2.13", AVRO_VERSION, transitive=False),
    ),
    pins=Path(__file__).with_name("jars.sha256"),
    excluded_orgs=("org.apache.hadoop", "org.scala-lang"),
    prepare=_leave_out_pyspark_s,
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


def pins(jar_set: JarSet) -> dict[str, str]:
    """The SHA-256 of every jar of the set, by path in its folder. Raises JarsError if a dependency itself has none."""
    assert jar_set.pins is not None
    lines = (line.split(maxsplit=1) for line in jar_set.pins.read_text().splitlines())
    paths = ((digest, *path.split("/", 1)) for digest, path in lines)
    pinned = {path: digest for digest, name, path in paths if name == jar_set.name}
    if not_pinned := jar_set.direct - pinned.keys():
        raise JarsError(
            f"no digest for {', '.join(sorted(not_pinned))} in {jar_set.pins}. After a new version: `make pins`."
        )
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
        jar_set.prepare(out)
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


def ensure_connector(folder: Path) -> bool:
    """Make sure that a folder has the pinned jars of Spark's Kafka connector; return whether that needed a download.

    Raises:
        JarsError: the folder has other files, or the jars could not be downloaded.
    """
    if is_resolved(CONNECTOR, folder):
        return False
    own = folder == paths.jars_folder() / CONNECTOR.name
    if not own and folder.is_dir() and any(folder.iterdir()):
        raise JarsError(f"{folder} has other files. Empty it, or set FENCEPOST_SPARK_JARS to another folder.")
    resolve(CONNECTOR, folder, folder.parent / f".{folder.name}-cache", pinned=pins(CONNECTOR))
    return True


def java() -> str:
    """The Java to run: JAVA_HOME's if that is set, else the one on PATH. Raises JarsError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java") if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise JarsError(f"no java in {where}. Install Java 17 or newer, or set JAVA_HOME.")
    return found


def log_tail(path: Path, lines: int = 25) -> str:
    """The last lines of a log, indented, for the end of an error message; it says so if there is no log."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return f"  (no log at {path})"
    tail = text.splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in tail) or f"  ({path} is empty)"


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
        f"{len(differing)} of the {jar_set.name} jars are not the ones pinned in {jar_set.pins} (SHA-256):\n{what}\n"
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
