"""Reports: what they say first, that they need no network, and that no data can break them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.model import (
    LEDGER_VERSION,
    Interval,
    Layout,
    OffsetRange,
    ReadSchemas,
    RegisteredSchema,
    Schemas,
    SourceSummary,
    UnreadRange,
)
from fencepost.quality.checks import Status
from fencepost.quality.quarantine import source_accounts
from fencepost.quality.report import ReceiptCheck, Report
from fencepost.quality.report_files import write_report
from fencepost.quality.report_html import render_html, visible
from fencepost.quality.report_text import render_plain
from makers import a_source, a_table, a_topic, counted, of_source, planned
from unit.quality.reports import EVIL, FAILED_SET, PASSING, REPORTS, RULE, batch, check, differing, report


class Page(HTMLParser):
    """The elements of a page, and its text in reading order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["style"] and data.strip():
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(self.words)


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_self_contained(name: str) -> None:
    """Nothing is loaded from anywhere, nothing runs, and every element is one of the template's own."""
    html = render_html(REPORTS[name])
    page = Page(html)
    known = (
        "html head meta title style body svg circle path header main div section h1 h2 h3 p b span code pre br".split()
    )
    assert set(page.tags) <= {*known, *"table tr th td details summary dl dt dd".split()}
    assert not {k for k, _ in page.attributes} & {"src", "href", "onclick", "onerror", "action", "srcset"}
    assert not re.search(r"https?:|@import|url\(|//[a-z]", html.replace("'none'", ""))


@pytest.mark.parametrize(
    ("name", "word"),
    [("passed", "Passed"), ("rejected", "Rejected"), ("undetermined", "Undetermined"), ("empty_rejected", "Rejected")],
)
def test_the_verdict_comes_first_as_word_colour_and_icon(name: str, word: str) -> None:
    html = render_html(REPORTS[name])
    assert Page(html).words[1] == word
    assert f'class="banner {word.lower()}"' in html
    assert f'aria-label="{word.lower()}"' in html


