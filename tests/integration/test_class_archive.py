"""Jobs' JVMs map the archive of classes that set-up has made, and pass by one that is not whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.config.pipeline import Pipeline
from fencepost.spark.class_archive import ARCHIVE, RECORD, java_options
from fencepost.spark.submit import connector_folder, submit_conf
from fencepost_stack import class_archive
from fencepost_stack.class_archive import is_made

DEEP = pytest.mark.deep

SUBMIT = Path(__file__).parents[2] / "spark_jobs" / "spark-submit.sh"
PARENTS_FILES = "import os; print(open(f'/proc/{os.getppid()}/maps').read())"
WORKERS_MODULES = """
from pyspark.sql import SparkSession

def loaded(rows):
    import sys
    return ["fencepost.rows.writer" in sys.modules and "pandas" in sys.modules]

session = SparkSession.builder.getOrCreate()
print(*session.sparkContext.parallelize([0], 1).mapPartitions(loaded).collect())
session.stop()
"""
PARENTS_ARGUMENTS = "import os; print(open(f'/proc/{os.getppid()}/cmdline').read().split(chr(0)))"


def submitted(conf: dict[str, str], script: Path) -> subprocess.CompletedProcess[str]:
    """A Python application under spark-submit, as Airflow's tasks run it."""
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    return subprocess.run(
        [str(SUBMIT), "--master", "local[1]", *options, str(script)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_a_job_maps_the_archive_and_says_nothing_of_it(make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    """A set-up that cannot make it goes on with a warning, which nobody reads."""
    assert is_made(connector_folder()), "make setup makes it"
    script = tmp_path / "show.py"
    script.write_text(PARENTS_FILES)
    ran = submitted(submit_conf(make_pipeline(), "local[1]"), script)
    assert f"{connector_folder() / ARCHIVE}\n" in ran.stdout
    assert ARCHIVE not in ran.stderr


@DEEP
def test_a_jobs_python_workers_find_their_imports_done(make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(WORKERS_MODULES)
    ran = submitted(submit_conf(make_pipeline(), "local[1]"), script)
    assert ran.stdout.split() == ["True"]


@DEEP
def test_an_archive_of_another_class_path_is_passed_by_with_a_warning_on_stderr(
    make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    script = tmp_path / "show.py"
    script.write_text(PARENTS_FILES)
    conf = submit_conf(make_pipeline(), "local[1]") | {"spark.driver.extraClassPath": str(tmp_path / "other.jar")}
    ran = submitted(conf, script)
    assert ARCHIVE not in ran.stdout
    assert "Unable to use shared archive" in ran.stderr


@DEEP
def test_a_path_with_a_blank_is_one_argument(make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    blank = tmp_path / "a b"
    blank.mkdir()
    (blank / ARCHIVE).touch()
    (blank / RECORD).write_text('{"size": 0}')
    script = tmp_path / "show.py"
    script.write_text(PARENTS_ARGUMENTS)
    conf = submit_conf(make_pipeline(), "local[1]") | {"spark.driver.defaultJavaOptions": java_options(blank)}
    assert f"'-XX:SharedArchiveFile={blank / ARCHIVE}'" in submitted(conf, script).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an archive that was made here and now."""
    (tmp_path / ARCHIVE).write_bytes(b"0123456789")
    (tmp_path / RECORD).write_text(json.dumps({"key": class_archive.key_of(tmp_path), "size": 10}))
    assert is_made(tmp_path)
    return tmp_path


@DEEP
def test_part_of_an_archive_is_not_used(folder: Path) -> None:
    assert java_options(folder).startswith(f'"-XX:SharedArchiveFile={folder / ARCHIVE}" ')
    (folder / ARCHIVE).write_bytes(b"012345678")
    assert (java_options(folder), is_made(folder)) == ("", False)
    (folder / ARCHIVE).unlink()
    assert (java_options(folder), is_made(folder)) == ("", False)


@DEEP
@pytest.mark.parametrize("text", ["", "{}", "[]", '{"size": 10}'])
def test_an_archive_without_a_whole_record_is_made_anew(folder: Path, text: str) -> None:
    (folder / RECORD).write_text(text)
    assert not is_made(folder)


@DEEP
def test_an_archive_of_another_java_is_made_anew(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("java")
    (home / "bin").mkdir()
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert not is_made(folder)


def no_room(folder: Path, log: Path) -> bool:
    raise OSError(28, "No space left on device")


@DEEP
@pytest.mark.parametrize(("make", "why"), [(lambda *_: False, "the job's last words"), (no_room, "No space left")])
def test_set_up_goes_on_without_an_archive_and_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    make: Callable[..., bool],
    why: str,
) -> None:
    monkeypatch.setenv("FENCEPOST_JARS", str(tmp_path))
    monkeypatch.setattr(class_archive, "make", make)
    (tmp_path / "class-archive.log").write_text("the job's last words\n")
    assert class_archive.main() == 0
    said = capsys.readouterr().err
    assert "no class archive; everything works, jobs start later" in said
    assert why in said
