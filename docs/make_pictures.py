"""Pictures of the pages for the README, from the running demo: `make demo`, then `make pictures`.

The browser is that of the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

import chromium
from fencepost_stack.airflow_api import StackAirflow
from fencepost_stack.errors import LocalStackError
from fencepost_stack.stack import Stack

FOLDER = Path(__file__).parent / "pictures"
DAG = "nyc_flights"
SIZE = {"width": 1280, "height": 960}


def data_quality(page: Page, url: str, run: str) -> None:
    """All pipelines, with their trends."""
    page.goto(f"{url}/plugin/data-quality")
    expect(page.frame_locator("iframe").locator(f"#{DAG} svg.chart").first).to_be_visible()


def batches(page: Page, url: str, run: str) -> None:
    """Every interval of one pipeline."""
    page.goto(f"{url}/dags/{DAG}/plugin/batches")
    expect(page.frame_locator("iframe").locator("tr[data-interval]").first).to_be_visible()


def report(page: Page, url: str, run: str) -> None:
    """The report of a batch, on its run's tab."""
    page.goto(f"{url}/dags/{DAG}/runs/{run}/plugin/run-report")
    shown = page.frame_locator("iframe").frame_locator('iframe[title="Report"]')
    expect(shown.get_by_role("heading", level=1)).to_be_visible()


def note(page: Page, url: str, run: str) -> None:
    """A run, with its note."""
    page.goto(f"{url}/dags/{DAG}/runs/{run}")
    expect(page.get_by_text("Params the run saw").first).to_be_visible()


def backfill(page: Page, url: str, run: str) -> None:
    """The form for a backfill that writes published days again."""
    page.goto(f"{url}/dags/{DAG}")
    page.get_by_test_id("trigger-dag-button").click()
    form = page.get_by_role("dialog")
    form.get_by_text("Backfill", exact=True).click()
    for field, day in zip(form.get_by_test_id("datetime-input").all(), ("2013/01/01", "2013/01/02"), strict=True):
        field.click()
        for placeholder, value in (("YYYY/MM/DD", day), ("HH:mm", "05:00")):
            page.get_by_placeholder(placeholder).fill(value)
            page.get_by_placeholder(placeholder).press("Enter")
        page.keyboard.press("Escape")
        expect(page.get_by_placeholder("YYYY/MM/DD")).to_have_count(0)
    form.get_by_text("All Runs", exact=True).click()
    form.get_by_text("Override parameters on existing runs", exact=True).click()
    form.locator("label").filter(has=page.locator("input[name=element_reprocess]")).click()
    expect(form.get_by_text("runs will be triggered")).to_be_visible()


PICTURES: dict[str, tuple[Callable[[Page, str, str], None], str]] = {
    "data-quality": (data_quality, "light"),
    "data-quality-dark": (data_quality, "dark"),
    "batches": (batches, "light"),
    "report": (report, "light"),
    "run-note": (note, "light"),
    "backfill-reprocess": (backfill, "light"),
}


@contextmanager
def page_of(browser: Browser, url: str, token: str, theme: str) -> Iterator[Page]:
    """A page in that theme, logged in, with the clock of the demo's data."""
    context = browser.new_context(viewport=SIZE, timezone_id="UTC", reduced_motion="reduce")  # type: ignore[arg-type]
    context.add_cookies([{"name": "_token", "value": token, "url": url}])
    context.add_init_script(f"try {{ localStorage.setItem('theme', '{theme}') }} catch (e) {{ }}")
    yield context.new_page()
    context.close()


def main() -> int:
    """Make all pictures, or those named; say where they are."""
    wanted = sys.argv[1:] or list(PICTURES)
    if unknown := set(wanted) - PICTURES.keys():
        print(f"no picture {', '.join(sorted(unknown))}; there are {', '.join(PICTURES)}", file=sys.stderr)
        return 2
    try:
        with StackAirflow.of_stack() as api:
            runs = api.dag_runs(DAG)
            token = api.token
    except LocalStackError as error:
        print(f"{error} The pictures show the demo: `make demo` first.", file=sys.stderr)
        return 1
    url = Stack().services()["airflow"]["url"]
    # A page that Airflow has not compiled yet takes longer than the usual five seconds.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        for name in wanted:
            show, theme = PICTURES[name]
            with page_of(browser, url, token, theme) as page:
                show(page, url, str(runs[0]["dag_run_id"]))
                page.wait_for_load_state("networkidle")
                page.screenshot(path=FOLDER / f"{name}.png", animations="disabled")
            print(FOLDER / f"{name}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