def test_failed_checks_and_their_coordinates_come_before_anything_else() -> None:
    text = Page(render_html(REPORTS["rejected"])).text
    order = [
        "Rejected",
        "nyc_flights",
        "Next:",
        "Only carriers we know",
        "27 unexpected records of 842 judged (3.21\u00a0%)",
    ]
    order += ["flight_delays 0 1040 N14228", "Plausible delays", "Expectations", "Records", "Batch"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "These are the first 20 of 27" in text


def test_what_was_not_evaluated_leads_an_undetermined_report() -> None:
    text = Page(render_html(REPORTS["undetermined"])).text
    assert text.index("It could not be evaluated:") < text.index("Only carriers we know")
    assert "did you mean expect_column_values_to_be_in_set?" in text


def test_an_empty_batch_says_what_was_judged_and_what_had_nothing_to_judge() -> None:
    text = Page(render_html(REPORTS["empty"])).text
    assert "empty batch" in text
    assert "1 of 4 expectations could still be judged, and holds." in text
    assert text.count("nothing to judge") == 3
    assert "Evaluated without reading a record" in text
    assert "4 of 4 evaluated, no record read, in 1.3 s; 3 of them had nothing to judge" in render_plain(
        REPORTS["empty"]
    )


def test_a_batch_that_covers_more_than_its_interval_says_so() -> None:
    whole = batch()
    left_out = Interval.of(whole.interval.start - timedelta(days=2), whole.interval.start)
    told = f"It also covers {left_out.description}, for which no interval was planned."
    for covers, times in ((None, 0), (left_out, 1)):
        shown = report(batch=planned(whole, also_covers=covers))
        assert Page(render_html(shown)).text.count(told) == times
        assert render_plain(shown).count(told) == times


def test_a_report_says_with_which_contents_of_its_side_tables_the_batch_was_made() -> None:
    airlines = a_table(fingerprint="0123456789abcdef" * 2, rows=16, bytes=1312)
    customers = a_table("customers", rows=1_200_000, bytes=40_000_000, offsets=a_topic(120, 98, topic="customers-v1"))
    shown = report(batch=planned(batch(), tables=(airlines, customers)))
    text = Page(render_html(shown)).text
    assert (
        "Side tables table rows size fingerprint read up to, by partition airlines 16 1,312 bytes 0123456789ab " in text
    )
    assert "customers 1,200,000 38.1 MB ffffffffffff 2026-01-01 00:00:00 UTC customers-v1 0:120 1:98" in text
    plain = render_plain(shown).splitlines()
    assert "side table airlines: 16 rows, 1,312 bytes, fingerprint 0123456789ab, read 2026-01-01 00:00:00 UTC" in plain
    without = report(batch=planned(batch(), tables=(airlines,)))
    assert "up to, by partition" not in render_html(without), "no table is a topic"
    for said in (render_html(report()), render_plain(report())):
        assert "side table" not in said.lower()


def test_a_name_that_only_a_forged_ledger_can_have_is_escaped() -> None:
    forged = a_table(EVIL, EVIL, offsets=a_topic(1, topic=EVIL))
    html = render_html(report(batch=planned(batch(), tables=(forged,))))
    assert "<script>" not in html
    assert "\u202e" not in html


def test_an_empty_batch_that_a_check_refuses_names_the_check_and_the_cure() -> None:
    text = Page(render_html(REPORTS["empty_failed"])).text
    assert text.index("Rejected") < text.index("change expectations.yaml to allow it") < text.index("Observed: []")
    assert "quality.empty: pass; then <code>fencepost run " in render_html(REPORTS["empty_rejected"])


GONE = (
    OffsetRange(topic="flight_delays", partition=1, start=9_031, end=9_040),
    OffsetRange(topic="flight_delays", partition=3, start=9_093, end=9_094),
)


@pytest.mark.parametrize(
    ("fields", "says", "do"),
    [
        (
            {"deleted": GONE},
            "no longer has partition 1: offsets 9031 to 9039, partition 3: offsets 9093 to 9093",
            "retention.ms",
        ),
        ({"compacted": True}, "The output topic is compacted", "Raise min.compaction.lag.ms"),
        (
            {},
            "another program writes records that look like this batch's",
            "Find out who else writes to topic flight_delays",
        ),
    ],
)
def test_records_that_are_missing_are_accounted_for_where_the_topic_tells(
    fields: dict[str, Any], says: str, do: str
) -> None:
    check = ReceiptCheck(rows_expected=842, rows_read=800, fingerprint_expected=5, fingerprint_read=17, **fields)
    text = Page(render_html(differing(check))).text
    assert says in text
    assert do in differing(check).next_step
    assert ("Find out who else writes" in text) is not bool(fields)
    assert ("rand(), uuid(), current_timestamp()" in differing(check).next_step) is not bool(fields)
    assert "empty batch" not in text


def test_receipts_that_disagree_are_told_in_the_banner() -> None:
    text = Page(render_html(REPORTS["disagreeing"])).text
    assert "receipts disagree" in text
    assert "read back: does not agree" in text


def test_long_tables_are_folded_away_and_short_ones_are_not() -> None:
    assert Page(render_html(REPORTS["many_partitions"])).tags.count("details") == 2
    assert Page(render_html(REPORTS["passed"])).tags.count("details") == 0


def test_malformed_records_are_named_by_their_coordinates() -> None:
    text = Page(render_html(REPORTS["passed_with_warning"])).text
    assert "flights[1]@5100" in text
    assert "and 2 more" in text


def test_what_went_to_quarantine_is_shown_by_rule_and_every_row_adds_up() -> None:
    text = Page(render_html(REPORTS["quarantined"])).text
    assert "900 read = 842 written + 7 quarantined + 0 dropped + 51 left out by the transform." in text
    assert "they add up" in text
    for told in ("5 records", "flights:2:7", "not UTF-8", "hex", "fffe", "2 records", "not known", "A delay of days"):
        assert told in text
    plain = render_plain(REPORTS["quarantined"])
    assert "records: 895 in" not in plain
    assert "7 quarantined, 51 left out by the transform, 842 out" in plain
    assert f"quarantine fencepost.nyc_flights.quarantine: malformed: 5, {RULE}: 2" in plain
    assert "99999" not in plain, "lines of text hold no record's values"


@pytest.mark.parametrize(("read", "said"), [(911, "6 fewer rows than records"), (880, "25 more rows than records")])
def test_a_row_of_many_records_is_not_said_to_be_left_out(read: int, said: str) -> None:
    report = counting("quarantined", {"rows_in": read, "results": 900}, {"read": read, "results": 900, "written": 893})
    batch = report.batch.model_copy(update={"plan": report.batch.plan.model_copy(update={"layout": Layout.OUTPUT})})
    joined = report.model_copy(update={"batch": batch})
    assert said in Page(render_html(joined)).text
    assert said in render_plain(joined)


def counting(name: str, written: dict[str, Any], accounts: dict[str, int]) -> Report:
    """That report, with these counts in the summary of the write and in the accounts."""
    told = REPORTS[name]
    assert told.batch.written is not None
    batch = told.batch.model_copy(update={"written": counted(told.batch.written, **written)})
    found = told.quarantined
    if found is not None:
        found = found.model_copy(update={"accounts": found.accounts.model_copy(update=accounts)})
    return told.model_copy(update={"batch": batch, "quarantined": found})


def test_dropped_tombstones_are_counted_with_and_without_a_quarantine() -> None:
    report = counting("passed", {"tombstones": 3}, {})
    assert "3 tombstones, dropped" in Page(render_html(report)).text
    assert "0 malformed dropped, 3 tombstones dropped, 842 out" in render_plain(report)
    report = counting("passed", {"tombstones": 1}, {})
    assert "1 tombstone, dropped" in Page(render_html(report)).text
    assert "0 malformed dropped, 1 tombstone dropped, 842 out" in render_plain(report)
    report = counting("quarantined", {"tombstones": 3}, {"tombstones": 3})
    text = Page(render_html(report)).text
    assert "900 read = 842 written + 7 quarantined + 3 dropped + 48 left out by the transform." in text
    assert "7 quarantined, 3 tombstones dropped, 48 left out by the transform, 842 out" in render_plain(report)


def test_excluded_records_are_counted_by_kind_with_and_without_a_quarantine() -> None:
    kinds = {"other_types": 40, "deletion_tombstones": 2}
    said = "40 records of other types, 2 tombstones behind deletions excluded"
    report = counting("passed", {"excluded": kinds}, {})
    text = Page(render_html(report)).text
    assert "40 records of other types, excluded" in text
    assert "2 tombstones behind deletions, excluded" in text
    assert f"0 malformed dropped, {said}, 842 out" in render_plain(report)
    of_one = counting("passed", {"excluded": {"truncations": 1}}, {})
    assert "1 truncation, excluded" in Page(render_html(of_one)).text
    assert "0 malformed dropped, 1 truncation excluded, 842 out" in render_plain(of_one)
    report = counting("quarantined", {"excluded": kinds}, {"excluded": 42})
    text = Page(render_html(report)).text
    assert "900 read = 842 written + 7 quarantined + 0 dropped + 42 excluded + 9 left out by the transform." in text
    assert f"7 quarantined, {said}, 9 left out by the transform, 842 out" in render_plain(report)


def test_each_of_several_sources_has_a_row_and_an_only_one_has_none() -> None:
    told = REPORTS["two_sources"]
    text = Page(render_html(told)).text
    assert "source offsets read malformed tombstones excluded newest record" in text
    assert "flights-jfk 900 900 5 quarantined 2 41 2013-01-02 12:00:00 UTC flights-ewr 0 0 0 0 0 none " in text
    assert text.index("Topic flights-ewr gave no record; sources.ewr.empty is 'reject'.") < text.index("Next:")
    assert "set sources.ewr.empty to pass; then " in text
    plain = render_plain(told).splitlines()
    assert (
        "source flights-jfk: 900 offsets, 900 in, 5 quarantined as malformed, 2 tombstones dropped, 41 excluded, newest "
        "2013-01-02 12:00:00 UTC"
    ) in plain
    assert "source flights-ewr: 0 offsets, 0 in" in plain
    for only in (report(), REPORTS["quarantined"]):
        assert 'id="sources"' not in render_html(only)
        assert "source flights:" not in render_plain(only)


def test_what_a_batch_looked_back_at_is_told_apart_from_what_it_consumed() -> None:
    told = REPORTS["looked_back"]
    text, plain = Page(render_html(told)).text, render_plain(told).splitlines()
    assert "looked back at offsets read again malformed, left out flights-jfk 5,000 4,997 3" in text
    assert "4,000 rows of looked-back records alone belong to earlier intervals and were left out." in text
    assert "Not looked back at, because it expired: topic flights-jfk, partition 0, offsets 0 to 1." in text
    assert "looked back at topic flights-jfk: 5,000 offsets, 4,997 records, 3 of them malformed and left out" in plain
    assert "not looked back at in topic flights-jfk, because it expired: partition 0: offsets 0 to 1" in plain
    assert "4,000 rows belong to earlier intervals and were left out" in plain
    assert 'id="looked-back"' not in render_html(REPORTS["two_sources"])


def test_malformed_records_of_a_source_that_drops_them_are_told_apart_from_those_in_quarantine() -> None:
    told = two_sources_with(SourceSummary(rows_in=4, malformed=3, malformed_at=(("flights-ewr", 0, 9),)))
    text = Page(render_html(told)).text
    assert "flights-jfk 900 900 5 quarantined" in text
    assert "flights-ewr 0 4 3 dropped" in text
    assert "3 malformed, dropped" in text
    assert "Malformed at flights-ewr[0]@9 and 2 more" in text
    assert "source flights-ewr: 0 offsets, 4 in, 3 dropped as malformed" in render_plain(told).splitlines()
    listed = two_sources_with(SourceSummary(rows_in=4, malformed=1, malformed_at=(("flights-ewr", 0, 9),)))
    said = Page(render_html(listed)).text
    assert "Malformed at flights-ewr[0]@9 " in said
    assert "flights-ewr[0]@9 and " not in said, "those in quarantine are no more of them"


def two_sources_with(other: SourceSummary) -> Report:
    """The report of two sources, with these counts of the second, which drops malformed records."""
    told = REPORTS["two_sources"]
    assert told.quarantined is not None
    summary = told.batch.require_written
    summary = summary.model_copy(update={"sources": {**summary.sources, "flights-ewr": other}})
    accounts = told.quarantined.accounts
    sources = source_accounts(told.batch.plan, summary)
    dropped = sum(one.dropped for one in sources)
    accounts = accounts.model_copy(update={"sources": sources, "dropped": dropped, "malformed": 5 + dropped})
    return told.model_copy(
        update={
            "batch": told.batch.model_copy(update={"written": summary}),
            "quarantined": told.quarantined.model_copy(update={"accounts": accounts}),
        }
    )


def test_a_source_that_nobody_counted_says_so_and_of_many_sources_the_text_has_six() -> None:
    told = two_sources_with(SourceSummary())
    assert "flights-ewr 0 not counted 0 0 0 none " in Page(render_html(told)).text
    assert "source flights-ewr: 0 offsets, not counted" in render_plain(told).splitlines()
    many = {f"t{n}": SourceSummary(rows_in=0) for n in range(9)}
    inputs = tuple(a_source((0, 0), topic=topic) for topic in many)
    whole = planned(told.batch, inputs=inputs)
    whole = whole.model_copy(update={"written": whole.require_written.model_copy(update={"sources": many})})
    lines = render_plain(told.model_copy(update={"batch": whole})).splitlines()
    assert sum(line.startswith("source t") for line in lines) == 6
    assert "and 3 more sources; the report lists them all" in lines


def test_lost_and_unread_ranges_of_several_sources_name_their_topics() -> None:
    lost = OffsetRange(topic="flights-jfk", partition=0, start=3, end=9)
    before = UnreadRange(topic="flights-ewr", partition=0, start=2, end=7)
    jfk, ewr = REPORTS["two_sources"].batch.plan.inputs
    inputs = (jfk.model_copy(update={"lost": (lost,)}), ewr.model_copy(update={"unread": (before,)}))
    told = REPORTS["two_sources"].model_copy(update={"batch": planned(REPORTS["two_sources"].batch, inputs=inputs)})
    text = Page(render_html(told)).text
    assert "Never read: flights-jfk[0], offsets 3 to 8" in text
    assert "5 offsets of topic flights-ewr lie before the first range" in text
    assert "5 offsets of topic flights-ewr lie before the first range" in render_plain(told)


def test_what_was_observed_of_each_source_is_on_a_line_of_its_own() -> None:
    """As one text the ages of two sources would be cut."""
    late = {"age of the newest record": "23:00:00", "usual": "0:01:00", "at most": "0:06:00"}
    topics = {"flights-jfk": late, "flights-ewr": {**late, "age of the newest record": "0:00:30"}}
    failed = check(0, "expect_batch_freshness_like_history", Status.FAILED, observed=topics)
    html = render_html(report(failed))
    for topic, age in (("flights-jfk", "23:00:00"), ("flights-ewr", "0:00:30")):
        shown = f'{topic} {{"age of the newest record": "{age}", "usual": "0:01:00", "at most": "0:06:00"}}'
        assert Page(html).text.count(shown) == 2


def test_an_addition_says_to_what_and_what_it_took_from_quarantine() -> None:
    report = REPORTS["replayed"]
    text, plain = Page(render_html(report)).text, render_plain(report)
    assert "revision 2 (an addition to revision 1)" in text
    assert "revision 2 (an addition to revision 1), validation 1" in plain
    assert f"This is a replay of the 20 records that batch {report.batch.plan.replays.batch} had quarantined" in text  # type: ignore[union-attr]
    assert "20 taken from quarantine = 12 written + 8 quarantined + 0 dropped + 1 withheld with their record" in text
    assert (
        "20 from quarantine, 8 quarantined again, 1 withheld with their record, 1 more made by the transform" in plain
    )


def test_a_batch_above_the_quarantine_limit_says_which_and_what_to_do() -> None:
    report = REPORTS["too_much_quarantined"]
    text = Page(render_html(report)).text
    assert "7 records went to quarantine, above quality.quarantine_limit of 6 rows" in text
    assert "quality.quarantine_limit" in text.partition("What did not hold")[2].partition("Expectations")[0]
    assert "raise quality.quarantine_limit; then `fencepost run " in report.next_step
    assert "(in Airflow: clear validate) judges the batch again" in report.next_step


def test_rows_that_do_not_add_up_are_told() -> None:
    report = REPORTS["quarantined"]
    assert report.quarantined is not None
    accounts = report.quarantined.accounts.model_copy(update={"results": 845})
    off = report.quarantined.model_copy(update={"accounts": accounts})
    text = Page(render_html(report.model_copy(update={"quarantined": off}))).text
    said = "the transform's result has 845 rows, but 842 were written, 2 quarantined and 0 withheld with their record"
    assert f"The numbers do not add up: {said}" in text


def test_records_nobody_counted_are_not_shown_as_none() -> None:
    told = REPORTS["passed"]
    assert told.batch.written is not None
    uncounted = counted(told.batch.written, rows_in=None)
    report = told.model_copy(update={"batch": told.batch.model_copy(update={"written": uncounted})})
    assert "in: not counted, because a retry found the rows already written" in Page(render_html(report)).text
    said = "records: input not counted, because a retry found the rows already written, 0 malformed dropped, 842 out"
    assert said in render_plain(report)


def test_hostile_data_is_shown_and_does_nothing() -> None:
    html = render_html(REPORTS["hostile"])
    assert "<script" not in html
    assert "<img" not in html
    assert "{{ 7 * 7 }}" in html
    assert not {c for c in html if c in "\u202e\u202c\u2028\x00\x1b"}
    assert "hex" in html
    assert "fffe00c3" in html
    assert "⟨U+202E⟩" in visible(EVIL)


def test_files_are_named_by_the_batch_and_a_name_is_given_once(tmp_path: Path) -> None:
    first, second = write_report(REPORTS["rejected"], tmp_path), write_report(REPORTS["passed"], tmp_path)
    folder = tmp_path / "nyc_flights" / "20130101T000000Z-20130102T000000Z"
    assert first == (folder / "revision-1-validation-1.html", folder / "revision-1-validation-1.json")
    assert second.html == folder / "revision-1-validation-1-attempt-2.html"
    assert "Rejected" in first.html.read_text(encoding="utf-8"), "what the ledger may name already stays as it is"
    assert "Passed" in second.html.read_text(encoding="utf-8")
    assert set(folder.iterdir()) == {*first, *second}


@pytest.mark.parametrize(
    ("umask", "file", "folder"), [(0o000, 0o640, 0o750), (0o022, 0o640, 0o750), (0o077, 0o600, 0o700)]
)
def test_reports_are_for_owner_and_group_whatever_the_umask(umask: int, file: int, folder: int, tmp_path: Path) -> None:
    """They show records. A folder that was there before stays as it is: it is not ours."""
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o755)
    before = os.umask(umask)
    try:
        new, old = (write_report(REPORTS["rejected"], place) for place in (tmp_path / "new", there))
    finally:
        os.umask(before)
    assert [mode(path) for path in (*new, *old)] == [file] * 4
    made = [new.json.parents[2], *(f for files in (new, old) for f in files.json.parents[:2])]
    assert [mode(path) for path in made] == [folder] * 5
    assert mode(there) == 0o755


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_write_that_fails_leaves_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_report(REPORTS["rejected"], tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fencepost.quality.report_files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(REPORTS["passed"], tmp_path)
    assert set(files.json.parent.iterdir()) == set(files)


@pytest.mark.parametrize("name", REPORTS)
def test_json_holds_the_same_data_and_the_ledgers_version(name: str, tmp_path: Path) -> None:
    text = write_report(REPORTS[name], tmp_path).json.read_text(encoding="utf-8")
    assert json.loads(text)["batch"]["version"] == LEDGER_VERSION
    assert Report.model_validate_json(text) == REPORTS[name]


@pytest.mark.parametrize("name", REPORTS)
def test_plain_text_is_short_and_quotes_no_record(name: str) -> None:
    text = render_plain(REPORTS[name])
    assert 5 <= len(text.splitlines()) <= 15
    assert text.startswith(f"{REPORTS[name].evaluation.outcome.upper()}  nyc_flights  2013-01-01 00:00 to ")
    assert "N14228" not in text
    assert EVIL[:9] not in text


def test_plain_text_stays_short_when_everything_fails() -> None:
    many = tuple(FAILED_SET.model_copy(update={"index": i, "kwargs": {"column": f"c{i}"}}) for i in range(40))
    lines = render_plain(report(*many)).splitlines()
    assert len(lines) <= 15
    assert "  and 34 more; the report lists them all" in lines
    assert "27 records, at flight_delays[0]@1040, flight_delays[1]@1041, flight_delays[2]@1042, …" in lines[2]


def test_the_template_loads_when_the_package_is_a_zip(tmp_path: Path) -> None:
    """Jobs and executors import the package from the zip that py_files ships."""
    package = Path(fencepost.__file__).parent
    archive = tmp_path / "fencepost.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for file in package.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                zipped.write(file, Path("fencepost") / file.relative_to(package))
    (tmp_path / "report.json").write_text(report(*PASSING).model_dump_json(), encoding="utf-8")
    code = (
        "import pathlib, fencepost.quality.report_html as html\n"
        "from fencepost.quality.report import Report\n"
        f"assert {str(archive)!r} in html.__file__\n"
        "print('Passed' in html.render_html(Report.model_validate_json(pathlib.Path('report.json').read_text())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "True", done.stderr


def test_the_schemas_of_a_batch_are_named_with_subject_version_and_ids() -> None:
    one, two = (RegisteredSchema(subject=f"in{EVIL}", id=5 + n, version=1 + n, text="{}") for n in range(2))
    schemas = Schemas(sources=of_source(ReadSchemas(reader=two, writers=(one, two))), output=one)
    made = report(*PASSING)
    plan = made.batch.plan.model_copy(update={"schemas": schemas})
    made = made.model_copy(update={"batch": made.batch.model_copy(update={"plan": plan})})
    html = render_html(made)
    assert "(version 2, id 6); records of ids 5, 6" in html
    assert "schema, output" in Page(html).text
    assert EVIL not in html
    assert "(version 2, id 6); records of ids 5, 6" in render_plain(made)
