"""Downloads the jars of Spark's Kafka connector and of Avro. The jars are downloaded once, and have exactly the bytes
pinned in `jars.lock`.

Set-up also downloads other sets with this module, before any package is installed. So the module needs nothing but
Python.

A lock file has a line for each file: its SHA-256, its set, and its path in a Maven registry. A jar from an archive has its path
in the archive, with a `!` in front.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fencepost import paths
from fencepost.errors import Retriable

MAVEN_CENTRAL = "https://repo1.maven.org/maven2/"
TIMEOUT = 60.0  # seconds without a byte
AT_ONCE = 8  # parallel downloads
PAUSES = (1.0, 2.0, 4.0)  # seconds before a file is requested again
TOO_MANY_REQUESTS = 429
ARCHIVE, INSIDE = ".tar.gz", "!"


class JarsError(Retriable):
    """A jar could not be downloaded, or differs from the pinned jar."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together in one folder, and the file that pins them."""

    name: str
    lock: Path

    def downloads(self) -> dict[str, str]:
        """Returns the SHA-256 of each file to download, by its path in the registry."""
        return {path: digest for path, digest in self._lines() if not path.startswith(INSIDE)}

    def jars(self) -> dict[str, str]:
        """Returns the SHA-256 of each jar, by its path in the folder."""
        return {
            path.removeprefix(INSIDE) if path.startswith(INSIDE) else path.rpartition("/")[2]: digest
            for path, digest in self._lines()
            if not path.endswith(ARCHIVE)
        }

    def _lines(self) -> Iterable[tuple[str, str]]:
        for line in self.lock.read_text().splitlines():
            digest, name, path = line.split(maxsplit=2)
            if name == self.name:
                yield path, digest


CONNECTOR = JarSet("spark", Path(__file__).with_name("jars.lock"))


def digests(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every jar in a folder, by path."""
    return {jar.relative_to(folder).as_posix(): digest_of(jar) for jar in folder.rglob("*.jar")}


def digest_of(path: Path) -> str:
    """Returns a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_there(jar_set: JarSet, folder: Path) -> bool:
    """Returns whether the folder has the pinned jars, byte for byte, and no other jar. It reads the jars, which takes a
    tenth of a second.
    """
    return digests(folder) == jar_set.jars()


def download(jar_set: JarSet, folder: Path) -> None:
    """Downloads the set into `folder`. The old files are replaced only once the new files match their pins.

    An interrupted download is continued.

    Raises:
        JarsError: a file could not be downloaded, or differs from the pinned file. The message names each such file.
    """
    fresh = folder.with_name(f".{folder.name}-download")
    fresh.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        fetched = pool.map(lambda file: _fetch(file[0], file[1], fresh), jar_set.downloads().items())
        if failures := [failure for failure in fetched if failure]:
            raise JarsError(_failure(jar_set, failures))
    for archive in fresh.glob(f"*{ARCHIVE}"):
        unpack(archive, fresh)
    if digests(fresh) != jar_set.jars():
        shutil.rmtree(fresh)
        raise JarsError(f"the {jar_set.name} jars differ from {jar_set.lock}: renew that file with `make pins`.")
    for archive in fresh.glob(f"*{ARCHIVE}"):
        archive.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def ensure_connector(folder: Path) -> bool:
    """Makes sure that a folder has the pinned jars of Spark's Kafka connector. Returns whether that needed a download.

    Raises:
        JarsError: the folder has other files, or the jars could not be downloaded.
    """
    if is_there(CONNECTOR, folder):
        return False
    own = folder == paths.jars_folder() / CONNECTOR.name
    if not own and folder.is_dir() and any(folder.iterdir()):
        raise JarsError(f"{folder} has other files. Empty it, or set FENCEPOST_SPARK_JARS to another folder.")
    download(CONNECTOR, folder)
    return True


def _fetch(path: str, pinned: str, folder: Path) -> str:
    """Downloads one file, unless it is present. Returns what is wrong with the file, or an empty text.

    If a registry does not answer, or says that it is busy, the request is repeated.
    """
    target = folder / path.rpartition("/")[2]
    if target.exists() and digest_of(target) == pinned:
        return ""
    root = os.environ.get("FENCEPOST_MAVEN_MIRROR") or MAVEN_CENTRAL
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    for pause in (*PAUSES, None):
        try:
            with (
                urllib.request.urlopen(f"{root.rstrip('/')}/{path}", timeout=TIMEOUT) as answer,  # noqa: S310
                part.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
                if getattr(answer, "length", 0):  # HTTP's error for a body that is too short
                    raise ConnectionError("the download was cut short")
            if (found := digest_of(part)) != pinned:
                return f"{target.name}: expected {pinned}, found {found}"
            part.replace(target)
            break
        except (OSError, ValueError) as error:  # urllib's errors among them
            if pause is None or not _may_pass(error):
                return f"{target.name}: {error}"
            time.sleep(pause)
        finally:
            part.unlink(missing_ok=True)
    return ""


def _may_pass(error: Exception) -> bool:
    """Returns whether a registry that gave this answer may soon give another answer."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code == TOO_MANY_REQUESTS
    return isinstance(error, OSError)


def unpack(archive: Path, folder: Path) -> None:
    """Extracts the jars of an archive to their paths in the archive. Other members are left out, and so are paths that
    lead out of the folder.
    """
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


def _failure(jar_set: JarSet, failures: list[str]) -> str:
    what = "\n".join(f"  {failure}" for failure in sorted(failures))
    return (
        f"{len(failures)} of the {jar_set.name} jars are missing, or differ from the SHA-256 in {jar_set.lock}:\n{what}\nNothing "
        "uses them. If the Maven registry was out of reach (FENCEPOST_MAVEN_MIRROR names "
        "a mirror) or a download was cut short, run again. Otherwise do not use the jars, and find out why the "
        "registry serves others. Only if the jars have to change, as for a new version, pin the new jars: `make pins`."
    )


def java() -> str:
    """Returns the Java to run. The Java of JAVA_HOME takes precedence over the Java on PATH. Raises JarsError if there
    is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise JarsError(f"no java in {where}. Install Java 17 or newer, or set JAVA_HOME.")
    return found


def log_tail(path: Path, lines: int = 25) -> str:
    """Returns the last lines of a log, indented, for the end of an error message. If there is no log, the text says
    that.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return f"  (no log at {path})"
    tail = text.splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in tail) or f"  ({path} is empty)"
