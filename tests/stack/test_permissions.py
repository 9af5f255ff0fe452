"""Airflow's own permissions guard the pages: nobody's, and those of a user who may read some DAGs and not others."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from .conftest import Site, interval

pytestmark = pytest.mark.stack


def pages_of(site: Site, dag: str) -> list[str]:
    batch = f"/fencepost/pipelines/{dag}/{interval(1)}"
    run = f"/fencepost/runs/{dag}/{quote(site.runs[0]['dag_run_id'], safe='')}"
    return [f"/fencepost/pipelines/{dag}", batch, f"{batch}/1", f"{batch}/1/report.html", f"{batch}/1/report.json", run]


def test_the_anonymous_get_401_from_every_page(site: Site) -> None:
    for path in ["/fencepost/", *pages_of(site, "judged")]:
        answer = site.get(path)
        assert answer.status_code == 401, path
        assert "judged" not in answer.text


def test_a_forged_token_is_refused(site: Site) -> None:
    forged = httpx.get(f"{site.url}/fencepost/", cookies={"_token": "a.b.c"}, trust_env=False, timeout=60.0)
    assert forged.status_code == 403


def test_who_may_not_read_a_dag_gets_403_from_every_page_of_it_and_200_from_others(site: Site) -> None:
    assert {p: site.get(p, "viewer").status_code for p in pages_of(site, "private")} == dict.fromkeys(
        pages_of(site, "private"), 403
    )
    assert {p: site.get(p, "viewer").status_code for p in pages_of(site, "judged")} == dict.fromkeys(
        pages_of(site, "judged"), 200
    )


def test_the_overview_leaves_out_what_one_may_not_read(site: Site) -> None:
    assert 'id="private"' in "".join(site.overview("admin"))
    mine = "".join(site.overview("viewer"))
    assert 'id="judged"' in mine
    assert "private" not in mine


def test_airflow_itself_says_the_same_of_that_user(site: Site) -> None:
    assert site.get("/api/v2/dags/private", "viewer").status_code == 403
    assert site.get("/api/v2/dags/judged", "viewer").status_code == 200
