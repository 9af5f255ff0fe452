"""A publication to an Iceberg table is struck at every step, and so are its catalog, its network and its table.

The catalog is Iceberg's own REST code, behind a proxy. Afterwards every snapshot that main has had is read by Spark: none has
a part of a batch, and the last one has each row of the source once.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.observed_state import observed_state
from fencepost.errors import AccessDenied, FencepostError, Superseded, TableUnavailable
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.iceberg import retries
from fencepost.outputs.output import output_of
from fencepost.steps.advance import advance_batch, begin_batch
from fencepost.steps.obstacle import give_up
from fencepost.steps.validate import validate_batch
from fencepost_stack.ports import any_free_port
from lakes import Lake, into, make_old
from rigs.http_proxy import (
    COMMIT,
    CREATE,
    Armed,
    Hold,
    HttpProxy,
    answering,
    doing,
    lost_answer,
    lost_request,
    repeated,
)
from rigs.iceberg_catalog import RestCatalog, SqlCatalog
from rigs.small_disk import small_disk, text_of
from steps import latest, plan_and_write, run
from tables import POSITIVE, ROWS, judged
from waiting import await_true

from .conftest import finished
from .strikes import Attempt

Make = Callable[..., Pipeline]
Start = Callable[..., subprocess.Popen[str]]
Row = tuple[Any, ...]

SLOW, DEEP = pytest.mark.fault, pytest.mark.deep
PLACES = [
    "advance.begun",
    "lake.based",
    "lake.asked",
    "lake.written",
    "lake.committing",
    "lake.committed",
    "advance.copied",
]
COLUMNS = "n, doubled, name, fencepost_interval, fencepost_revision"


def truth(revision: int = 1, numbers: range = range(6), name: str = "ü", number: int = 1) -> list[Row]:
    """What the source says that the table has of a day."""
    start = day(number).start.astimezone(UTC).replace(tzinfo=None)
    return [(n, 2 * n, name, start, revision) for n in numbers]


class Case:
    """A pipeline whose first day's batch has passed, and its table as Spark sees it."""

    def __init__(self, lake: Lake, pipeline: Pipeline, proxy: HttpProxy | None) -> None:
        self.lake, self.pipeline = lake, pipeline
        self.proxy: Any = proxy
        self.table = pipeline.output.name

    def publish(self) -> None:
        assert advance_batch(self.pipeline, day(1)).state is State.PUBLISHED

    def contents(self) -> list[list[Row]]:
        """What main has had, from the first snapshot on, which is empty."""
        return self.lake.contents(self.table, COLUMNS)

    def check(self, *revisions: int) -> None:
        """Main has had these revisions one after another, each whole, and nothing between them."""
        assert self.contents() == [[], *(truth(revision) for revision in revisions or (1,))]


@pytest.fixture
def make_case(make_pipeline: Make, broker: Any, spark: Any) -> Callable[..., Case]:
    """Make a pipeline whose first day's batch has passed."""

    def make(lake: Lake, proxy: HttpProxy | None = None, **source: Any) -> Case:
        uri = f"http://127.0.0.1:{proxy.port}" if proxy is not None else ""
        pipeline = make_pipeline(ROWS, POSITIVE, **into(lake, uri))
        return Case(lake, judged(spark, broker, pipeline, **source), proxy)

    return make


@pytest.fixture
def case(rest_lake: Lake, make_case: Callable[..., Case]) -> Iterator[Case]:
    """One whose catalog is behind a proxy."""
    with HttpProxy(any_free_port(), rest_lake.of.port) as proxy:
        yield make_case(rest_lake, proxy)


@pytest.fixture
def started(
    start_step: Start, tmp_path: Path
) -> Callable[[Case, str], tuple[subprocess.Popen[str], Callable[[], int]]]:
    """Start the step advance in a process of its own, with a failpoint armed; it, and what waits for the strike."""

    def start(case: Case, failpoint: str) -> tuple[subprocess.Popen[str], Callable[[], int]]:
        struck = tmp_path / "struck"
        struck.mkdir()
        process = start_step(SimpleNamespace(pipeline=case.pipeline, struck=struck), "advance", failpoint)

        def pid() -> int:
            def found() -> bool:
                assert process.poll() is None or list(struck.iterdir()), process.communicate()
                return any(file.read_text() for file in struck.iterdir())

            await_true(found, "the failpoint to strike", 120)
            return int(next(struck.iterdir()).read_text())

        return process, pid

    return start


Started = Callable[[Case, str], tuple[subprocess.Popen[str], Callable[[], int]]]


