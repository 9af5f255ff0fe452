"""`make pins` resolves the jars with the Ivy that PySpark includes, and writes their digests to each package's
`jars.lock`.

The next `git diff` shows what changed. Set-up then downloads these files and no others.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from fencepost.jars import ARCHIVE, CONNECTOR, INSIDE, JarsError, JarSet, digest_of, digests, java, log_tail, unpack
from fencepost_stack.jars import BROKER, SCHEMA_REGISTRY

KAFKA_VERSION = "4.3.0"
SPARK_VERSION = "4.1.1"  # PySpark's, in pyproject.toml
SCHEMA_REGISTRY_VERSION = "3.0.9"  # later ones need Java 21


@dataclass(frozen=True, slots=True)
class Dependency:
    """A Maven coordinate. With `transitive` its dependencies at run time are resolved too.

    `archive` is the classifier of a tar.gz to take in place of the jar. The jars of an archive are in its own folders.
    `classifiers` are those of jars to take in addition to the jar without one.
    """

    org: str
    name: str
    revision: str
    transitive: bool = True
    archive: str = ""
    classifiers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The dependencies that a set is resolved from."""

    jar_set: JarSet
    dependencies: tuple[Dependency, ...]
    excluded_orgs: tuple[str, ...] = ()
    beside_pyspark: bool = False  # without what PySpark includes


WANTED = (
    Wanted(
        BROKER,
        (
            Dependency("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
            # Its dependencies belong to Connect; the performance tools need none of them.
            Dependency("org.apache.kafka", "kafka-tools", KAFKA_VERSION, transitive=False),
            # Kafka's pom leaves the choice of a logging binding open; without one it logs nothing.
            Dependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        ),
    ),
    Wanted(
        CONNECTOR,
        (
            Dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
            # PySpark includes what it depends on.
            Dependency("org.apache.spark", "spark-avro_2.13", SPARK_VERSION, transitive=False),
        ),
        excluded_orgs=("org.apache.hadoop", "org.scala-lang"),
        beside_pyspark=True,
    ),
    Wanted(
        SCHEMA_REGISTRY,
        (Dependency("io.apicurio", "apicurio-registry-app", SCHEMA_REGISTRY_VERSION, transitive=False, archive="all"),),
    ),
)
_VERSION = re.compile(r"-\d[\w.]*(?:-[A-Za-z]+\d*)?$")


def renew(wanted: Sequence[Wanted] = WANTED) -> None:
    """Resolves the sets, and writes their files of pins.

    Raises:
        JarsError: a dependency could not be resolved. The message ends with Ivy's log.
    """
    lines: dict[Path, str] = defaultdict(str)
    for one in wanted:
        for path, digest in _resolve(one).items():
            lines[one.jar_set.lock] += f"{digest}  {one.jar_set.name}  {path}\n"
    for file, text in lines.items():
        file.write_text(text)


def artifact_name(jar: Path) -> str:
    """Returns a jar's name without its version. For example, `kafka_2.13-4.3.0.jar` becomes `kafka_2.13`."""
    return _VERSION.sub("", jar.stem)


def pyspark_jars() -> Path:
    """Returns the folder of jars inside the installed PySpark, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JarsError("PySpark is not installed in this environment. Run `make setup`.")
    return Path(next(iter(spec.submodule_search_locations))) / "jars"


def _resolve(wanted: Wanted) -> dict[str, str]:
    """Returns the SHA-256 of each file of a set, in the order and with the paths of a lock file."""
    # Ivy could stumble over a half-filled ~/.m2, so it gets settings and a cache of its own.
    with tempfile.TemporaryDirectory(prefix="fencepost-pins-") as scratch:
        work = Path(scratch)
        out, log = work / "out", work / "log"
        (work / "ivysettings.xml").write_text(_ivy_settings(wanted))
        (work / "ivy.xml").write_text(_ivy_file(wanted))
        with log.open("w") as log_file:
            done = subprocess.run(
                [
                    java(),
                    f"-Divy.cache.dir={work / 'cache'}",
                    "-jar",
                    str(next(pyspark_jars().glob("ivy-*.jar"))),
                    *("-settings", str(work / "ivysettings.xml"), "-cache", str(work / "cache")),
                    *("-ivy", str(work / "ivy.xml"), "-types", "jar", "bundle", "tar.gz"),
                    *("-retrieve", f"{out}/[orgPath]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            raise JarsError(f"could not resolve the {wanted.jar_set.name} jars. Ivy's log ends with:\n{log_tail(log)}")
        shipped = {artifact_name(jar) for jar in pyspark_jars().glob("*.jar")} if wanted.beside_pyspark else set()
        files = sorted(path for path in out.rglob("*") if path.is_file() and artifact_name(path) not in shipped)
        found = {file.relative_to(out).as_posix(): digest_of(file) for file in files}
        for archive in files:
            if archive.name.endswith(ARCHIVE):
                unpack(archive, work / "members")
        return found | {f"{INSIDE}{jar}": digest for jar, digest in sorted(digests(work / "members").items())}


def _ivy_settings(wanted: Wanted) -> str:
    """Returns Ivy's settings. Ivy uses Maven Central, or the mirror that FENCEPOST_MAVEN_MIRROR names.

    A set without transitive dependencies needs no poms, and some registries lack the parents of these poms.
    """
    poms = str(any(dependency.transitive for dependency in wanted.dependencies)).lower()
    mirror = os.environ.get("FENCEPOST_MAVEN_MIRROR")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return f"""<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="${{ivy.cache.dir}}"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="{poms}"{root}/></resolvers>
</ivysettings>
"""


def _ivy_file(wanted: Wanted) -> str:
    dependencies = "".join(
        f'<dependency org="{d.org}" name="{d.name}" rev="{d.revision}" conf="default->default"'
        f' transitive="{str(d.transitive).lower()}">{_ivy_artifact(d)}</dependency>'
        for d in wanted.dependencies
    )
    excluded = "".join(f'<exclude org="{org}"/>' for org in wanted.excluded_orgs)
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="fencepost" module="{wanted.jar_set.name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{dependencies}{excluded}</dependencies>
</ivy-module>
"""


def _ivy_artifact(dependency: Dependency) -> str:
    """Returns what to fetch in place of the jar alone. The text is empty if the dependency is a jar."""
    if dependency.archive:
        return f'<artifact name="{dependency.name}" type="tar.gz" ext="tar.gz" m:classifier="{dependency.archive}"/>'
    if not dependency.classifiers:
        return ""
    jars = "".join(
        f'<artifact name="{dependency.name}" type="jar" ext="jar" m:classifier="{classifier}"/>'
        for classifier in dependency.classifiers
    )
    return f'<artifact name="{dependency.name}" type="jar" ext="jar"/>{jars}'


if __name__ == "__main__":
    try:
        renew()
    except JarsError as error:
        sys.exit(f"pins: {error}")
