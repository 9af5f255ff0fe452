"""The pages as a person meets them: inside Airflow's UI, in its theme, with what came from data as text."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from .conftest import EVIL, Site, interval

pytestmark = pytest.mark.stack


def inside(page: Page, title: str) -> FrameLocator:
    """What the UI's frame of that name shows."""
    return page.frame_locator(f'iframe[title="{title}"]')


def brightness(page: Page, frame: FrameLocator) -> float:
    """Of the page's background, 0 black to 255 white, as drawn."""
    canvas = """e => { const c = document.createElement('canvas').getContext('2d');
        c.fillStyle = getComputedStyle(e).backgroundColor; c.fillRect(0, 0, 1, 1);
        const p = c.getImageData(0, 0, 1, 1).data; return (p[0] + p[1] + p[2]) / 3 }"""
    return float(frame.locator("body").evaluate(canvas))


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_data_quality_is_in_the_uis_menu_and_in_its_theme(
    site: Site, page: Page, request: pytest.FixtureRequest
) -> None:
    page.goto(site.url)
    page.get_by_role("link", name="Data quality").click()
    frame = inside(page, "Data quality")
    expect(frame.get_by_role("heading", name="judged")).to_be_visible()
    assert frame.locator("#judged svg.chart").count() == 6
    dark = page.evaluate("localStorage.getItem('theme')") == "dark"
    assert (brightness(page, frame) < 64) is dark
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert frame.locator("body").evaluate("e => e.scrollWidth <= innerWidth"), "nothing runs over the edge"


def test_the_theme_changes_while_a_page_is_open(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/plugin/data-quality")
    frame = inside(page, "Data quality")
    expect(frame.locator("html")).to_have_attribute("data-theme", "light")
    page.evaluate("localStorage.setItem('theme', 'dark')")
    expect(frame.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_hole_stands_out_among_the_batches_of_a_dag(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/dags/judged/plugin/batches")
    frame = inside(page, "Batches")
    hole = frame.locator("tr.hole")
    expect(hole).to_have_count(1)
    expect(hole).to_have_attribute("data-interval", interval(1))
    expect(hole).to_contain_text("holds the frontier back")
    expect(frame.locator(f'tr[data-interval="{interval(2)}"]')).to_contain_text("waits behind the frontier")
    colours = [
        frame.locator(f"tr{row} td").first.evaluate("e => getComputedStyle(e).backgroundColor")
        for row in (".hole", ":not(.hole)")
    ]
    assert colours[0] != colours[1]


def test_a_filter_by_state_leaves_that_state(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/dags/judged/plugin/batches")
    frame = inside(page, "Batches")
    frame.get_by_role("link", name="rejected 1").click()
    expect(frame.locator("tr[data-interval]")).to_have_count(1)
    frame.get_by_role("link", name="published 1").click()
    expect(frame.locator("tr[data-interval]")).to_have_count(1)
    expect(frame.locator("tr[data-interval]")).to_have_attribute("data-interval", interval(2))


@pytest.mark.parametrize("where", ["run", "task instance", "batches"])
def test_the_report_opens_from(site: Site, page: Page, where: str) -> None:
    if where == "run":
        page.goto(site.ui_of_run(1))
        page.get_by_role("link", name="Report").click()
    elif where == "task instance":
        page.goto(f"{site.ui_of_run(1)}/tasks/validate")
        page.get_by_role("link", name="Report").click()
    else:
        page.goto(f"{site.url}/dags/judged/plugin/batches")
    frame = inside(page, "Batches" if where == "batches" else "Report")
    if where == "batches":
        frame.locator("tr.hole").get_by_role("link", name="report").click()
    report = frame.frame_locator('iframe[title="Report"]')
    expect(report.get_by_role("heading", name="Rejected")).to_be_visible()
    expect(report.locator(".batch")).to_contain_text("2026-01-01 00:00 to 2026-01-02 00:00 UTC")


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_the_report_has_the_uis_theme(site: Site, page: Page) -> None:
    page.goto(f"{site.ui_of_run(2)}/plugin/run-report")
    report = inside(page, "Report").frame_locator('iframe[title="Report"]')
    expect(report.get_by_role("heading", name="Passed")).to_be_visible()
    dark = page.evaluate("localStorage.getItem('theme')") == "dark"
    expect(report.locator("body")).to_have_css("background-color", "rgb(16, 19, 22)" if dark else "rgb(245, 246, 248)")


def test_a_batch_leads_to_its_run_in_the_ui_around_it(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/dags/judged/plugin/batches")
    inside(page, "Batches").locator("tr.hole").get_by_role("link", name="run").click()
    page.wait_for_url(re.compile(r"/dags/judged/runs/[^/]+"))
    expect(page.get_by_text("Failed").first).to_be_visible()


def test_what_came_from_data_is_text_everywhere_and_never_runs(site: Site, page: Page) -> None:
    failures: list[str] = []
    page.on(
        "console", lambda message: failures.append(message.text) if "Content Security Policy" in message.text else None
    )
    batch = f"/fencepost/pipelines/judged/{interval(1)}"
    for path in ("/fencepost/", "/fencepost/pipelines/judged", batch, f"{batch}/1", f"{batch}/1/report.html"):
        page.goto(f"{site.url}{path}")
        page.wait_for_load_state("networkidle")
        assert page.title() != "run"
        assert page.locator("img[onerror]").count() == 0
    assert EVIL in page.locator("body").inner_text(), "the report shows the record's value as it is"
    assert failures == [], "not even the last line of defence was needed"


def test_while_one_pipelines_kafka_is_away_its_page_says_so_and_the_others_go_on(site: Site, page: Page) -> None:
    answer = page.goto(f"{site.url}/fencepost/pipelines/absent")
    assert answer is not None
    assert answer.status == 503
    expect(page.get_by_role("heading", name="Kafka does not answer")).to_be_visible()
    expect(page.get_by_text("Is the broker up?")).to_be_visible()
    for name, shown in (("absent", "Is the broker up?"), ("private", "Nothing has been planned yet")):
        page.goto(site.page_with(name))
        expect(page.locator(f"#{name}")).to_contain_text(shown)
    page.goto(site.page_with("judged"))
    expect(page.locator("#judged svg.chart")).to_have_count(6)
