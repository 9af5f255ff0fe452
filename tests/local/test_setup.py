"""Set-up installs what has its hash in requirements.txt, and nothing else: tried in a small checkout, without a network."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep

CHECKOUT = Path(__file__).resolve().parents[2]
BASE: str = sys._base_executable  # type: ignore[attr-defined]
PIN = re.compile(r"^([\w.-]+)==(\S+)(?: ; [^\\\n]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
REQUIREMENTS = (CHECKOUT / "requirements.txt").read_text()
UV_VERSION = next(version for name, version, _ in PIN.findall(REQUIREMENTS) if name == "uv")
UV = f'exec {Path(sys.executable).with_name("uv")} "$@"'


def test_every_requirement_has_a_version_and_a_hash_and_names_no_address() -> None:
    rest = re.sub(r"^#.*\n", "", PIN.sub("", REQUIREMENTS), flags=re.MULTILINE)
    assert rest.strip() == ""
    assert {"uv", "setuptools", "apache-airflow", "pyspark"} <= {name for name, _, _ in PIN.findall(REQUIREMENTS)}
    assert "://" not in REQUIREMENTS


def _wheel(folder: Path, name: str, version: str, program: str = "") -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info, script = f"{name}-{version}.dist-info", f"{name}-{version}.data/scripts/{name}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n{script},,\n")
        executable = zipfile.ZipInfo(script)
        executable.external_attr = 0o100755 << 16
        archive.writestr(executable, f"#!/bin/sh\n{program}\n")
    return path


def _source(folder: Path, name: str, version: str) -> Path:
    """A package that has to be built, by setuptools."""
    path = folder / f"{name}-{version}.tar.gz"
    files = {
        "setup.py": f"from setuptools import setup\nsetup(name='{name}', version='{version}')\n",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


class Checkout:
    """This repository's setup.sh beside a package of two empty modules, and a folder in place of the package index."""

    def __init__(self, root: Path) -> None:
        self.root, self.index = root / "checkout", root / "index"
        self.index.mkdir()
        for package, folder in (("fencepost", self.root), ("fencepost_stack", self.root / "include")):
            modules = self.root / "include" / package
            modules.mkdir(parents=True)
            for module in ("__init__.py", "jars.py"):
                (modules / module).touch()
            pyproject = (CHECKOUT / folder.relative_to(self.root) / "pyproject.toml").read_text()
            build = re.search(r"^\[build-system\]\n.*?(?=^\[tool\.ruff|\Z)", pyproject, re.MULTILINE | re.DOTALL)
            assert build
            project = f'[project]\nname = "{package.replace("_", "-")}"\nversion = "0.1.0"\n'
            (folder / "pyproject.toml").write_text(project + build.group())
        shutil.copy(CHECKOUT / "include/fencepost_stack/setup.sh", self.root / "include/fencepost_stack")
        self.pins: dict[Path, str] = {}
        self.pin(_wheel(self.index, "uv", UV_VERSION, UV))

    def pin(self, file: Path) -> None:
        self.pins[file] = hashlib.sha256(file.read_bytes()).hexdigest()

    def run(self, *, uv_is_there: bool = True, python: str = BASE) -> subprocess.CompletedProcess[str]:
        """Without `python`, set-up looks for one."""
        names = {file: re.sub(r"(-py3-none-any)?(\.whl|\.tar\.gz)$", "", file.name) for file in self.pins}
        (self.root / "requirements.txt").write_text(
            "".join(
                names[file].replace("-", "==") + (f" \\\n    --hash=sha256:{digest}\n" if digest else "\n")
                for file, digest in self.pins.items()
            )
        )
        venv = self.root / ".venv"
        if uv_is_there and not venv.exists():
            subprocess.run([BASE, "-m", "venv", "--without-pip", venv], check=True)
            _program(venv / "bin" / "uv", UV)
        offline = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(self.index), "UV_CACHE_DIR": str(self.root / "cache")}
        offline |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)}
        return subprocess.run(
            [self.root / "include/fencepost_stack/setup.sh", ".venv", python],
            env={**os.environ, **offline},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def installed(self) -> set[str]:
        return {path.name.split("-")[0] for path in self.root.glob(".venv/lib/*/site-packages/*.dist-info")}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_pinned_packages_are_installed_and_no_other_is_left(checkout: Checkout) -> None:
    checkout.pin(_wheel(checkout.index, "toy", "1.0"))
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    assert checkout.installed == {"uv", "toy", "fencepost", "fencepost_stack"}
    del checkout.pins[checkout.index / "toy-1.0-py3-none-any.whl"]
    assert checkout.run().returncode == 0
    assert checkout.installed == {"uv", "fencepost", "fencepost_stack"}


def test_a_package_that_is_not_the_hashed_one_is_refused(checkout: Checkout) -> None:
    toy = _wheel(checkout.index, "toy", "1.0")
    checkout.pin(toy)
    with zipfile.ZipFile(toy, "a") as archive:
        archive.writestr("toy.py", "print('not what was reviewed')")
    done = checkout.run()
    assert done.returncode == 1
    assert "Hash mismatch for `toy==1.0`" in done.stderr
    assert "setup: could not install requirements.txt" in done.stderr
    assert "toy" not in checkout.installed


def test_a_package_without_a_hash_is_refused(checkout: Checkout) -> None:
    checkout.pins[_wheel(checkout.index, "toy", "1.0")] = ""
    done = checkout.run()
    assert done.returncode == 1
    assert "all requirements must have a hash, but none were provided for: toy==1.0" in done.stderr


def test_what_builds_a_package_has_to_be_hashed_too(checkout: Checkout) -> None:
    checkout.pin(_source(checkout.index, "toy", "1.0"))
    _wheel(checkout.index, "setuptools", "99.0")
    done = checkout.run()
    assert done.returncode == 1
    assert "no trusted hash was provided for: `setuptools`" in done.stderr


def test_a_uv_that_is_not_the_hashed_one_is_refused(checkout: Checkout) -> None:
    (wheel,) = checkout.pins
    checkout.pins[wheel] = "0" * 64
    done = checkout.run(uv_is_there=False)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert f"setup: could not install uv {UV_VERSION}" in done.stderr


def test_only_tests_and_pictures_fetch_the_browser_of_the_tests() -> None:
    """What each target of make would run, on a machine that has nothing."""
    fetches = {
        target: "tests/chromium.py" in subprocess.check_output(["make", "-n", target], cwd=CHECKOUT, text=True)
        for target in ("setup", "packages", "demo", "cluster", "up", "unit", "lint", "test", "test-all", "pictures")
    }
    assert {target for target, fetched in fetches.items() if fetched} == {"test", "test-all", "pictures"}
    assert "chromium" not in (CHECKOUT / "include/fencepost_stack/setup.sh").read_text()


@pytest.fixture
def programs(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on the PATH."""
    folder = checkout.root / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_set_up_takes_the_newest_python_that_runs_and_keeps_it(checkout: Checkout, programs: Path) -> None:
    calls = programs / "calls"
    for version in ("3.11", "3.12"):
        _program(programs / f"python{version}", f'echo "{version} $*" >>{calls}\nexec {BASE} "$@"')
    _program(programs / "python3.13", "exit 127")
    done = checkout.run(uv_is_there=False, python="")
    assert done.returncode == 0, done.stderr
    assert "3.12 -m venv .venv" in calls.read_text()
    assert "3.11 " not in calls.read_text()
    calls.unlink()
    _program(programs / "python3.13", f'echo "3.13 $*" >>{calls}\nexec {BASE} "$@"')
    assert checkout.run(python="").returncode == 0
    assert not calls.exists()


def test_a_python_that_cannot_make_an_environment_is_left_for_one_that_can(checkout: Checkout, programs: Path) -> None:
    """As Debian's, without the package python3.13-venv."""
    calls = programs / "calls"
    bare = f'case "$*" in *ensurepip*) exit 1;; *version_info*) echo 3.13;; *) exec {BASE} "$@";; esac'
    _program(programs / "python3.13", bare)
    _program(programs / "python3.12", f'echo "3.12 $*" >>{calls}\nexec {BASE} "$@"')
    done = checkout.run(uv_is_there=False, python="")
    assert done.returncode == 0, done.stderr
    assert "3.12 -m venv .venv" in calls.read_text()
    shutil.rmtree(checkout.root / ".venv")
    refused = checkout.run(uv_is_there=False, python=str(programs / "python3.13"))
    assert refused.returncode == 1
    assert "python3.13 cannot make a virtual environment, because it has no ensurepip" in refused.stderr
    assert "apt-get install python3.13-venv" in refused.stderr


def test_an_environment_of_another_python_than_the_named_one_is_made_again(checkout: Checkout) -> None:
    assert checkout.run().returncode == 0
    venv = checkout.root / ".venv"
    python = venv / "bin" / "python"
    python.unlink()
    _program(python, "echo 3.10")
    (venv / ".fencepost-stamp").unlink()
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    made_of = subprocess.check_output([python, "-c", "import sys; print(sys.base_prefix)"], text=True)
    assert made_of.strip() == sys.base_prefix


@pytest.mark.parametrize("says", ["3.10", "3.14", ""])
def test_a_python_that_is_not_supported_is_refused(checkout: Checkout, says: str) -> None:
    python = checkout.root / "python"
    _program(python, f"echo {says}")
    done = checkout.run(python=str(python))
    assert done.returncode == 1
    assert f"Python 3.11, 3.12 or 3.13 is needed, and this is none: {python}. Install one" in done.stderr
    assert not (checkout.root / ".venv" / ".fencepost-stamp").exists()


def _program(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "found"), [('openjdk version "11.0.2" 2019-01-15', "is version 11"), ("", "was not found")]
)
def test_a_java_that_is_too_old_or_missing_is_named(
    checkout: Checkout, says: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = checkout.root / "java"
    if says:
        (home / "bin").mkdir(parents=True)
        _program(home / "bin" / "java", f"echo '{says}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    done = checkout.run()
    assert done.returncode == 1
    assert f"Java 17 or newer is needed and '{home}/bin/java' {found}. Install it" in done.stderr


def test_jars_are_downloaded_beside_the_packages_and_a_failure_is_tried_again_alone(checkout: Checkout) -> None:
    jars = checkout.root / "include" / "fencepost_stack" / "jars.py"
    jars.write_text("import sys\nprint('by', sys.prefix)\nsys.exit('none' if sys.prefix == sys.base_prefix else 0)\n")
    failed = checkout.run()
    assert (failed.returncode, f"by {sys.base_prefix}" in failed.stdout, "none" in failed.stderr) == (1, True, True)
    again = checkout.run()
    assert (again.returncode, again.stdout) == (0, f"by {checkout.root / '.venv'}\n"), again.stderr
