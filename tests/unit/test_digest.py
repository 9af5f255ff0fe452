"""What a batch's output is decided by: everything in the pipeline's folder and settings but what is known not to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.config.digest import digest_of_section
from fencepost.config.loading import load_pipeline
from fencepost.config.output_settings import kind_of, settings_of
from fencepost.errors import SettingsError

SETTINGS: dict[str, Any] = {
    "source": {"topic": "in", "schema": {"n": "int"}},
    "output": {"topic": "out", "layout": "output"},
    "schedule": {"start": "2026-01-01"},
    "kafka": {"bootstrap.servers": "127.0.0.1:1"},
}

CHECK = "{type: expect_column_to_exist, kwargs: {column: a}}"


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., list[str]]:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "transform.py").write_text("def transform(frame):\n    return frame\n")
    (folder / "expectations.yaml").write_text(f"expectations: [{CHECK}]")
    (folder / "helper.py").write_text("RATE = 1")

    def digests(sections: dict[str, Any]) -> dict[str, str]:
        merged = {**SETTINGS, **{k: {**SETTINGS.get(k, {}), **v} for k, v in sections.items()}}
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(merged, sort_keys=False))
        return load_pipeline(folder).write_digests()

    def parts(change: Callable[[Path], object] = lambda folder: None, before: Any = None, **sections: Any) -> list[str]:
        """The parts that differ after a change of the folder and of pipeline.yaml."""
        one = digests(before or {})
        change(folder)
        two = digests(sections)
        return [part for part in {**one, **two} if one.get(part) != two.get(part)]

    return parts


@pytest.mark.parametrize(
    "setting",
    """spark.sql.ansi.enabled=false spark.sql.mapKeyDedupPolicy=LAST_WIN spark.sql.catalog.lake=a.B spark.jars=udf.jar
    spark.sql.shuffle.partitions=7 spark.executorEnv.RATE=2 spark.executor.extraJavaOptions=-Dx=y spark.nobody.knows=1
    spark.sql.extensions=a.B spark.default.parallelism=3 spark.hadoop.x=y spark.kubernetes.container.image=b""".split(),
)
def test_a_spark_setting_counts_unless_it_is_known_not_to(changed: Callable[..., list[str]], setting: str) -> None:
    name, _, value = setting.partition("=")
    assert changed(spark={name: value}) == ["spark"]


@pytest.mark.parametrize(
    "setting",
    """spark.executor.memory=2g spark.executor.cores=3 spark.driver.memory=2g spark.log.level=INFO spark.ui.enabled=true
    spark.speculation=true spark.speculation.quantile=0.5 spark.eventLog.enabled=true spark.network.timeout=9s
    spark.authenticate.enableSaslEncryption=true spark.dynamicAllocation.enabled=true""".split(),
)
def test_resources_and_logs_do_not_count(changed: Callable[..., list[str]], setting: str) -> None:
    name, _, value = setting.partition("=")
    assert changed(spark={name: value}) == []


def test_a_jar_counts_by_its_content(changed: Callable[..., list[str]], tmp_path: Path) -> None:
    jar = tmp_path / "udf.jar"
    jar.write_bytes(b"1")
    spark = {"spark.jars": f"file:{jar}"}
    assert changed(lambda folder: jar.write_bytes(b"2"), {"spark": spark}, spark=spark) == ["spark"]


@pytest.mark.parametrize("jar", ["x" * 300, "a\nb/" + "y" * 5000])
def test_a_jar_whose_path_nobody_can_ask_for_is_told_by_its_name(changed: Callable[..., list[str]], jar: str) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        changed(spark={"spark.jars": jar})


def _link(folder: Path) -> None:
    shared = folder.parent / "shared"
    shared.mkdir(exist_ok=True)
    (shared / "rates.csv").write_text("1")
    (folder / "side").symlink_to(shared)
    (shared / "back").symlink_to(folder)  # a ring ends


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (
            lambda f: (f / "transform.py").write_text("def transform(frame):\n    return frame.limit(1)\n"),
            ["transform"],
        ),
        (lambda f: (f / "helper.py").write_text("RATE = 2"), ["files"]),
        (lambda f: (f / "helper.py").rename(f / "rates.py"), ["files"]),
        (lambda f: (f / "new.csv").write_bytes(b"\xff"), ["files"]),
        (_link, ["files"]),
        (lambda f: (f / "expectations.yaml").write_text(f"expectations: [{CHECK[:-1]}, severity: warning}}]"), []),
        (lambda f: (f / "README.md").write_text("more"), []),
        (lambda f: (f / ".hidden").write_text("more"), []),
        (lambda f: (f / "__pycache__").mkdir(), []),
        (lambda f: os.mkfifo(f / "pipe"), []),
        (lambda f: (f / "gone").symlink_to(f / "nowhere"), []),
    ],
)
def test_each_file_counts_that_a_transform_may_read(
    changed: Callable[..., list[str]], change: Callable[[Path], object], part: list[str]
) -> None:
    assert changed(change) == part


NOT_NULL = "{type: expect_column_values_to_not_be_null, kwargs: {column: n}, severity: quarantine}"
RULE = f"expectations: [{NOT_NULL}, {CHECK}]"


@pytest.mark.parametrize(
    ("suite", "part"),
    [
        (RULE.replace("not_be_null", "be_null"), ["quarantine"]),
        (RULE.replace(", severity: quarantine", ""), ["quarantine"]),
        (RULE.replace("quarantine}", "quarantine, description: why}"), ["quarantine"]),
        (RULE.replace("column: a", "column: b"), []),
        (f"# why\n{RULE}", []),
        (f"expectations: [{CHECK}, {NOT_NULL}]", []),  # its place in the file
    ],
)
def test_of_a_suite_the_quarantine_rules_count_and_nothing_else(
    changed: Callable[..., list[str]], tmp_path: Path, suite: str, part: list[str]
) -> None:
    file = tmp_path / "p" / "expectations.yaml"
    file.write_text(RULE)
    assert changed(lambda _: file.write_text(suite)) == part


def test_a_linked_files_content_counts(changed: Callable[..., list[str]], tmp_path: Path) -> None:
    _link(tmp_path / "p")
    assert changed(lambda folder: (tmp_path / "shared" / "rates.csv").write_text("2")) == ["files"]


@pytest.mark.parametrize(
    ("sections", "part"),
    [
        ({"source": {"schema": {"n": "bigint"}}}, ["source"]),
        ({"source": {"on_expired": "skip"}}, []),
        ({"source": {"empty": "reject"}}, []),
        ({"source": {"on_malformed": "quarantine"}}, ["source"]),
        ({"quality": {"quarantine_limit": {"rows": 5}}}, []),
        ({"output": {"key": "n"}}, ["output"]),
        ({"output": {"partitions": 9}}, []),
        ({"quality": {"sample_rows": 5}}, []),
        ({"kafka": {"linger.ms": 5}}, []),
    ],
)
def test_settings_count_that_say_what_is_read_and_written(
    changed: Callable[..., list[str]], sections: dict[str, Any], part: list[str]
) -> None:
    assert changed(**sections) == part


def test_whether_a_truncation_fails_a_batch_decides_no_record(changed: Callable[..., list[str]]) -> None:
    source = {"envelope": "debezium"}
    assert changed(before={"source": source}, source={**source, "truncations": "drop"}) == []


def test_the_order_of_columns_counts_and_that_of_spark_settings_does_not(changed: Callable[..., list[str]]) -> None:
    one, two = {"n": "int", "m": "int"}, {"m": "int", "n": "int"}
    settings = {"spark.a": "1", "spark.b": "2"}
    before = {"source": {"schema": one}, "spark": settings}
    assert changed(before=before, source={"schema": two}, spark=dict(reversed(settings.items()))) == ["source"]


@pytest.mark.parametrize(
    ("output", "fixed"),
    [
        ({"topic": "out", "key": "n", "headers": "h"}, "affa2122db6a2600"),
        ({"kind": "postgres", "table": "public.delays", "layout": "output"}, "4cdad4d520f7ab80"),
    ],
)
def test_the_digest_of_an_output_stays_whatever_the_order_in_which_its_settings_are_declared(
    output: dict[str, Any], fixed: str
) -> None:
    """Another digest would give every batch that is not published yet a new revision after an update of Fencepost."""
    assert digest_of_section(settings_of(kind_of(output) or "").model_validate(output)) == fixed
