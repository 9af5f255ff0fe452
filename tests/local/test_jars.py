"""Jars are there whole, or are resolved again; what cannot be had is named."""

import shutil
from pathlib import Path

import pytest

from fencepost.local.errors import JarsError
from fencepost.local.jars import BROKER, CONNECTOR, artifact_name, class_path, is_resolved, pyspark_jars, resolve
from fencepost.local.state import State

JARS = State.default().jars


def test_setup_left_both_sets_whole() -> None:
    assert is_resolved(BROKER, JARS / "kafka")
    assert is_resolved(CONNECTOR, JARS / "spark")


def test_the_connector_brings_nothing_that_pyspark_has() -> None:
    ours = {artifact_name(jar) for jar in (JARS / "spark").glob("*.jar")}
    assert ours == {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    }
    assert not ours & {artifact_name(jar) for jar in pyspark_jars().glob("*.jar")}


def test_a_truncated_or_missing_jar_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    shutil.copytree(JARS / "spark", folder)
    assert is_resolved(CONNECTOR, folder)
    jar = next(folder.glob("kafka-clients-*.jar"))
    jar.write_bytes(jar.read_bytes()[:-1])
    assert not is_resolved(CONNECTOR, folder)
    jar.unlink()
    assert not is_resolved(CONNECTOR, folder)


def test_an_unreachable_registry_is_an_error_that_names_the_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_MAVEN_MIRROR", "http://127.0.0.1:9/maven/")
    with pytest.raises(JarsError, match=r"(?s)org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.0.*[Rr]un again"):
        resolve(CONNECTOR, tmp_path / "spark", tmp_path / "cache")
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
