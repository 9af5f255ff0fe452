"""Renders templates as responses. All data are escaped, and the headers keep content from elsewhere from loading or
running.
"""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from fencepost.formats.framing import describe_excluded
from fencepost.pages import wording
from fencepost.protocol.awaiting import sentence
from fencepost.protocol.table_states import changes_since, describe_changes
from fencepost.quality.quarantine import counted
from fencepost.quality.report import earlier_rows_words
from fencepost.quality.report_html import code_spans, table_filters, visible

# Scripts and styles are two files of Fencepost, so even an unescaped text could run nothing.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; frame-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# A report has inline styles and no script. `sandbox` also takes away its origin, and with it the UI's cookie.
REPORT_HEADERS = {
    **PAGE_HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox",
}
DARK = "@media (prefers-color-scheme: dark)"  # as in the report's template
THEMES = {"dark": "@media all", "light": "@media not all"}
ASSETS = {
    "pages.css": "text/css",
    "pages.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Returns a template as a response. In it, `root` is the path of this application, and `ui` is the path of
    Airflow's UI.
    """
    root = str(request.scope.get("root_path", "")).rstrip("/")
    ui = root.rpartition("/")[0]
    text = _environment().get_template(f"{template}.html.j2").render(root=root, ui=ui, version=_version(), **values)
    return HTMLResponse(text, status, PAGE_HEADERS)


def report_document(file: Path, theme: str = "") -> Response:
    """Returns a report file. A report runs no script, so this function adapts its style sheet to the UI's theme."""
    text = file.read_text(encoding="utf-8")
    if theme in THEMES:
        text = text.replace(DARK, THEMES[theme], 1)  # the first occurrence is in the style sheet, before any data
    return HTMLResponse(text, headers=REPORT_HEADERS)


def asset(name: str) -> Response:
    """Returns one of Fencepost's static files. Returns 404 for any other name."""
    if name not in ASSETS:
        raise HTTPException(404, "No such file.")
    # The address has a version, so a browser may keep the file.
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(_asset(name), media_type=ASSETS[name], headers=headers)


@functools.cache
def _asset(name: str) -> bytes:
    return resources.files("fencepost.pages").joinpath("static", name).read_bytes()


@functools.cache
def _version() -> str:
    return hashlib.sha256(b"".join(_asset(name) for name in ASSETS)).hexdigest()[:12]


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fencepost.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": visible,  # characters that reorder or hide others are shown by their number
        "number": wording.number,
        "short": wording.short_number,
        "duration": wording.duration,
        "moment": wording.moment,
        "span": lambda interval: wording.span(interval.start, interval.end),
        "verdict_style": wording.verdict_style,
        "verdict_words": wording.verdict_words,
        "sentence": sentence,
        "code_spans": code_spans,
        "counted": counted,
        "excluded_counts": describe_excluded,
        "changed_tables": lambda batch, row: describe_changes(changes_since(row.revisions, batch)),
        "earlier_rows": earlier_rows_words,
        **table_filters(),
    }
    return environment
