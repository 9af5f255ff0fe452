"""What awaits a person stands first on every page, and a run's tab shows the revision that the run is about."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from fencepost.model import Batch, Outcome, State
from fencepost.pages import app
from fencepost.pages.runs import DagRunFacts, about
from fencepost.protocol.snapshot import Row

from .conftest import FakeLedgers, Get
from .ledgers import batch, hour, ledger, taken

SAYS = "evision 2 was rejected; revision 1 stays published until revision 2 is published."
TAB = "/runs/orders/some%20run"
INTERVAL = f"/pipelines/orders/{hour(1)}"

Told = Callable[..., None]


@pytest.fixture
def told(get: Get, monkeypatch: pytest.MonkeyPatch) -> Told:
    """What Airflow says of the run of hour 1."""

    def say(revision: int | None, **values: object) -> None:
        run = DagRunFacts(hour(1), revision, **values)  # type: ignore[arg-type]
        monkeypatch.setattr(app, "run_of", lambda dag_id, run_id: run)

    return say


@pytest.fixture
def rejected(ledgers: FakeLedgers) -> None:
    """Three hours published, and the second one's reprocess rejected."""
    ledgers.content["orders"] = [*ledger(3), batch(1, State.REJECTED, revision=2)]


def write_report(name: str, text: str, number: int = 1) -> Path:
    file = Path(os.environ["FENCEPOST_REPORTS"]) / "orders" / str(hour(number)) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_data_quality_begins_with_it_and_no_count_hides_it(get: Get, rejected: None) -> None:
    text = get("/").text
    assert SAYS in text
    assert text.index('id="awaiting"') < text.index('<section class="card"')
    assert f'href="/fencepost{INTERVAL}/2">Report of revision 2' in text
    assert "2 of 3" in text
    assert "1 awaiting a person" in text
    assert re.search(r'last verdict</span><span class="badge passed"', text), (
        "the newest of all is hour 2's, which passed"
    )


def test_pipelines_of_which_something_awaits_a_person_come_first_from_whichever_page(
    get: Get, ledgers: FakeLedgers, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"p{n:02}" for n in range(12)]
    content = {name: [b.model_copy(update={"pipeline": name}) for b in ledger(3)] for name in names}
    content["p11"].append(batch(1, State.REJECTED, revision=2).model_copy(update={"pipeline": "p11"}))
    for name in names:
        shutil.copytree(folders / "orders", folders / name)
    shutil.rmtree(folders / "orders")
    ledgers.content = {**content, "secret": []}
    monkeypatch.setattr(FakeLedgers, "__init__", lambda self: setattr(self, "content", {**content, "secret": []}))
    text = get("/").text
    assert re.findall(r'<section class="card" id="(.+?)"', text) == ["p11", *names[:9]]
    assert SAYS in text


def test_batches_begin_with_it_and_its_row_shows_both_revisions(get: Get, rejected: None) -> None:
    text = get("/pipelines/orders").text
    assert text.index('id="awaiting"') < text.index('<section class="card"')
    (row,) = re.findall(r'<tr class="awaits".*?</tr>', text, re.DOTALL)
    assert str(hour(1)) in row
    for shown in ('badge published">', 'badge rejected">rejected', f"{hour(1)}/1", f"{hour(1)}/2", "awaits a person"):
        assert shown in row
    for state in ("rejected", "awaiting", "published"):
        filtered = get(f"/pipelines/orders?state={state}").text
        keys = re.findall(r'data-interval="(.+?)"', filtered)
        assert (str(hour(1)) in keys, len(keys)) == (True, 3 if state == "published" else 1)


def test_a_rejected_first_revision_is_told_once_with_what_it_holds_back(get: Get) -> None:
    text = get("/pipelines/orders").text
    assert text.count("If the suite is wrong") == 1
    assert "The frontier is held back" in text


def test_where_nothing_awaits_a_person_nothing_says_so(
    get: Get, ledgers: FakeLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers.content["orders"] = [*ledger(3), batch(1, State.WRITTEN, revision=2), batch(3, State.PLANNED)]
    monkeypatch.setattr(app, "utc_now", lambda: hour(3).end)
    for path in ("/", "/pipelines/orders", INTERVAL, f"{INTERVAL}/1"):
        assert "waiting a person" not in get(path).text, path
    monkeypatch.setattr(app, "stopped_runs", lambda dag_id, rows: {row.interval for row in rows[:1]})
    for path in ("/", "/pipelines/orders", INTERVAL, f"{INTERVAL}/1"):
        assert "evision 2 is stuck: written, and unchanged since" in get(path).text, path


def test_the_runs_tab_is_the_rejected_revisions_and_says_what_stays(get: Get, rejected: None, told: Told) -> None:
    write_report("revision-1-validation-1.html", "PASSED")
    write_report("revision-2-validation-1.html", "REJECTED")
    told(2)
    for path in (TAB, f"{TAB}?task=decide"):
        text = get(path).text
        assert f'data-src="/fencepost{INTERVAL}/2/report.html"' in text
        assert re.search(r'Revision 2 <span class="badge rejected">rejected', text)
        assert SAYS in text
    assert get(f"{INTERVAL}/2/report.html").text == "REJECTED"


def test_the_tab_of_a_run_about_the_published_revision_points_to_the_one_that_awaits(
    get: Get, rejected: None, told: Told
) -> None:
    told(1, succeeded=True)
    text = get(TAB).text
    assert 'Revision 1 <span class="badge published">' in text
    assert SAYS in text
    assert f'href="/fencepost{INTERVAL}/2"' in text


@pytest.mark.parametrize(
    ("states", "shown", "words"),
    [
        ((State.PUBLISHED, State.WRITTEN), 2, "Revision 1 stays published until revision 2 is published."),
        ((State.SKIPPED, State.WRITTEN), 2, "Revision 1 stays skipped until revision 2 is published."),
        ((State.PUBLISHED, State.SKIPPED), 1, "Revision 2 is skipped; revision 1 stays published."),
        ((State.SUPERSEDED, State.PUBLISHED), 1, "Revision 2 is published in its place."),
        ((State.SUPERSEDED, State.PUBLISHED), 2, None),
    ],
)
def test_the_tab_says_how_its_revision_stands_beside_the_others(
    get: Get, ledgers: FakeLedgers, told: Told, states: tuple[State, State], shown: int, words: str | None
) -> None:
    ledgers.content["orders"] = [batch(1, state, revision=n) for n, state in enumerate(states, start=1)]
    moment = hour(1).end + timedelta(minutes=10)
    told(shown)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "utc_now", lambda: moment)
        text = get(TAB).text
    assert f"Revision {shown} " in text
    assert words in text if words else 'class="note" id="standing"' not in text


