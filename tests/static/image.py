"""The Dockerfile's steps, taken one by one in an empty folder: what `docker build` would do, as far as no engine is needed.

COPY takes what is there and .dockerignore lets through. RUN has a shell, the variables of ENV, and nothing else of this
machine. Paths of the image are those of a folder. What the steps would fetch is there already, as if fetched: the
packages of this environment, and the jars. The archive of classes, a minute's work that set-up does without where it
fails, is an empty file here. Root and Debian's packages are left out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import string
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fencepost.jars import java
from fencepost_stack.jars import JAR_SETS
from fencepost_stack.state_folder import StateFolder

# What python:3.11-slim-bookworm begins with.
BASE = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
# They need root and Debian. useradd's user is nobody here: `Image.unreadable` says what such a user could not read.
OF_THE_SYSTEM = ("apt-get", "useradd", "install --directory --owner", "rm -rf /var/lib/apt")

CHECKED_OUT = 0o700  # the rights of files in a checkout whose owner has umask 077
# Anything that a step would still fetch, it does not get.
OFFLINE = {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1", "FENCEPOST_MAVEN_MIRROR": "http://127.0.0.1:9/"}

EMPTY_ARCHIVE = """
import json
from fencepost_stack.class_archive import ARCHIVE, RECORD, key_of
from fencepost_stack.state_folder import StateFolder
folder = StateFolder.default().jars_spark
(folder / ARCHIVE).touch()
(folder / RECORD).write_text(json.dumps({"key": key_of(folder), "size": 0}))
"""


class BuildFailed(Exception):
    """A step failed; the message holds the step and what it said."""


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Each instruction's name and the rest of its line; comments left out, continued lines joined."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def copied(rest: str) -> tuple[list[str], str]:
    """The sources and the destination of a COPY. Its options, and patterns, would need to be understood first."""
    *sources, destination = rest.split()
    if any(re.search(r"^--|[*?\[]", word) for word in (*sources, destination)):
        raise BuildFailed(f"COPY {rest}: neither options nor patterns are understood here")
    return sources, destination


class Dockerignore:
    """Which paths of a checkout the build never sees: the last line that names a path, or a folder it is in, decides."""

    def __init__(self, text: str) -> None:
        lines = (line.strip() for line in text.splitlines())
        self._rules = [
            (not line.startswith("!"), line.removeprefix("!").strip("/")) for line in lines if line and line[0] != "#"
        ]

    def ignores(self, path: PurePosixPath) -> bool:
        ignored = False
        for leaves_out, pattern in self._rules:
            if any(_matches(pattern, str(p)) for p in (path, *path.parents) if p.parts):
                ignored = leaves_out
        return ignored

    def context(self, root: Path, folder: PurePosixPath | str = "") -> Iterator[PurePosixPath]:
        """The files that are sent to the build."""
        for entry in sorted(os.scandir(root / folder), key=lambda entry: entry.name):
            path = PurePosixPath(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                within = any(not leaves_out and p.startswith(f"{path}/") for leaves_out, p in self._rules)
                if within or not self.ignores(path):
                    yield from self.context(root, path)
            elif not self.ignores(path):
                yield path


def _matches(pattern: str, path: str) -> bool:
    regex = "".join(
        {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part))
        for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    )
    return re.fullmatch(regex, path) is not None


@dataclass
class Image:
    """What has been built so far in `root`, which takes the place of /."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(BASE))
    workdir: str = "/"
    user: str = "root"
    fetched: bool = False

    def inside(self, text: str) -> str:
        """A text with the image's own paths turned into those of the folder."""
        return re.sub(r"(?<![\w/.])/(?=opt/fencepost|var/lib/fencepost|root\b)", f"{self.root}/", text)

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a process in the image; the programs that the base image has are linked in one folder."""
        values = {name: self.inside(value) for name, value in {**self.environment, **(more or {})}.items()}
        return values | {"PATH": values["PATH"].replace("/usr/local/bin", str(self.root / "usr/local/bin"), 1)}

    def run(self, command: Sequence[str], more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A command in the image, as its user but for the rights."""
        return subprocess.run(
            command,
            cwd=self.inside(self.workdir),
            env=self.variables(more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def unreadable(self) -> list[str]:
        """What only its owner, root, could read."""
        return [
            str(path)
            for folder, _, files in os.walk(self.inside(self.workdir))
            for path in (Path(folder), *(Path(folder, file) for file in files))
            if not path.is_symlink() and not _others_may_read(path.stat().st_mode)
        ]


def _others_may_read(mode: int) -> bool:
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0)
    return mode & needed == needed


def build(checkout: Path, root: Path, dockerfile: str) -> Image:
    """Take all steps in `root`. Raises BuildFailed."""
    image = Image(root)
    ignored = Dockerignore((checkout / ".dockerignore").read_text())
    for folder in ("usr/local/bin", "var/lib/fencepost", "root"):
        (root / folder).mkdir(parents=True)
    for program, target in (("python3.11", sys._base_executable), ("java", java()), ("make", shutil.which("make"))):  # type: ignore[attr-defined]
        (root / "usr/local/bin" / program).symlink_to(target)
    for name, rest in instructions(dockerfile):
        if name == "FROM":
            continue
        if name == "WORKDIR":
            image.workdir = rest
            Path(image.inside(rest)).mkdir(parents=True, exist_ok=True)
        elif name == "ENV":
            words = (word.split("=", 1) for word in shlex.split(rest))
            before = dict(image.environment)
            image.environment |= {key: string.Template(value).substitute(before) for key, value in words}
        elif name == "USER":
            image.user = rest
        elif name == "COPY":
            _copy(image, checkout, ignored, rest)
        elif name == "RUN":
            commands = re.split(r"\s*&&\s*", rest)
            own = [command for command in commands if not command.startswith(OF_THE_SYSTEM)]
            if own and own != commands:
                raise BuildFailed(f"RUN {rest}: what needs root and what does not are to be steps of their own")
            if own:
                _run(image, rest)
        else:
            raise BuildFailed(f"{name} {rest}: not understood here")
    return image


def _run(image: Image, command: str) -> None:
    if not image.fetched:
        _fetch(image)
        image.fetched = True
    else:  # the package is installed
        image.run(["python", "-c", EMPTY_ARCHIVE]).check_returncode()
    done = image.run(["/bin/sh", "-c", image.inside(command)], OFFLINE)
    if done.returncode != 0:
        raise BuildFailed(f"RUN {command}\n{done.stdout}{done.stderr}")


def _copy(image: Image, checkout: Path, ignored: Dockerignore, rest: str) -> None:
    sources, destination = copied(rest)
    into = Path(image.inside(str(PurePosixPath(image.workdir) / destination)))
    if len(sources) > 1 and not destination.endswith("/"):
        raise BuildFailed(f"COPY {rest}: of several sources, the destination has to end with /")
    for source in map(PurePosixPath, sources):
        files = [file for file in ignored.context(checkout) if file == source or source in file.parents]
        if not files:
            raise BuildFailed(f"COPY {rest}: {source} is not there, or .dockerignore leaves it out")
        for file in files:
            inner = file.relative_to(source) if file != source else file.name if destination.endswith("/") else ""
            target = into / inner
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / file, target)
            for path in (target, *target.parents):
                if Path(image.inside(image.workdir)) in path.parents:
                    path.chmod(path.stat().st_mode & CHECKED_OUT)


