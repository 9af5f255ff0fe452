"""The pages' web application: its routes and their guards. Airflow mounts it at /fencepost.

Invariants: every page except the style sheet and the script asks Airflow who the user is and what the user may read. A
name in a request is looked up among pipelines and batches before it becomes part of a path. No page changes anything.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from fencepost.config.intervals import left_out
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, KafkaUnavailable, SettingsError
from fencepost.model import Batch, State, utc_now
from fencepost.pages.access import MayReadDag, MayReadLogs, MayReadRuns, Readable
from fencepost.pages.cards import Card, card_of
from fencepost.pages.comparisons import Comparisons
from fencepost.pages.dag_settings import DagSettings
from fencepost.pages.ledgers import Ledgers
from fencepost.pages.listing import PAGE_SIZES, TRENDS, ListQuery, cut, page_of
from fencepost.pages.pipelines import Pipelines
from fencepost.pages.rendering import REPORT_HEADERS, asset, page, report_document
from fencepost.pages.runs import about, run_of, runs_of, stopped_runs
from fencepost.pages.trend import lag_now, topic_lags
from fencepost.pages.wording import standing
from fencepost.protocol.awaiting import Awaiting, awaiting_reason
from fencepost.protocol.snapshot import Row, Snapshot
from fencepost.protocol.unplanned_intervals import UnplannedIntervals
from fencepost.quality.report_files import ReportMissing, report_file

CARDS = 10  # pipelines on one page of the overview
FEW = 10  # how many of the intervals that await a person are listed; the others are counted
AT_ONCE = 4  # pipelines whose ledgers are read in parallel

app = FastAPI(title="Fencepost", openapi_url=None)
pipelines, ledgers = Pipelines(DagSettings().read), Ledgers()
comparisons = Comparisons(lambda pipeline: ledgers.missing_batches(pipeline))


@app.get("/")
def overview(
    request: Request, readable: Readable, last: int = TRENDS[0], number: Annotated[int, Query(alias="page")] = 1
) -> Response:
    """Returns the page about data quality, with all pipelines whose DAG the user may read. Pipelines with an interval
    that awaits a person come first.
    """
    good, broken = pipelines.load()
    length = last if last in TRENDS else TRENDS[0]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        until = ledgers.deadline()
        looks = list(pool.map(lambda p: _shown_pipeline(p, until), [p for name, p in good.items() if name in readable]))
        looks.sort(key=lambda shown_pipeline: not shown_pipeline.awaiting)
        shown = cut(looks, number, CARDS)
        cards = list(pool.map(lambda shown_pipeline: _card(shown_pipeline, length), shown.items))
    away = bool(cards) and all(isinstance(card.failure, KafkaUnavailable) for card in cards)
    return page(
        request,
        "overview",
        503 if away else 200,
        cards=cards,
        shown=shown,
        length=length,
        lengths=TRENDS,
        broken=len(broken),
        named=sorted(broken.keys() & readable),
        waiting=[shown_pipeline for shown_pipeline in looks if shown_pipeline.awaiting],
        few=FEW,
    )


@app.get("/pipelines/{dag_id}", dependencies=[MayReadDag])
def batches(
    request: Request,
    dag_id: str,
    state: str = "",
    sort: str = "interval",
    order: str = "desc",
    size: int = 50,
    number: Annotated[int, Query(alias="page")] = 1,
    last: int = TRENDS[0],
) -> Response:
    """Returns the intervals of one pipeline."""
    pipeline = _pipeline(dag_id)
    shown_pipeline = _shown_pipeline(pipeline)
    snapshot = shown_pipeline.known()
    wish = ListQuery.of(state, sort, order, size, number)
    keys = {str(one.batch.interval) for one in shown_pipeline.awaiting}
    rows = page_of(snapshot, wish, keys)
    return page(
        request,
        "batches",
        left_out=_left_out(pipeline, snapshot),
        card=_card(shown_pipeline, last if last in TRENDS else TRENDS[0]),
        awaiting=shown_pipeline.awaiting,
        awaits={str(one.batch.interval): one for one in shown_pipeline.awaiting},
        few=FEW,
        comparison=comparisons.of(pipeline) if snapshot.rows else None,
        pipeline=pipeline,
        snapshot=snapshot,
        wish=wish,
        rows=rows,
        runs=runs_of(dag_id, [row.interval for row in rows.items]),
        states=list(State),
        sizes=PAGE_SIZES,
    )


@app.get("/pipelines/{dag_id}/{interval}", dependencies=[MayReadDag])
def batch(request: Request, dag_id: str, interval: str) -> Response:
    """Returns everything that the ledger knows about one interval."""
    pipeline = _pipeline(dag_id)
    shown_pipeline = _shown_pipeline(pipeline)
    row = shown_pipeline.known().by_key.get(interval)
    if row is None:
        raise HTTPException(404, "This interval was never planned.")
    run = runs_of(dag_id, [row.interval]).get(row.interval.start)
    return page(
        request,
        "batch",
        pipeline=pipeline,
        row=row,
        run=run,
        awaits=shown_pipeline.of(row),
    )


@app.get("/pipelines/{dag_id}/{interval}/{revision}", dependencies=[MayReadLogs])
def report(request: Request, dag_id: str, interval: str, revision: int) -> Response:
    """Returns the report of one revision, framed by a page with links."""
    shown_pipeline = _shown_pipeline(_pipeline(dag_id))
    found = shown_pipeline.known().find(interval, revision)
    if found is None:
        raise HTTPException(404, "The ledger has no such batch.")
    return _report_page(request, shown_pipeline, found)


@app.get("/pipelines/{dag_id}/{interval}/{revision}/report.html", dependencies=[MayReadLogs])
def report_html(dag_id: str, interval: str, revision: int, theme: str = "") -> Response:
    """Returns the report alone. The report is one file that loads nothing else, and its headers isolate it."""
    return report_document(report_file(dag_id, _batch(dag_id, interval, revision), ".html"), theme)


@app.get("/pipelines/{dag_id}/{interval}/{revision}/report.json", dependencies=[MayReadLogs])
def report_json(dag_id: str, interval: str, revision: int) -> Response:
    """Returns the report's content as JSON, for programs."""
    found = _batch(dag_id, interval, revision)
    name = f"{dag_id}-{interval}-{revision}.json"
    return FileResponse(
        report_file(dag_id, found, ".json"), filename=name, media_type="application/json", headers=REPORT_HEADERS
    )


