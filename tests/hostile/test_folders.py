"""Whatever lies in the folder of pipelines: at most the pipeline that it belongs to is broken, and its error says why.

Editors leave links to nowhere as locks, git-sync's links lead nowhere for a moment, and a mount may bring other users' files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.config.digest import digest_of_files
from fencepost.config.loading import find_pipeline, load_pipelines
from fencepost.errors import SettingsError
from fencepost.pages.pipelines import Pipelines

PIPELINE = """
source: {topic: in, schema: {n: int}}
output: {topic: out}
schedule: {start: 2026-01-01}
kafka: {bootstrap.servers: "127.0.0.1:9092"}
"""
NOBODY = 65534
pytestmark = pytest.mark.timeout(30)  # nothing waits for the other end of a pipe


def make(folder: Path) -> Path:
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "transform.sql").write_text("SELECT * FROM {source}")
    (folder / "expectations.yaml").write_text("expectations: []\n")
    return folder


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A pipeline `good` and a pipeline `odd`, in a folder that any user may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # TMPDIR may be closed to other users
        Path(place).chmod(0o755)
        for name in ("good", "odd"):
            make(Path(place) / name)
        monkeypatch.setenv("FENCEPOST_PIPELINES", place)
        yield Path(place)


def instead(name: str, put: Callable[[Path], object]) -> Callable[[Path], object]:
    """Puts something else in the place of a file of the pipeline's."""

    def spoil(odd: Path) -> None:
        (odd / name).unlink(missing_ok=True)
        put(odd / name)

    return spoil


def to_nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


def to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def moved_to(name: bytes) -> Callable[[Path], None]:
    return lambda odd: odd.rename(odd.with_name(os.fsdecode(name)))


def replaced_by_link(odd: Path) -> None:
    odd.rename(odd.parent / ".odd")
    odd.symlink_to("nowhere")


NEEDED = ("pipeline.yaml", "transform.sql", "expectations.yaml")
BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"{name} is {what}": (instead(name, put), rf"odd/{name}: {why}")
        for name in NEEDED
        for what, put, why in (
            ("a link to nowhere", to_nowhere, "is a link to nowhere, and cannot be read: No such file"),
            ("a link to itself", to_itself, rf"is a link to {name}, and cannot be read: Too many levels"),
            ("a folder", Path.mkdir, "cannot be read: it is not a regular file"),
            ("a pipe", os.mkfifo, "cannot be read: it is not a regular file"),
        )
    },
    "there are two transforms, one a link to nowhere": (lambda odd: to_nowhere(odd / "transform.py"), "found both"),
    "the folder is a link to nowhere": (
        replaced_by_link,
        "odd: is a link to nowhere, and cannot be read: No such file",
    ),
    "the folder's name is not UTF-8": (moved_to(b"od\xff"), r"od\\udcff: the name of a pipeline's folder"),
}
HARMLESS: dict[str, Callable[[Path], object]] = {
    "an editor's lock": lambda odd: to_nowhere(odd / ".#pipeline.yaml"),
    "a helper's link to nowhere": lambda odd: to_nowhere(odd / "table.csv"),
    "a link to itself": lambda odd: to_itself(odd / "table.csv"),
    "a pipe": lambda odd: os.mkfifo(odd / "pipe"),
    "a link to the folder": lambda odd: (odd / "again").symlink_to("."),
    "a name that is not UTF-8": lambda odd: Path(os.fsdecode(bytes(odd) + b"/t\xff.csv")).write_text("1"),
    "a hidden link beside the pipelines": lambda odd: to_nowhere(odd.parent / ".#lock"),
    "a pipe beside the pipelines": lambda odd: os.mkfifo(odd.parent / "pipe"),
    "a link to a file beside the pipelines": lambda odd: (odd.parent / "notes").symlink_to("odd/pipeline.yaml"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_one_pipeline_is_broken_and_says_why(folder: Path, name: str) -> None:
    spoil, why = BREAKS[name]
    pages = Pipelines()
    assert [*pages.load()[0]] == ["good", "odd"]
    spoil(folder / "odd")
    for good, broken in (load_pipelines(), pages.load()):
        assert [*good] == ["good"]
        ((key, error),) = broken.items()
        assert isinstance(error, SettingsError)
        with pytest.raises(SettingsError, match=why):
            raise error
        (key + str(error)).encode()  # Airflow stores it, a page shows it


@pytest.mark.parametrize("name", HARMLESS)
def test_what_cannot_matter_is_passed_over(folder: Path, name: str) -> None:
    pages = Pipelines()
    pages.load()
    HARMLESS[name](folder / "odd")
    for good, broken in (load_pipelines(), pages.load()):
        assert ([*good], broken) == (["good", "odd"], {})
    assert digest_of_files(folder / "odd")


FORBIDDEN = {"odd": "odd/pipeline.yaml", **{f"odd/{name}": f"odd/{name}" for name in NEEDED}}


@pytest.mark.parametrize("path", FORBIDDEN)
def test_a_pipeline_of_which_this_user_may_not_read_a_part_is_broken(folder: Path, path: str) -> None:
    """In a process of its own, as a user whom permissions bind."""
    (folder / path).chmod(0)
    code = (
        "import os, sys\n"
        "from fencepost.config.loading import load_pipelines\n"
        "from fencepost.pages.pipelines import Pipelines\n"
        f"if os.geteuid() == 0: os.setegid({NOBODY}); os.seteuid({NOBODY})\n"
        "for good, broken in (load_pipelines(), Pipelines().load()):\n"
        "    print(*good, *broken, *broken.values(), sep='|')\n"
    )
    process = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    told = process.stdout.splitlines()
    why = "cannot be read: Permission denied. Make it readable for this user, or move it away."
    assert told == [f"good|odd|{folder}/{FORBIDDEN[path]}: {why}"] * 2


def test_a_folder_that_cannot_be_entered_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to_itself(folder / "loop")
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(folder / "loop"))
    with pytest.raises(SettingsError, match=r"loop: .*Set FENCEPOST_PIPELINES"):
        load_pipelines()


def test_a_pipeline_whose_folder_is_a_link_to_nowhere_is_found_and_says_so(folder: Path) -> None:
    replaced_by_link(folder / "odd")
    with pytest.raises(SettingsError, match="odd: is a link to nowhere"):
        find_pipeline("odd")
    with pytest.raises(SettingsError, match=r"no pipeline 'other' in .*; there are: good, odd"):
        find_pipeline("other")