@pytest.mark.parametrize(
    ("place", "action"),
    [
        ("lake.committed", "kill"),
        pytest.param("lake.written", "kill", marks=DEEP),
        *(pytest.param(place, "kill", marks=SLOW) for place in PLACES if place not in {"lake.written", "lake.committed"}),
        *(pytest.param(place, "raise", marks=SLOW) for place in PLACES),
    ],
)  # fmt: skip
def test_a_publication_struck_anywhere_is_in_the_table_once(
    case: Case, started: Started, place: str, action: str
) -> None:
    process, _ = started(case, f"{place}={action}")
    code, said = finished(process)
    assert code != 0, said
    committed = PLACES.index(place) >= PLACES.index("lake.committed")
    assert case.contents() == ([[], truth()] if committed else [[]])
    case.publish()
    case.check()


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("lake.based", marks=DEEP),
        *(pytest.param(place, marks=SLOW) for place in PLACES if place != "lake.based"),
    ],
)
def test_a_stopped_publisher_goes_on_after_another_and_adds_nothing(case: Case, started: Started, place: str) -> None:
    process, struck = started(case, f"{place}=stop")
    pid = struck()
    case.publish()
    os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert code == 0, said
    case.check()


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("lake.committing", marks=DEEP),
        *(pytest.param(place, marks=SLOW) for place in ("advance.begun", "lake.based", "lake.asked", "lake.written")),
    ],
)
def test_a_commit_under_way_when_the_publication_was_given_up_is_refused(
    case: Case, started: Started, place: str
) -> None:
    process, struck = started(case, f"{place}=stop")
    pid = struck()
    abandon(case)
    os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert code == 4, said
    assert case.contents() == [[]]


@pytest.mark.parametrize(
    "place",
    [pytest.param("lake.committing", marks=DEEP), *(pytest.param(place, marks=SLOW) for place in PLACES[:4])],
)
def test_a_zombie_of_an_older_lease_never_takes_a_newer_revisions_place(
    spark: Any, case: Case, started: Started, place: str
) -> None:
    process, struck = started(case, f"{place}=stop")
    pid = struck()
    zombie = latest(case.pipeline, day(1))
    case.publish()
    assert run(spark, case.pipeline, day(1), reprocess=True).revision == 2
    os.kill(pid, signal.SIGCONT)
    finished(process)
    with pytest.raises(Superseded):
        output_of(Deployment.of(case.pipeline), zombie).publish(zombie, None)
    case.check(1, 2)


def abandon(case: Case) -> None:
    """Give the publication up."""
    deployment, held = Deployment.of(case.pipeline), latest(case.pipeline, day(1))
    deployment.ledger.read()
    assert give_up(deployment, held, observed_state(deployment, held)) is not None


LANDED = {
    "lost answer": lost_answer,
    "repeated": repeated,
    **{str(status): answering(status, landed=True) for status in (409, 429, 500, 502, 503, 504)},
}


@pytest.mark.parametrize(
    "trick",
    ["repeated", *(pytest.param(name, marks=DEEP if name == "503" else SLOW) for name in LANDED if name != "repeated")],
)
def test_a_commit_that_landed_is_found_whatever_the_answer(case: Case, trick: str) -> None:
    begin_batch(case.pipeline, day(1))
    armed = case.proxy.arm(LANDED[trick])
    case.publish()
    assert armed.answers == ([200, 409] if trick == "repeated" else [200])
    case.check()
    history = case.lake.history(case.table)
    assert len(history) == 2, "one snapshot of the batch"


def test_commits_that_do_not_land_are_tried_again(case: Case) -> None:
    begin_batch(case.pipeline, day(1))
    statuses = (409, 429, 500, 502, 503, 504)
    armed = [case.proxy.arm(answering(status, landed=False)) for status in statuses]
    armed.append(case.proxy.arm(lost_request))
    case.publish()
    assert all(one.struck() and one.answers == [] for one in armed)
    case.check()


@pytest.mark.parametrize("when", ["before the commit", pytest.param("after it has landed", marks=DEEP)])
def test_a_catalog_that_does_not_give_the_table_is_asked_again(case: Case, when: str) -> None:
    begin_batch(case.pipeline, day(1))
    tricks = [*(answering(status, landed=False) for status in (503, 503, 503, 500, 429)), lost_request]
    armed = list[Armed]()

    def arm() -> None:
        armed.extend(case.proxy.arm(trick, method="GET") for trick in tricks)

    if when == "before the commit":
        arm()
    else:
        case.proxy.arm(doing(arm, landed=True))
    case.publish()
    assert len(armed) == 6
    assert all(one.struck() and one.answers == [] for one in armed)
    case.check()
    assert len(case.lake.history(case.table)) == 2, "one snapshot of the batch"


def test_a_catalog_that_denies_the_table_is_not_asked_again(case: Case) -> None:
    begin_batch(case.pipeline, day(1))
    denies, another = (case.proxy.arm(answering(403, landed=False), method="GET") for _ in range(2))
    with pytest.raises(AccessDenied, match="the login lacks a right"):
        advance_batch(case.pipeline, day(1))
    assert (denies.struck(), another.struck()) == (True, False)
    assert case.contents() == [[]]


@pytest.mark.fault
def test_an_answer_that_never_comes_is_not_waited_for_and_the_commit_is_found(case: Case) -> None:
    begin_batch(case.pipeline, day(1))
    hold = Hold(landed=True)
    case.proxy.arm(hold)
    try:
        case.publish()
    finally:
        hold.release()
    case.check()