@app.get("/runs/{dag_id}/{run_id:path}", dependencies=[MayReadRuns, MayReadLogs])
def run_report(request: Request, dag_id: str, run_id: str) -> Response:
    """Returns the report of the revision that a DAG run is about. All tasks of the run show the same report."""
    pipeline = _pipeline(dag_id)
    run = run_of(dag_id, run_id)
    if run is None:
        raise HTTPException(404, "There is no such run, or it has no data interval and so no batch.")
    shown_pipeline = _shown_pipeline(pipeline)
    row = shown_pipeline.known().by_key.get(str(run.interval))
    if row is None:
        raise HTTPException(404, "This run's interval has not been planned yet; the run's plan task plans it.")
    return _report_page(request, shown_pipeline, about(run, row))


@app.get("/static/{name}")
def static(name: str) -> Response:
    """Returns the style sheet or the script, which contain no data. Returns 404 for any other name."""
    return asset(name)


@dataclass(frozen=True)
class ShownPipeline:
    """One pipeline's present state, from its ledger and Airflow. Either `snapshot` or `failure` is set."""

    pipeline: Pipeline
    snapshot: Snapshot | None
    failure: FencepostError | None = None
    awaiting: tuple[Awaiting, ...] = ()

    def known(self) -> Snapshot:
        """Returns the snapshot, or raises the failure if there is none."""
        if self.snapshot is None:
            assert self.failure is not None
            raise self.failure
        return self.snapshot

    def of(self, row: Row) -> Awaiting | None:
        """Returns what awaits a person in that interval, or None."""
        return next((one for one in self.awaiting if one.batch.interval == row.interval), None)


