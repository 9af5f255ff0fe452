"""`fencepost acls`: which rights a pipeline's user needs, and the commands that grant them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fencepost.cli.app import app
from fencepost.config.rights import Resource, Right, acl_commands
from fencepost.errors import SettingsError

PIPELINE = {
    "source": {"topic": "in", "schema": {"n": "int"}},
    "output": {"topic": "out"},
    "schedule": {"start": "2026-01-01"},
    "kafka": {"bootstrap.servers": "kafka:9093", "security.protocol": "ssl"},
}
SUITE = "expectations:\n  - type: expect_column_values_to_not_be_null\n    kwargs: {column: n}\n"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A pipeline's folder, where commands find it; its name."""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))

    def make(name: str = "flights", suite: str = SUITE, tables: dict[str, Any] | None = None, **output: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        settings = PIPELINE | {"output": {"topic": "out", **output}, "tables": tables or {}}
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
        (folder / "transform.sql").write_text("SELECT * FROM {source}")
        (folder / "expectations.yaml").write_text(suite)
        return name

    return make


def acls(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["acls", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def granted(pipeline: str, *more: str) -> set[tuple[str, str, str, bool]]:
    """What the commands for a shell grant: option of the resource, name, operation, and whether the name is a prefix."""
    found = set()
    for line in acls(pipeline, "--principal", "User:etl", *more).splitlines():
        if line.startswith("#"):
            continue
        words = shlex.split(line)
        assert words[:3] == ["kafka-acls.sh", "--bootstrap-server", "kafka:9093"]
        assert words[words.index("--allow-principal") + 1] == "User:etl"
        (kind,) = {"--topic", "--group", "--transactional-id", "--cluster"} & set(words)
        name = "" if kind == "--cluster" else words[words.index(kind) + 1]
        operations = [words[n + 1] for n, word in enumerate(words) if word == "--operation"]
        found |= {(kind, name, operation, "prefixed" in words) for operation in operations}
    return found


def test_a_pipeline_that_writes_at_once_and_quarantines_nothing_needs_no_topic_for_either(
    make: Callable[..., str],
) -> None:
    found = granted(make(publish="direct"))
    own = {"fencepost.flights.ledger", "fencepost.flights.published"}
    assert {name for kind, name, _, _ in found if kind == "--topic"} == {"in", "out"} | own
    assert ("--topic", "in", "DescribeConfigs", False) not in found


def test_a_topic_of_side_tables_brings_the_right_to_read_it_once(make: Callable[..., str]) -> None:
    """Whoever reads the source already may read it as a side table as well."""
    table = {"schema": {"n": "int"}, "key": "n"}
    without = granted(make("without"))
    tables = {"a": {"topic": "names", **table}, "b": {"topic": "names", **table}, "c": {"topic": "in", **table}}
    more = {("--topic", topic, "DescribeConfigs", False) for topic in ("names", "in")}
    assert {one for one in granted(make("flights", tables=tables)) if one[1] in ("names", "in")} - without == more | {
        ("--topic", "names", "Read", False)
    }
    (line,) = [
        one
        for one in acls("flights", "--principal", "User:etl").splitlines()
        if "--operation Read --topic names" in one
    ]
    assert line.count("--operation") == 1


def test_a_reader_gets_output_announcements_and_its_group_and_nothing_else(make: Callable[..., str]) -> None:
    found = granted(make(), "--reader", "--group", "reports")
    assert found == {
        ("--topic", "out", "Read", False),
        ("--topic", "fencepost.flights.published", "Read", False),
        ("--group", "reports", "Read", False),
    }


def test_a_quarantine_rule_brings_the_rights_on_its_topic(make: Callable[..., str]) -> None:
    found = granted(make(suite=SUITE + "    severity: quarantine\n"))
    assert ("--topic", "fencepost.flights.quarantine", "Write", False) in found
    assert ("--topic", "fencepost.flights.staging", "Read", False) in found


def test_no_right_of_a_pipeline_opens_another_whose_name_begins_the_same(make: Callable[..., str]) -> None:
    own, other = granted(make("flights")), granted(make("flights_eu"))
    for kind, name, _, is_prefix in own:
        for their_kind, theirs, _, _ in other:
            if kind == their_kind and theirs.startswith(("flights_eu", "fencepost.flights_eu")):
                assert not (theirs.startswith(name) if is_prefix else theirs == name), (name, theirs)


def test_the_list_of_a_program_is_that_of_the_commands(make: Callable[..., str]) -> None:
    pipeline = make()
    told = json.loads(acls(pipeline, "--principal", "User:etl", "--json"))
    options = {"topic": "--topic", "group": "--group", "transactional id": "--transactional-id", "cluster": "--cluster"}
    listed = {
        (
            options[right["resource"]],
            "" if right["resource"] == "cluster" else right["name"],
            right["operation"],
            right["pattern"] == "prefixed",
        )
        for right in told["rights"]
    }
    assert listed == granted(pipeline)


def test_an_administrators_login_is_passed_on_and_asked_for_where_one_is_needed(make: Callable[..., str]) -> None:
    pipeline = make()
    line = acls(pipeline, "--principal", "User:etl", "--command-config", "my admin.properties").splitlines()[1]
    assert shlex.split(line)[3:5] == ["--command-config", "my admin.properties"]
    assert "--command-config FILE" in CliRunner().invoke(app, ["acls", pipeline, "--principal", "User:etl"]).stderr


@pytest.mark.parametrize("principal", ["etl", "User:", ":etl", "User:*", "User:a\nb", "", "User: etl", "-x:etl"])
def test_what_is_no_principal_is_refused(principal: str) -> None:
    with pytest.raises(SettingsError, match="not a principal of Kafka"):
        list(acl_commands((), principal, "kafka:9092"))


@pytest.mark.parametrize("principal", ["User:etl", 'User:CN=o\'neill,O="x" $(id)', "ServiceAccount:a-1"])
def test_a_principal_is_quoted_for_the_shell(principal: str) -> None:
    right = Right(Resource.TOPIC, "in", "Read", "")
    ((_, (command,)),) = acl_commands([right], principal, "kafka:9092")
    assert shlex.split(command)[5] == principal


def test_a_pipeline_that_is_not_there_is_named(make: Callable[..., str]) -> None:
    make()
    with pytest.raises(SettingsError, match=r"no pipeline 'flight' in .*; there are: flights"):
        CliRunner().invoke(app, ["acls", "flight", "--principal", "User:etl"], catch_exceptions=False)
