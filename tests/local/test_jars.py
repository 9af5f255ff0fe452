"""Jars are there as pinned, byte for byte, or are downloaded again; what cannot be had, or is another one, is named."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread

import pytest

from fencepost import jars as downloads
from fencepost.jars import CONNECTOR, INSIDE, JarsError, JarSet, download, ensure_connector, is_there
from fencepost_stack import jars
from fencepost_stack.jars import SCHEMA_REGISTRY, class_path
from fencepost_stack.pins import SPARK_VERSION, Dependency, Wanted, artifact_name, pyspark_jars, renew
from fencepost_stack.state_folder import StateFolder

JARS = StateFolder.default().jars
INCLUDE = Path(__file__).parents[2] / "include"
CUT = 0  # an answer that breaks off


def test_setup_left_all_sets_whole() -> None:
    assert [jar_set.name for jar_set in jars.JAR_SETS if not is_there(jar_set, JARS / jar_set.name)] == []


def test_jars_are_downloaded_before_any_package_is_there() -> None:
    """By a Python without packages, as set-up does; here they are there already."""
    base = sys._base_executable  # type: ignore[attr-defined]
    environment = {**os.environ, "PYTHONPATH": str(INCLUDE), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([base, "-S", "-m", "fencepost_stack.jars"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_connector_brings_nothing_that_pyspark_has() -> None:
    ours = {artifact_name(jar) for jar in (JARS / "spark").glob("*.jar")}
    assert ours == {
        "spark-avro_2.13",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    }
    assert not ours & {artifact_name(jar) for jar in pyspark_jars().glob("*.jar")}


def test_the_connector_is_pysparks_version() -> None:
    assert version("pyspark") == version("pyspark-client") == SPARK_VERSION


def _flip_a_byte(jar: Path) -> None:
    content = bytearray(jar.read_bytes())
    content[len(content) // 2] ^= 1
    jar.write_bytes(content)


@pytest.mark.parametrize(
    "spoil",
    [
        _flip_a_byte,
        lambda jar: jar.write_bytes(jar.read_bytes()[:-1]),
        lambda jar: jar.unlink(),
        lambda jar: jar.rename(jar.with_name("other.jar")),
        lambda jar: shutil.copy(jar, jar.with_name("one-more-1.0.jar")),
    ],
    ids=["changed", "truncated", "missing", "renamed", "one more"],
)
def test_a_folder_that_is_not_what_is_pinned_is_noticed(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    folder = tmp_path / "spark"
    shutil.copytree(JARS / "spark", folder)
    assert is_there(CONNECTOR, folder)
    spoil(next(folder.glob("commons-pool2-*.jar")))
    assert not is_there(CONNECTOR, folder)


def test_a_jar_in_a_folder_of_the_set_is_held_to_its_pin(tmp_path: Path) -> None:
    folder = tmp_path / "schema-registry"
    shutil.copytree(JARS / "schema-registry", folder, copy_function=os.link)
    assert is_there(SCHEMA_REGISTRY, folder)
    jar = next((folder / "lib").glob("*h2database*.jar"))
    content = jar.read_bytes()
    jar.unlink()
    jar.write_bytes(content[:-1])
    assert not is_there(SCHEMA_REGISTRY, folder)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven registry in a folder: `thing` 1.0, which needs `brought` 2.0."""
    root = tmp_path / "registry"
    _serve(root, "brought", "2.0")
    _serve(root, "thing", "1.0", needs=[("brought", "2.0")])
    monkeypatch.setenv("FENCEPOST_MAVEN_MIRROR", f"{root.as_uri()}/")
    return root


def _serve(root: Path, name: str, version: str, needs: list[tuple[str, str]] | None = None, content: str = "") -> Path:
    folder = root / "org/example" / name / version
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        f"<dependency><groupId>org.example</groupId><artifactId>{n}</artifactId><version>{v}</version></dependency>"
        for n, v in needs or []
    )
    (folder / f"{name}-{version}.pom").write_text(
        f"<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version><dependencies>{dependencies}</dependencies></project>"
    )
    jar = folder / f"{name}-{version}.jar"
    jar.write_text(content or f"{name} {version}")
    return jar