def _shown_pipeline(pipeline: Pipeline, until: float | None = None) -> ShownPipeline:
    try:
        snapshot = ledgers.snapshot(pipeline, until)
    except FencepostError as error:
        return ShownPipeline(pipeline, None, error)
    under_way = [row for row in snapshot.unfinished if awaiting_reason(row.newest) is None]
    stopped = stopped_runs(pipeline.name, under_way)
    found = snapshot.awaiting(utc_now(), pipeline.schedule.patience, stopped)
    return ShownPipeline(pipeline, snapshot, awaiting=found)


def _report_page(request: Request, shown_pipeline: ShownPipeline, found: Batch) -> Response:
    try:
        report_file(shown_pipeline.pipeline.name, found, ".html")
        missing = ""
    except ReportMissing as error:
        missing = str(error)
    row = shown_pipeline.known().by_key[str(found.interval)]
    run = runs_of(shown_pipeline.pipeline.name, [found.interval]).get(found.interval.start)
    return page(
        request,
        "report",
        pipeline=shown_pipeline.pipeline,
        batch=found,
        row=row,
        run=run,
        missing=missing,
        awaits=shown_pipeline.of(row),
        standing=standing(row, found),
    )


def _card(shown_pipeline: ShownPipeline, length: int) -> Card:
    try:
        snapshot, ends = shown_pipeline.known(), ledgers.source_ends(shown_pipeline.pipeline)
        before = snapshot.unread
        if before.offsets:
            before = before.still_in(ledgers.source_begins(shown_pipeline.pipeline))
    except FencepostError as error:
        return Card(shown_pipeline.pipeline, shown_pipeline.snapshot, error, awaiting=shown_pipeline.awaiting)
    pipeline, there = shown_pipeline.pipeline, {topic for topic, _ in ends}
    missing = tuple(topic for topic in pipeline.source_topics if topic not in there)
    lag = None if missing else lag_now(snapshot, pipeline.schedule, ends, utc_now())
    card = card_of(pipeline, snapshot, lag, length, shown_pipeline.awaiting)
    return replace(card, unread=before, missing=missing, topic_lags=topic_lags(snapshot, ends))


def _left_out(pipeline: Pipeline, snapshot: Snapshot) -> UnplannedIntervals:
    """Returns the intervals of the schedule that have neither a batch nor a run, although a later interval has one."""
    found = UnplannedIntervals.of(left_out(pipeline.schedule, [row.interval for row in snapshot.rows]))
    runs = runs_of(pipeline.name, found.intervals)
    return found.without({one for one in found.intervals if one.start in runs})


def _pipeline(dag_id: str) -> Pipeline:
    good, broken = pipelines.load()
    if dag_id in broken:
        raise broken[dag_id]
    if dag_id not in good:
        raise HTTPException(
            404, "This DAG is not a Fencepost pipeline, or this machine does not have the pipeline's folder."
        )
    return good[dag_id]


def _batch(dag_id: str, interval: str, revision: int) -> Batch:
    found = ledgers.snapshot(_pipeline(dag_id)).find(interval, revision)
    if found is None:
        raise HTTPException(404, "The ledger has no such batch.")
    return found


@app.exception_handler(StarletteHTTPException)
def refuse(request: Request, error: StarletteHTTPException) -> Response:
    """Shows Airflow's status on a page that looks like the others."""
    titles = {401: "Please log in", 403: "Not allowed", 404: "Nothing here"}
    return page(
        request,
        "message",
        error.status_code,
        title=titles.get(error.status_code, "Error"),
        text=str(error.detail),
        retry=False,
    )


@app.exception_handler(ReportMissing)
def no_report(request: Request, error: ReportMissing) -> Response:
    """Says that a report does not exist or cannot be shown."""
    return page(request, "message", 404, title="No report", text=str(error), retry=False)


@app.exception_handler(FencepostError)
def away(request: Request, error: FencepostError) -> Response:
    """Shows an error page if Kafka does not answer or refuses access, or if the settings or the ledger cannot be read.
    The error has the next step.
    """
    absent = isinstance(error, KafkaUnavailable)
    title = "Kafka does not answer" if absent else "The ledger cannot be read"
    title = "The settings cannot be read" if isinstance(error, SettingsError) else title
    response = page(request, "message", 503 if absent else 500, title=title, text=str(error), retry=True)
    if absent:
        response.headers["Retry-After"] = "5"
    return response
