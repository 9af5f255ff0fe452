"""What `make test` and `make test-all` promise: between them they run every test, on what they have brought."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPS = r"\bpytest\.(mark\.)?(skip|skipif|importorskip|xfail)\b"
INSTALLS = r"\b(apt|apt-get|dpkg|pip3?|pipx|uv|npm|npx|conda|curl|wget)\b"


def test_no_test_is_skipped() -> None:
    """A test that skips itself where something is not installed proves nothing there, and nobody is told."""
    for file in (ROOT / "tests").rglob("*.py"):
        assert not re.search(SKIPS, file.read_text()), file


def test_ci_runs_what_a_newcomer_runs_and_installs_nothing_beside_it() -> None:
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if not line.lstrip().startswith("#")]
    assert lines[-2:] == ["make test", 'make test-all PARTS="cluster changes"']
    assert [line for line in lines if re.search(INSTALLS, line)] == []