def _sha256(jar: Path) -> str:
    return hashlib.sha256(jar.read_bytes()).hexdigest()


def _sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def toy(tmp_path: Path, registry: Path) -> JarSet:
    """`thing` and what it needs, pinned."""
    toy = JarSet("toy", tmp_path / "jars.lock")
    renew([Wanted(toy, (Dependency("org.example", "thing", "1.0"),))])
    return toy


def test_what_a_dependency_needs_is_resolved_and_pinned_with_it(toy: JarSet, registry: Path) -> None:
    found = {jar.relative_to(registry).as_posix(): _sha256(jar) for jar in registry.rglob("*.jar")}
    assert toy.downloads() == found
    assert toy.jars() == {"thing-1.0.jar": _sha256_of("thing 1.0"), "brought-2.0.jar": _sha256_of("brought 2.0")}


def test_a_jar_with_a_classifier_is_pinned_beside_the_one_without(tmp_path: Path, registry: Path) -> None:
    folder = registry / "org/example/thing/1.0"
    (folder / "thing-1.0-tests.jar").write_text("tests of thing")
    (folder / "thing-1.0-sources.jar").write_text("nobody asks for these")
    both = JarSet("both", tmp_path / "jars.lock")
    renew([Wanted(both, (Dependency("org.example", "thing", "1.0", classifiers=("tests",)),))])
    assert both.jars() == {
        "thing-1.0.jar": _sha256_of("thing 1.0"),
        "thing-1.0-tests.jar": _sha256_of("tests of thing"),
        "brought-2.0.jar": _sha256_of("brought 2.0"),
    }


def test_a_jar_that_is_not_the_pinned_one_is_refused_and_never_reaches_its_folder(
    tmp_path: Path, toy: JarSet, registry: Path
) -> None:
    folder = tmp_path / "jars" / "toy"
    download(toy, folder)
    before = {jar.name: jar.read_text() for jar in folder.glob("*")}
    assert before == {"thing-1.0.jar": "thing 1.0", "brought-2.0.jar": "brought 2.0"}

    _serve(registry, "brought", "2.0", content="something else")
    with pytest.raises(
        JarsError, match=r"1 of the toy jars.*\n  brought-2\.0\.jar: expected \w{64}, found \w{64}\n"
    ) as refused:
        download(toy, folder)
    assert _sha256_of("brought 2.0") in str(refused.value)
    assert _sha256_of("something else") in str(refused.value)
    assert "thing-1.0.jar" not in str(refused.value)
    assert {jar.name: jar.read_text() for jar in folder.glob("*")} == before

    _serve(registry, "brought", "2.0")
    (registry / "org/example/thing/1.0/thing-1.0.jar").unlink()  # it came the first time
    download(toy, folder)
    assert {jar.name: jar.read_text() for jar in folder.glob("*")} == before


def test_an_archive_brings_its_jars_and_nothing_else(tmp_path: Path, registry: Path) -> None:
    """Its pom is not read: some registries lack the parents of these."""
    folder = registry / "org/example/server/4.0"
    folder.mkdir(parents=True)
    parent = "<parent><groupId>org.example</groupId><artifactId>missing</artifactId><version>1</version></parent>"
    (folder / "server-4.0.pom").write_text(
        f"<project><modelVersion>4.0.0</modelVersion>{parent}<artifactId>server</artifactId></project>"
    )
    outside = ["../../outside.jar", str(tmp_path / "jars" / "absolute.jar")]
    members = ["server-4.0-run.jar", "lib/part-1.0.jar", "README.txt", *outside]
    with tarfile.open(folder / "server-4.0-all.tar.gz", "w:gz") as archive:
        for name in members:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
        link = tarfile.TarInfo("lib/link.jar")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    server, lock = JarSet("server", tmp_path / "jars.lock"), tmp_path / "jars.lock"
    renew([Wanted(server, (Dependency("org.example", "server", "4.0", transitive=False, archive="all"),))])
    assert server.jars() == {name: _sha256_of(name) for name in members[:2]}
    assert lock.read_text().count(f"  {INSIDE}") == 2
    download(server, tmp_path / "jars" / "server")
    found = {
        path.relative_to(tmp_path / "jars").as_posix() for path in (tmp_path / "jars").rglob("*") if path.is_file()
    }
    assert found == {f"server/{name}" for name in members[:2]}