def _fetch(image: Image) -> None:
    """Packages (all but Fencepost itself) and jars, linked from where set-up has put them."""
    here, there = Path(sys.prefix), Path(image.inside("/opt/fencepost/.venv"))
    for folder, folders, files in os.walk(here):
        target = there / Path(folder).relative_to(here)
        target.mkdir(parents=True)
        folders[:] = [name for name in folders if not name.startswith("fencepost")]
        for name in files:
            path = Path(folder, name)
            if name.startswith(("fencepost", ".fencepost")):
                continue
            if Path(folder) == here / "bin" and not path.is_symlink() and str(here).encode() in path.read_bytes():
                (target / name).write_bytes(path.read_bytes().replace(str(here).encode(), str(there).encode()))
                (target / name).chmod(path.stat().st_mode)
            else:
                _link(path, target / name)
        for name in folders:
            if Path(folder, name).is_symlink():
                _link(Path(folder, name), target / name)
    for jar_set in JAR_SETS:
        jars = Path(image.inside(image.environment["FENCEPOST_JARS"]), jar_set.name)
        jars.mkdir(parents=True)
        resolved = StateFolder.default().jars / jar_set.name
        for jar in resolved.rglob("*.jar"):
            (jars / jar.relative_to(resolved)).parent.mkdir(exist_ok=True)
            _link(jar, jars / jar.relative_to(resolved))


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path, target, follow_symlinks=False)
    except OSError:  # on another disk
        shutil.copy2(path, target, follow_symlinks=False)