@pytest.mark.parametrize("landed", [True, pytest.param(False, marks=SLOW)])
def test_a_catalog_killed_in_the_middle_of_a_commit_has_all_or_nothing(
    spark_lake: Any,
    postgres: Any,
    make_case: Callable[..., Case],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    landed: bool,
) -> None:
    monkeypatch.setattr(retries, "LONGEST_WAIT", 0.1)
    with RestCatalog(tmp_path / "own", postgres) as catalog, HttpProxy(any_free_port(), catalog.port) as proxy:
        case = make_case(Lake(catalog, spark_lake), proxy)
        begin_batch(case.pipeline, day(1))
        armed = proxy.arm(doing(catalog.kill, landed=landed))
        with pytest.raises(TableUnavailable, match="has refused or not answered 20 times in a row"):
            advance_batch(case.pipeline, day(1))
        assert armed.struck()
        catalog.start()
        assert case.contents() == ([[], truth()] if landed else [[]])
        case.publish()
        case.check()


@pytest.mark.parametrize("then", ["published", "given up"])
def test_a_request_that_arrives_late_is_refused(case: Case, then: str) -> None:
    """It is on its way while another publishes, or while the publication is given up."""
    begin_batch(case.pipeline, day(1))
    hold = Hold(landed=False)
    armed = case.proxy.arm(hold)
    late = Attempt(lambda: advance_batch(case.pipeline, day(1)))
    late.start()
    try:
        hold.await_held()
        if then == "published":
            case.publish()
        else:
            abandon(case)
    finally:
        hold.release()
        late.join(60)
    assert armed.answers == [409]
    assert not late.is_alive()
    assert type(late.error) is (type(None) if then == "published" else Superseded)
    assert case.contents() == ([[], truth()] if then == "published" else [[]])


@pytest.mark.parametrize(
    "trick", [lost_answer, pytest.param(lost_request, marks=SLOW), pytest.param(repeated, marks=SLOW)]
)
@pytest.mark.parametrize("path", [CREATE, COMMIT])
def test_a_table_is_made_and_claimed_once_whatever_the_answer(case: Case, trick: Any, path: str) -> None:
    armed = case.proxy.arm(trick, path=path)
    begin_batch(case.pipeline, day(1))
    assert armed.struck()
    assert len(case.lake.history(case.table)) == 1
    case.publish()
    case.check()


def test_two_publishers_at_once_commit_once(case: Case) -> None:
    begin_batch(case.pipeline, day(1))

    def publish(_: int) -> str:
        try:
            return str(advance_batch(case.pipeline, day(1)).state)
        except FencepostError as error:
            return type(error).__name__

    with ThreadPoolExecutor(2) as both:
        assert set(both.map(publish, range(2))) == {"published"}
    case.check()


def compact(lake: Lake, table: str) -> None:
    lake.compact(table)
    lake.rewrite_manifests(table)


def expire(lake: Lake, table: str) -> None:
    lake.expire(table)


def remove_orphans(lake: Lake, table: str) -> None:
    """What the publication has written already is an orphan too, but a young one."""
    orphan = next(file for file in lake.files(table) if file.suffix == ".parquet").with_name("orphan.parquet")
    orphan.write_bytes(b"of nobody")
    make_old(orphan)
    assert [Path(path).name for path in lake.remove_orphans(table)] == ["orphan.parquet"]


def roll_back(lake: Lake, table: str) -> None:
    lake.roll_back(table, lake.history(table)[0])


@pytest.mark.parametrize(
    ("maintain", "before"),
    [
        (compact, [[], truth()]),
        pytest.param(expire, [truth()], marks=SLOW),
        pytest.param(remove_orphans, [[], truth()], marks=SLOW),
        pytest.param(roll_back, [[]], marks=SLOW),
    ],
)
def test_a_maintainer_in_the_middle_costs_no_row(
    spark: Any, case: Case, maintain: Callable[[Lake, str], None], before: list[list[Row]]
) -> None:
    """The files that the new revision replaces may be others by then, or gone."""
    case.publish()
    plan_and_write(spark, case.pipeline, day(1), reprocess=True)
    validate_batch(spark, case.pipeline, day(1))
    begin_batch(case.pipeline, day(1))
    armed = case.proxy.arm(doing(lambda: maintain(case.lake, case.table), landed=False))
    case.publish()
    assert armed.answers == ([200] if maintain in {remove_orphans, expire} else [409]), "they leave main where it is"
    assert case.contents() == [*before, truth(2)]


@pytest.mark.fault
def test_a_full_disk_under_the_warehouse_commits_nothing_and_a_larger_one_all(
    spark_lake: Any, postgres: Any, make_case: Callable[..., Case], tmp_path: Path
) -> None:
    numbers, name, disk = range(3), text_of(900_000), tmp_path / "disk"
    with small_disk(disk, "400k") as resize:
        case = make_case(Lake(SqlCatalog(disk, postgres), spark_lake), numbers=numbers, name=name)
        begin_batch(case.pipeline, day(1))
        with pytest.raises(TableUnavailable, match="No space left on device"):
            advance_batch(case.pipeline, day(1))
        assert case.contents() == [[]]
        resize("64m")
        case.publish()
        assert case.contents() == [[], truth(1, numbers, name)]