def test_an_unreachable_registry_is_an_error_that_names_the_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_MAVEN_MIRROR", "http://127.0.0.1:9/maven/")
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))
    with pytest.raises(JarsError, match=rf"(?s)spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar: .*refused.*[Rr]un again"):
        download(CONNECTOR, tmp_path / "spark")
    assert not (tmp_path / "spark").exists()


@pytest.mark.parametrize(
    ("answers", "asked", "error"),
    [
        ([503, CUT, 429, 200], 4, ""),
        ([503, 503, 503, 503], 4, "503"),
        ([CUT, CUT, CUT, CUT], 4, "cut short"),
        ([404], 1, "404"),
    ],
    ids=["busy and cut", "busy", "cut", "not there"],
)
def test_a_registry_that_is_busy_or_cut_off_is_asked_again_and_one_that_says_no_is_not(
    tmp_path: Path,
    toy: JarSet,
    registry: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[int],
    asked: int,
    error: str,
) -> None:
    left, seen = list(answers), []

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = (registry / self.path.lstrip("/")).read_bytes()
            status = 200
            if "thing" in self.path:
                status = left.pop(0)
                seen.append(status)
            self.send_response(200 if status == CUT else status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:3] if status == CUT else content)

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr(downloads, "PAUSES", (0.0, 0.0, 0.0))
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("FENCEPOST_MAVEN_MIRROR", f"http://127.0.0.1:{server.server_port}/")
        folder = tmp_path / "jars" / "toy"
        if error:
            with pytest.raises(JarsError, match=rf"1 of the toy jars.*\n  thing-1\.0\.jar: .*{error}"):
                download(toy, folder)
        else:
            download(toy, folder)
            assert toy.jars() == {jar.name: _sha256(jar) for jar in folder.glob("*")}
        server.shutdown()
    assert len(seen) == asked


def test_a_dependency_that_the_registry_lacks_is_named_and_nothing_is_pinned(tmp_path: Path, registry: Path) -> None:
    lock = tmp_path / "jars.lock"
    with pytest.raises(JarsError, match=r"(?s)could not resolve the toy jars.*thing;9\.0: not found"):
        renew([Wanted(JarSet("toy", lock), (Dependency("org.example", "thing", "9.0"),))])
    assert not lock.exists()


@pytest.mark.parametrize(
    ("name", "artifact"),
    [
        ("kafka_2.13-4.3.0.jar", "kafka_2.13"),
        ("spark-sql-kafka-0-10_2.13-4.0.0.jar", "spark-sql-kafka-0-10_2.13"),
        ("guava-33.4.0-jre.jar", "guava"),
    ],
)
def test_an_artifact_is_its_file_without_the_version(name: str, artifact: str) -> None:
    assert artifact_name(Path(name)) == artifact


def test_without_jars_the_error_says_to_set_up(tmp_path: Path) -> None:
    with pytest.raises(JarsError, match="make setup"):
        class_path(tmp_path)


def test_a_folder_of_the_users_that_holds_other_files_is_left_alone(tmp_path: Path) -> None:
    shutil.copytree(JARS / "spark", tmp_path / "spark")
    assert not ensure_connector(tmp_path / "spark")
    (tmp_path / "spark" / "own-1.0.jar").touch()
    with pytest.raises(JarsError, match="has other files"):
        ensure_connector(tmp_path / "spark")
    assert (tmp_path / "spark" / "own-1.0.jar").exists()
