"""Jars are there as pinned, byte for byte, or are resolved again; what cannot be had, or is another one, is named."""

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.jars import (
    CONNECTOR,
    Dependency,
    JarsError,
    JarSet,
    artifact_name,
    ensure_connector,
    is_resolved,
    pins,
    pyspark_jars,
    resolve,
)
from fencepost_stack import jars
from fencepost_stack.jars import BROKER, SCHEMA_REGISTRY, class_path
from fencepost_stack.state_folder import StateFolder

JARS = StateFolder.default().jars


def test_setup_left_all_sets_whole() -> None:
    assert [jar_set.name for jar_set in jars.JAR_SETS if not is_resolved(jar_set, JARS / jar_set.name)] == []


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
    assert is_resolved(CONNECTOR, folder)
    spoil(next(folder.glob("commons-pool2-*.jar")))
    assert not is_resolved(CONNECTOR, folder)


def test_a_jar_in_a_folder_of_the_set_is_held_to_its_pin(tmp_path: Path) -> None:
    folder = tmp_path / "schema-registry"
    shutil.copytree(JARS / "schema-registry", folder, copy_function=os.link)
    assert is_resolved(SCHEMA_REGISTRY, folder)
    jar = next((folder / "lib").glob("*h2database*.jar"))
    content = jar.read_bytes()
    jar.unlink()
    jar.write_bytes(content[:-1])
    assert not is_resolved(SCHEMA_REGISTRY, folder)


@pytest.mark.parametrize("jar_set", [BROKER, CONNECTOR], ids=lambda jar_set: jar_set.name)
def test_a_version_without_a_pin_says_how_to_pin_it(jar_set: JarSet) -> None:
    newer = replace(jar_set, dependencies=(replace(jar_set.dependencies[0], revision="99.0"),))
    with pytest.raises(JarsError, match=rf"no digest for {jar_set.dependencies[0].name}-99\.0\.jar.*make pins"):
        pins(newer)


TOY = JarSet("toy", (Dependency("org.example", "thing", "1.0"),))


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


def test_a_jar_that_is_not_the_pinned_one_is_refused_and_never_reaches_its_folder(
    tmp_path: Path, registry: Path
) -> None:
    pinned = {jar.name: _sha256(jar) for jar in registry.rglob("*.jar")}
    folder, cache = tmp_path / "jars" / "toy", tmp_path / "jars" / "cache"
    resolve(TOY, folder, cache, pinned=pinned)
    before = {jar.name: jar.read_text() for jar in folder.glob("*.jar")}
    assert before == {"thing-1.0.jar": "thing 1.0", "brought-2.0.jar": "brought 2.0"}

    jar = _serve(registry, "brought", "2.0", content="something else")
    with pytest.raises(JarsError, match=r"brought-2\.0\.jar: expected \w{64}, found \w{64}\n") as refused:
        resolve(TOY, folder, cache, pinned=pinned)
    assert pinned["brought-2.0.jar"] in str(refused.value)
    assert _sha256(jar) in str(refused.value)
    assert "thing-1.0.jar" not in str(refused.value)
    assert {jar.name: jar.read_text() for jar in folder.glob("*.jar")} == before
    assert not cache.exists()  # so the next run downloads it again

    _serve(registry, "brought", "2.0")
    resolve(TOY, folder, cache, pinned=pinned)


def test_a_jar_more_or_less_than_pinned_is_refused(tmp_path: Path, registry: Path) -> None:
    pinned = {jar.name: _sha256(jar) for jar in registry.rglob("*.jar")}
    gone = pinned["brought-2.0.jar"]
    more = _serve(registry, "more", "3.0")
    _serve(registry, "thing", "1.0", needs=[("more", "3.0")])
    with pytest.raises(JarsError) as refused:
        resolve(TOY, tmp_path / "jars" / "toy", tmp_path / "jars" / "cache", pinned=pinned)
    assert f"brought-2.0.jar: expected {gone}, found no such jar" in str(refused.value)
    assert f"more-3.0.jar: expected no such jar, found {_sha256(more)}" in str(refused.value)


def test_pins_are_renewed_from_what_the_registry_has(
    tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, file = StateFolder(tmp_path / "state"), tmp_path / "jars.sha256"
    toy = replace(TOY, pins=file)
    monkeypatch.setattr(jars, "JAR_SETS", (toy,))
    jars.renew_pins(state)
    assert file.read_text() == "".join(
        f"{_sha256(jar)}  toy/{jar.name}\n" for jar in sorted(registry.rglob("*.jar"), key=lambda jar: jar.name)
    )
    assert pins(toy) == jars.digests(state.jars / "toy")


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
    server = Dependency("org.example", "server", "4.0", transitive=False, archive="all", main=members[0])
    target = tmp_path / "jars" / "server"
    pinned = {name: hashlib.sha256(name.encode()).hexdigest() for name in members[:2]}
    resolve(
        replace(SCHEMA_REGISTRY, name="server", dependencies=(server,)),
        target,
        tmp_path / "jars" / "cache",
        pinned=pinned,
    )
    found = {
        path.relative_to(tmp_path / "jars").as_posix() for path in (tmp_path / "jars").rglob("*") if path.is_file()
    }
    assert found == {*(f"server/{name}" for name in members[:2]), "resolve-server.log"}


def test_an_unreachable_registry_is_an_error_that_names_the_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_MAVEN_MIRROR", "http://127.0.0.1:9/maven/")
    with pytest.raises(JarsError, match=r"(?s)org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.0.*[Rr]un again"):
        resolve(CONNECTOR, tmp_path / "spark", tmp_path / "cache", pinned=pins(CONNECTOR))
    assert not (tmp_path / "spark").exists()


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
