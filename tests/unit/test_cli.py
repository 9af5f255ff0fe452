"""What the command line says: what awaits a person comes first, and paths are whole."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import typer
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from fencepost.cli.app import app, main
from fencepost.cli.arguments import decision_of, interval_of
from fencepost.cli.console import working
from fencepost.config.pipeline import Pipeline
from fencepost.config.software import software
from fencepost.errors import SettingsError, TopicMissing, TransitionRefused
from fencepost.kafka.client_settings import ClientSettings
from fencepost.model import Batch, Decision, Interval, State, StepResult, TopicInput, UnreadRange
from fencepost.protocol.view import View
from makers import a_source, a_table, a_topic, planned
from unit.pages.ledgers import batch, hour, ledger, quarantining, reading_payments, replaying

GOOD = """
description: %s
source: {topic: orders-of-all-countries-in-one-topic, format: bytes}
output: {topic: paid-orders-of-all-countries-in-one-topic}
schedule: {start: 2026-01-01}
kafka: {bootstrap.servers: "127.0.0.1:1"}
"""
SUITE = "expectations: [{type: expect_column_to_exist, kwargs: {column: a}}]"


class FakeCluster:
    """A source of 4 partitions that end at 2,000."""

    def __init__(self, settings: ClientSettings, timeout: float) -> None: ...

    def describe(self, topic: str) -> Any:
        return SimpleNamespace(name=topic)

    find = describe

    def last_stable(self, topic: Any) -> list[int]:
        return [2000] * 4


class FakeLedger:
    """A ledger with these batches."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches
        self.announcements = SimpleNamespace(loss=lambda topic: None)

    def exists(self) -> bool:
        return bool(self.batches)

    def read(self) -> View:
        return View.of(self.batches)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("2026-01-02", "2026-01-01", "--end 2026-01-01 is not after --start 2026-01-02"),
        ("2026-01-01", "2026-01-01", "is not after"),
        ("2026-01-01T00:00-05:00", "2026-01-01T05:00Z", "is not after"),
        ("yesterday", "2026-01-01", "--start yesterday: not a time in ISO 8601"),
        ("2026-01-01", "2026-13-01", "--end 2026-13-01: not a time"),
        ("0001-01-01T00:00+05:00", "2026-01-01", "years 1 to 9999"),
        ("2026-01-01", "9999-12-31T23:59-05:00", "years 1 to 9999"),
    ],
)
def test_times_that_make_no_interval_are_told_in_the_options_words(start: str, end: str, words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        interval_of(start, end)


Status = Callable[..., Result]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Status:
    """A command about pipeline `orders`, on a ledger with these batches and a terminal of that many columns."""
    folder = tmp_path / "orders"
    folder.mkdir()
    (folder / "transform.sql").write_text("SELECT 1")
    (folder / "expectations.yaml").write_text("")
    (folder / "pipeline.yaml").write_text(GOOD % "orders")
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")

    def run(name: str, batches: list[Batch], *options: str, columns: int = 80) -> Result:
        monkeypatch.setattr("fencepost.ledger.deployment.Cluster", FakeCluster)
        for module in ("ledger", "deployment"):
            monkeypatch.setattr(f"fencepost.ledger.{module}.Ledger", lambda *_: FakeLedger(batches))
        monkeypatch.setenv("COLUMNS", str(columns))
        return CliRunner().invoke(app, [name, "orders", *options], catch_exceptions=False)

    return run


@pytest.fixture
def status(command: Status) -> Status:
    """`fencepost status orders`."""
    return partial(command, "status")


def test_what_lies_in_quarantine_is_told_by_interval_and_rule(command: Status, status: Status) -> None:
    rejected = quarantining(batch(2, State.REJECTED), 7)
    batches = [batch(0), quarantining(batch(1), 12, no_nulls=3), rejected]
    shown = command("quarantine", batches).stdout
    assert re.search(r"01:00 → 01-01 02:00 .* 12 .* malformed", shown)
    assert re.search(r" 3 .* no_nulls", shown)
    assert "the records are in topic bad" in shown
    assert "rejected" not in shown
    assert re.search(
        r"02:00 → 01-01 03:00 .* 1 .* rejected .* 7 .* malformed", command("quarantine", batches, "--all").stdout
    )
    (one,) = json.loads(command("quarantine", batches, "--json", "--start", "2026-01-01T01:30").stdout)["batches"]
    assert (one["batch"], one["quarantined"]) == (f"orders/{hour(1)}/1", {"malformed": 12, "no_nulls": 3})
    assert command("quarantine", batches, "--end", "2026-01-01T01:00").stdout.startswith(
        "orders: nothing in quarantine"
    )
    assert (
        "in quarantine: 22 records of 2 intervals; `fencepost quarantine orders --all` lists them"
        in status(batches).stdout
    )
    told = status(batches[:2]).stdout
    assert "in quarantine: 15 records of 1 interval; `fencepost quarantine orders` lists them" in told
    assert command("quarantine", [batch(0), rejected]).stdout == (
        "orders: nothing in quarantine of published batches. With --all the command lists rejected batches too, and records that "
        "were replayed.\n"
    )
    assert command("quarantine", [batch(0)]).stdout == "orders: nothing in quarantine of published batches.\n"
    assert [b["quarantined"] for b in json.loads(status(batches, "--json").stdout)["batches"]] == [
        {},
        {"malformed": 12, "no_nulls": 3},
        {"malformed": 7},
    ]
    assert "quarantine" not in status([batch(0)]).stdout


def test_a_batch_that_covers_more_than_its_interval_is_named(status: Status) -> None:
    batches = [batch(0), planned(batch(3), also_covers=Interval.of(hour(1).start, hour(2).end))]
    told = f"covers more than its interval: orders/{hour(3)}/1. It also covers 2026-01-01 01:00 to 2026-01-01 03:00 UTC"
    assert told in status(batches, columns=300).stdout
    also = [b["also_covers"] for b in json.loads(status(batches, "--json").stdout)["batches"]]
    assert also == [None, f"{hour(1).start:%Y%m%dT%H%M%SZ}-{hour(2).end:%Y%m%dT%H%M%SZ}"]


def test_a_rejected_reprocess_stands_first_though_an_older_revision_is_published(status: Status) -> None:
    batches = [*ledger(3), batch(1, State.REJECTED, revision=2)]
    shown = status(batches).stdout
    first, second, report = shown.splitlines()[:3]
    assert first == "awaiting a person"
    assert second == (
        "  2026-01-01 01:00 → 01-01 02:00: revision 2 was rejected; revision 1 stays published until revision 2 is published."
    )
    assert report.strip() == "/nowhere/revision-2-validation-1.html"
    assert "leaves revision 1 published" in shown
    assert re.search(r"01:00 → 01-01 02:00 .* 2 .* rejected .* rejected", shown), "the table has a line for it too"
    told = json.loads(status(batches, "--json").stdout)
    assert list(told)[1] == "awaiting_person"
    (one,) = told["awaiting_person"]
    assert (one["batch"], one["reason"], one["in_force"]) == (
        f"orders/{hour(1)}/2",
        "rejected",
        {"revision": 1, "state": "published"},
    )
    assert [(b["revision"], b["newest_revision"], b["newest_state"]) for b in told["batches"]] == [
        (1, 1, "published"),
        (1, 2, "rejected"),
        (1, 1, "published"),
    ]


def test_where_nothing_awaits_a_person_status_says_nothing_of_it(status: Status) -> None:
    assert "awaiting" not in status(ledger(3)).stdout
    assert json.loads(status(ledger(3), "--json").stdout)["awaiting_person"] == []


SEVERAL = """
sources:
  orders: {topic: orders-in, format: bytes}
  payments: {topic: payments, format: bytes}
"""


class ClusterOfTwo(FakeCluster):
    """Two topics whose partitions have the same numbers. Any other topic does not exist."""

    ends: ClassVar[dict[str, list[int]]] = {"orders-in": [100, 100, 100, 150], "payments": [37, 10]}

    def describe(self, topic: str) -> Any:
        if topic not in self.ends:
            raise TopicMissing(topic)
        return SimpleNamespace(name=topic)

    def last_stable(self, topic: Any) -> list[int]:
        return self.ends[topic.name]

    def find(self, topic: str) -> None:
        """No topic of announcements."""

    def earliest(self, topic: Any) -> list[int]:
        return [0] * len(self.ends[topic.name])


@pytest.fixture
def status_of_two(status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Status:
    """`fencepost status orders`, of a pipeline with two sources."""
    file = tmp_path / "orders" / "pipeline.yaml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("source:")]
    file.write_text("\n".join([*lines, SEVERAL]))
    (file.parent / "transform.sql").write_text("SELECT value FROM orders UNION ALL SELECT value FROM payments")

    def run(batches: list[Batch], *options: str) -> Result:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{__name__}.FakeCluster", ClusterOfTwo)
            return status(batches, *options, columns=300)

    return run


def test_status_names_the_frontier_and_the_lag_of_each_source(status_of_two: Status) -> None:
    batches = [reading_payments(batch(0))]
    assert (
        "frontier: orders-in 0:100, 1:100, 2:100, 3:100; payments 0:30, 1:10   offsets behind: 57 (orders-in 50, payments 7)"
        "   complete until 2026-01-01 01:00 UTC\n"
    ) in status_of_two(batches).stdout
    told = json.loads(status_of_two(batches, "--json").stdout)
    assert told["frontier"] == {"orders-in": {"0": 100, "1": 100, "2": 100, "3": 100}, "payments": {"0": 30, "1": 10}}
    assert told["lag"] == {"orders-in": {"0": 0, "1": 0, "2": 0, "3": 50}, "payments": {"0": 7, "1": 0}}
    (one,) = told["batches"]
    assert one["sources"] == {
        "orders-in": {"offsets": 400, "rows_in": 400},
        "payments": {"offsets": 40, "rows_in": 40},
    }
    assert one["rows_in"] == 440


def test_status_says_which_source_was_added_and_asks_nothing_of_one_that_left(status_of_two: Status) -> None:
    """The ledger has a topic that the pipeline no longer reads and that was deleted since."""
    left = planned(batch(0), inputs=(a_source((0, 100), (0, 100), topic="orders-in"), a_source((0, 8), topic="gone")))
    told = status_of_two([left]).stdout
    assert "frontier: orders-in 0:100, 1:100; payments not read yet   offsets behind: 250 (orders-in 250)" in told
    told = json.loads(status_of_two([left], "--json").stdout)
    assert told["lag"] == {"orders-in": {"0": 0, "1": 0, "2": 100, "3": 150}}
    assert told["frontier"]["gone"] == {"0": 8}
    assert json.loads(status_of_two([], "--json").stdout)["lag"] == {}, "nothing is planned"


def test_offsets_that_no_batch_reads_are_told_for_each_source(status_of_two: Status) -> None:
    """Those of a topic that left are not told: nobody can read them any more."""

    def unread(topic: str, end: int) -> TopicInput:
        part = UnreadRange(topic=topic, partition=0, start=0, end=end)
        return a_source((end, 100), topic=topic, unread=(part,))

    first = planned(batch(0), inputs=(unread("orders-in", 3), unread("payments", 5), unread("gone", 9)))
    told = json.loads(status_of_two([first], "--json").stdout)["unread"]
    assert (told["offsets"], told["ranges"]) == (8, {"orders-in": {"0": [0, 3]}, "payments": {"0": [0, 5]}})
    words = status_of_two([first]).stdout
    assert "never read: 3 offsets of topic orders-in lie before the first range" in words
    assert "5 offsets of topic payments lie before the first range" in words


def test_one_source_is_not_named_in_the_frontier(status: Status, tmp_path: Path) -> None:
    file = tmp_path / "orders" / "pipeline.yaml"
    file.write_text(file.read_text().replace("orders-of-all-countries-in-one-topic", "orders-in", 1))
    told = status([batch(0)]).stdout
    assert "\nfrontier: 0:100, 1:100, 2:100, 3:100   offsets behind: 7,600   complete until" in told


def test_the_list_of_pipelines_has_every_topic(status_of_two: Status, tmp_path: Path) -> None:
    (tmp_path / "orders" / "expectations.yaml").write_text(SUITE)
    (one,) = json.loads(CliRunner().invoke(app, ["pipelines", "--json"]).stdout)["pipelines"]
    assert one["sources"] == ["orders-in", "payments"]
    shown = CliRunner().invoke(app, ["pipelines"]).stdout
    assert "orders-in, payments → paid-orders-of-all-countries-in-one-topic" in shown


def test_a_topic_that_another_pipeline_reads_is_named_by_it_whichever_source_it_is(
    status_of_two: Status, tmp_path: Path
) -> None:
    from fencepost.cli.remove import _named_by_others
    from fencepost.config.loading import load_pipeline

    own = load_pipeline(tmp_path / "orders").model_copy(update={"name": "another"})
    found = _named_by_others(own)
    assert {topic: found.get(topic) for topic in ("orders-in", "payments")} == dict.fromkeys(
        ("orders-in", "payments"), "orders"
    )


def test_quarantine_says_that_malformed_records_of_joined_sources_are_not_replayed(
    command: Status, status_of_two: Status, tmp_path: Path
) -> None:
    batches, said = (
        [quarantining(batch(0), 3)],
        "malformed records are not replayed, because a row may come from several",
    )
    assert said not in command("quarantine", batches).stdout, "of a union they are"
    file = tmp_path / "orders" / "pipeline.yaml"
    file.write_text(file.read_text().replace("in-one-topic}", "in-one-topic, layout: output}"))
    assert said in command("quarantine", batches).stdout
    assert said not in command("quarantine", [quarantining(batch(0), 0, no_nulls=2)]).stdout


def test_many_that_await_are_counted_and_the_newest_shown(status: Status) -> None:
    lines = status(ledger(30, dict.fromkeys(range(30), State.REJECTED))).stdout.splitlines()
    assert lines[1] == "  20 earlier ones; --json lists them all"
    assert sum("was rejected" in line for line in lines) == 10


def test_a_list_of_pipelines_breaks_no_line_when_it_is_piped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("FENCEPOST_STATE", str(tmp_path / ".state"))
    monkeypatch.setenv("COLUMNS", "80")
    broken = tmp_path / "a_broken_pipeline_with_a_name_that_takes_its_path_beyond_eighty_columns"[:80]
    for folder in (tmp_path / "orders", broken):
        folder.mkdir()
        (folder / "transform.sql").write_text("SELECT 1")
        (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: a}}]")
    description = "a description of more than eighty columns [with brackets], " + "word " * 20
    (tmp_path / "orders" / "pipeline.yaml").write_text(GOOD % f'"{description}"')
    shown = CliRunner().invoke(app, ["pipelines"])
    assert shown.exit_code == 2
    assert next(line for line in shown.stdout.splitlines() if line.startswith("orders ")).rstrip().endswith("word")
    assert f"{broken}" in shown.stderr.splitlines()[0], "a path is for copying"


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (EOFError("secret"), 3, "unexpected error in pipelines: EOFError in test_cli.py"),
        (KeyboardInterrupt(), 130, "interrupted. Nothing was changed. Run the same command again."),
        (KeyError("secret"), 4, "defect in Fencepost: KeyError in test_cli.py"),
        (BrokenPipeError("secret"), 3, "unexpected error in pipelines: BrokenPipeError in test_cli.py"),
    ],
)
def test_what_nobody_foresaw_never_ends_with_the_exit_code_of_a_rejected_batch(
    raised: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Typer exits with 1 on an EOFError or a BrokenPipeError, which py4j and Spark's workers raise."""

    def broken() -> None:
        raise raised

    monkeypatch.setattr("fencepost.cli.pipelines.load_pipelines", broken)
    monkeypatch.setattr("fencepost.cli.pipelines.use_environment", lambda: None)
    monkeypatch.setattr("fencepost.cli.app.err", Console(stderr=True, highlight=False))
    monkeypatch.setattr("sys.argv", ["fencepost", "pipelines"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    said = " ".join(capsys.readouterr().err.split())
    assert words in said
    assert "secret" not in said


def test_side_tables_are_told_of_the_newest_batch_and_in_the_ledger_of_each(command: Status, status: Status) -> None:
    old, new = (
        a_table(rows=16),
        a_table(fingerprint="0123456789abcdef" * 2, rows=17, offsets=a_topic(9, 7, topic="air")),
    )
    batches = [planned(batch(0), tables=(old,)), planned(batch(1), tables=(old,))]
    batches.append(planned(batch(1, revision=2), tables=(new,)))
    told = status(batches).stdout
    assert (
        "side tables of 2026-01-01 01:00 → 01-01 02:00, revision 2:\n  airlines: 17 rows, 8 bytes, fingerprint" in told
    )
    assert (
        "fingerprint 0123456789ab, read 2026-01-01 00:00:00 UTC, air 0:9 1:7\n  side table airlines has changed" in told
    )
    assert "has changed since revision 1 (16 rows, now 17)" in told
    one, two = json.loads(status(batches, "--json").stdout)["batches"]
    assert [[(t["name"], t["rows"], t["fingerprint"]) for t in each["tables"]] for each in (one, two)] == [
        [("airlines", 16, "f" * 32)],
        [("airlines", 17, "0123456789abcdef" * 2)],
    ]
    kept = command("ledger", batches).stdout
    assert kept.count("airlines: 16 rows") == 2
    assert kept.count("airlines: 17 rows") == kept.count("has changed since revision 1") == 1
    assert "side table" not in status([batch(0)]).stdout
    assert "side table" not in command("ledger", [batch(0)]).stdout


def test_a_replay_is_shown_under_its_interval_and_quarantine_tells_what_it_left(
    command: Status, status: Status
) -> None:
    base = quarantining(batch(1), 12, no_nulls=3)
    addition = replaying(base, 2, rows=8, left=7)
    told = status([batch(0), base, addition]).stdout
    assert re.search(r" \+2 .* published ", told)
    assert "in quarantine: 7 records of 1 interval" in told
    assert "replayed: 15 records in 1 addition, which added 8 rows to the output (marked + in the table)" in told
    one = json.loads(status([base, addition], "--json").stdout)["batches"][0]
    assert (one["revision"], one["left_in_quarantine"]) == (1, {"malformed": 7})
    assert [(a["revision"], a["replayed"], a["rows"]) for a in one["additions"]] == [(2, 15, 8)]

    (left,) = json.loads(command("quarantine", [base, addition], "--json").stdout)["batches"]
    assert (left["revision"], left["attempt"], left["quarantined"]) == (2, 2, {"malformed": 7})
    every = json.loads(command("quarantine", [base, addition], "--all", "--json").stdout)["batches"]
    assert [b["revision"] for b in every] == [1, 2]
    assert "nothing in quarantine" in command("quarantine", [base, replaying(base, 2, rows=15, left=0)]).stdout


@pytest.fixture
def console_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`fencepost`, with two pipelines of which one is broken."""
    for name in ("orders", "returns"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "transform.sql").write_text("SELECT 1")
        (tmp_path / name / "expectations.yaml").write_text(SUITE)
        (tmp_path / name / "pipeline.yaml").write_text(GOOD % name)
    (tmp_path / "returns" / "expectations.yaml").unlink()
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("FENCEPOST_STATE", str(tmp_path / ".state"))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    return Path(sys.executable).with_name("fencepost")


def ended(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["pipelines"], ["pipelines", "--json"], ["--help"], ["--version"]])
def test_an_output_that_nobody_reads_is_not_a_rejected_batch(console_script: Path, arguments: list[str]) -> None:
    """`fencepost ... | head -1`"""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as unread:
        done = subprocess.run([console_script, *arguments], stdout=unread, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 141
    assert done.stderr == b""


SKIP = ["skip", "orders", "--start", "2026-01-01", "--end", "2026-01-02", "--json"]


@pytest.mark.parametrize(
    ("arguments", "type_", "words"),
    [
        ([*SKIP, "--reason", " "], "SettingsError", "--reason: give a reason"),
        (["run", "nowhere", *SKIP[2:]], "SettingsError", "no pipeline 'nowhere'"),
        (["status", "returns", "--json"], "SettingsError", "expectations.yaml: does not exist"),
        (SKIP, "SettingsError", "Missing option '--reason'"),
        (["status", "--json"], "SettingsError", "Missing argument"),
        (["status", "orders", "--jsn", "--json"], "SettingsError", "No such option: --jsn"),
    ],
)
def test_a_failure_is_json_too(console_script: Path, arguments: list[str], type_: str, words: str) -> None:
    done = ended(console_script, *arguments)
    told = json.loads(done.stdout)
    assert (told["error"]["type"], told["exit_code"], done.returncode) == (type_, 2, 2)
    assert words in told["error"]["message"]
    assert words in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("action", "place"),
    [
        ("skip", "fencepost.steps.advance.skip_batch"),
        ("withdraw", "fencepost.steps.plan.withdraw_batch"),
        ("publish", "fencepost.steps.advance.advance_batch"),
    ],
)
def test_a_decision_is_told_as_a_run_is(
    command: Status, monkeypatch: pytest.MonkeyPatch, action: str, place: str
) -> None:
    made: list[Decision] = []

    def decide(pipeline: Pipeline, interval: Interval, decision: Decision, **_: object) -> StepResult:
        made.append(decision)
        if decision.reason == "refuse":
            raise TransitionRefused("not so")
        return StepResult.of(action, batch(1), f"{action} is done", changed=True)

    monkeypatch.setattr(place, decide)
    times = ["--start", "2026-01-01T01:00", "--end", "2026-01-01T02:00"]
    told = command(action, [], *times, "--reason", "so", "--json")
    shown = json.loads(told.stdout)
    assert (told.exit_code, shown["error"], shown["exit_code"]) == (0, None, 0)
    assert [(s["step"], s["message"]) for s in shown["steps"]] == [(action, f"{action} is done")]
    assert (made[0].action, made[0].reason) == (action, "so")
    refused = command(action, [], *times, "--reason", "refuse", "--json")
    assert json.loads(refused.stdout)["error"] == {"type": "TransitionRefused", "message": "not so"}
    assert refused.exit_code == 4
    assert f"{action} is done" in command(action, [], *times, "--reason", "so").stderr


def test_whoever_decides_is_named_with_the_process_s_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can set LOGNAME."""
    mine = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setenv("LOGNAME", "the_boss")
    assert decision_of("skip", "so").by == f"the_boss (process user: {mine})"
    monkeypatch.setenv("LOGNAME", mine)
    assert decision_of("skip", "so").by == mine
    monkeypatch.delenv("LOGNAME")
    monkeypatch.setenv("USER", "someone")
    assert decision_of("skip", "so").by == f"someone (process user: {mine})"
    monkeypatch.delenv("USER")
    monkeypatch.setattr("os.getuid", lambda: 54_321)
    assert decision_of("skip", "so").by == "uid 54321"


def test_the_version_is_told_with_that_of_what_computes_records(console_script: Path) -> None:
    assert ended(console_script, "--version").stdout.strip() == software()


def test_a_shell_completes_options_and_the_names_of_pipelines(
    console_script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--install-completion" in ended(console_script, "--help").stdout
    monkeypatch.setenv("_FENCEPOST_COMPLETE", "complete_bash")
    for words, completed in (
        ("fencepost status ord", "orders"),
        ("fencepost doctor r", "returns"),
        ("fencepost new x --format json_", "json_schema"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert ended(console_script).stdout.split() == [completed]


def test_a_shell_completes_topics_silently_where_kafka_does_not_answer(
    console_script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_FENCEPOST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "fencepost new x --kafka bootstrap.servers=127.0.0.1:9 --from-topic o")
    monkeypatch.setenv("COMP_CWORD", "6")
    done = ended(console_script)
    assert (done.stdout.strip(), done.stderr) == ("", "")


COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_s_help_teaches(name: str) -> None:
    """An example that the command takes, and a word on every option."""
    one = COMMANDS[name]
    (example,) = re.findall(r"^Example: fencepost (.*)$", one.help, re.MULTILINE)
    words = shlex.split(example.split(" | ")[0])
    assert words[0] == name
    with one.make_context(name, words[1:]):
        pass
    assert all(parameter.help for parameter in one.params if parameter.name != "help")


@pytest.mark.parametrize("given", ["1", "1 --json", "1 --key n", "", "--json", "1,2", "one two", "-1 2", "1 1"])
def test_diff_says_that_it_takes_two_revisions(command: Status, given: str) -> None:
    span = ("--start", "2026-01-01", "--end", "2026-01-02")
    with pytest.raises(SettingsError, match=r"give two.* the earlier.* first, as in --revisions 1 2"):
        command("diff", [], *span, "--revisions", *given.split())


def test_what_takes_a_while_is_said_by_a_line_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Console(file=StringIO(), width=40)
    monkeypatch.setattr("fencepost.cli.console.err", said)
    with working("comparing [revisions] " + "1 and 2 " * 9):
        assert isinstance(said.file, StringIO)
        assert said.file.getvalue() == "comparing [revisions] " + "1 and 2 " * 9 + "\n", (
            "a line for each, whatever its length"
        )