def row_of(*states: State) -> Row:
    return taken([batch(1, state, revision=n) for n, state in enumerate(states, start=1)]).rows[0]


def planned_later(made: Batch) -> Batch:
    return made.model_copy(update={"plan": made.plan.model_copy(update={"planned_at": LATER})})


BEGAN = batch(1).plan.planned_at  # when our hand-made revisions were planned
LATER = BEGAN + timedelta(hours=3)


@pytest.mark.parametrize(
    ("why", "row", "run", "revision"),
    [
        ("its steps told of it", row_of(State.PUBLISHED, State.REJECTED), DagRunFacts(hour(1), 2), 2),
        (
            "a revision from elsewhere is not this run's",
            row_of(State.SUPERSEDED, State.PUBLISHED),
            DagRunFacts(hour(1), 1, succeeded=True, began=BEGAN, ended=BEGAN),
            1,
        ),
        (
            "its write planned another one and died",
            row_of(State.SUPERSEDED, State.PLANNED),
            DagRunFacts(hour(1), 1, began=BEGAN, ended=BEGAN + timedelta(minutes=3)),
            2,
        ),
        (
            "it goes on, and planned another one",
            row_of(State.SUPERSEDED, State.PLANNED),
            DagRunFacts(hour(1), 1, began=BEGAN),
            2,
        ),
        ("it has not planned yet", row_of(State.PUBLISHED), DagRunFacts(hour(1), 1, began=LATER), 1),
        (
            "a rejected run, and a revision planned from elsewhere long before it",
            row_of(State.REJECTED, State.PLANNED),
            DagRunFacts(hour(1), 1, began=LATER, ended=LATER),
            1,
        ),
        (
            "its results are elsewhere, and a newer revision was planned after it",
            taken([batch(1, State.SUPERSEDED), planned_later(batch(1, State.PUBLISHED, revision=2))]).rows[0],
            DagRunFacts(hour(1), None, succeeded=True, began=BEGAN, ended=BEGAN + timedelta(minutes=1)),
            1,
        ),
        ("Airflow has forgotten its results", row_of(State.PUBLISHED, State.REJECTED), DagRunFacts(hour(1)), 2),
        ("the ledger has no such revision any more", row_of(State.PUBLISHED), DagRunFacts(hour(1), 7), 1),
    ],
)
def test_the_revision_a_run_is_about(why: str, row: Row, run: DagRunFacts, revision: int) -> None:
    assert about(run, row).revision == revision, why


def named(report: str, revision: int = 1) -> Batch:
    made = batch(1, State.REJECTED, revision)
    assert made.verdict is not None
    return made.model_copy(update={"verdict": made.verdict.model_copy(update={"report": report})})


@pytest.mark.parametrize("folder", ["/gone/orders/x", ""])
def test_where_the_folder_has_moved_the_verdicts_own_attempt_is_served(
    get: Get, ledgers: FakeLedgers, folder: str
) -> None:
    write_report("revision-1-validation-1.html", "another attempt's")
    write_report("revision-1-validation-1-attempt-2.html", "its own")
    ledgers.content["orders"] = [named(f"{folder}/revision-1-validation-1-attempt-2.html")]
    assert get(f"{INTERVAL}/1/report.html").text == "its own"


def test_another_attempts_report_is_never_served_and_the_missing_one_is_named_with_its_folder(
    get: Get, ledgers: FakeLedgers
) -> None:
    other = write_report("revision-1-validation-1.html", "another attempt's")
    ledgers.content["orders"] = [named("/gone/revision-1-validation-1-attempt-2.html")]
    answer = get(f"{INTERVAL}/1/report.html")
    assert answer.status_code == 404
    assert "another attempt" not in answer.text
    assert "revision-1-validation-1-attempt-2.html" in answer.text
    assert str(other.parent) in answer.text


@pytest.mark.parametrize("report", ["", "..", "/", "../../../x.html", "x\0.html", "a" * 5000])
def test_a_name_that_is_no_reports_is_not_opened(get: Get, ledgers: FakeLedgers, report: str) -> None:
    ledgers.content["orders"] = [named(report)]
    assert get(f"{INTERVAL}/1/report.html").status_code == 404


def test_an_undetermined_reprocess_awaits_a_person_too(get: Get, ledgers: FakeLedgers) -> None:
    made = named("r").verdict
    assert made is not None
    verdict = made.model_copy(update={"outcome": Outcome.UNDETERMINED})
    ledgers.content["orders"] = [*ledger(3), batch(1, State.WRITTEN, 2).model_copy(update={"verdict": verdict})]
    assert "revision 2 could not be judged; revision 1 stays published" in get("/").text
    assert 'class="v-undetermined"' in get("/").text
