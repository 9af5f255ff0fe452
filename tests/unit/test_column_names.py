"""Which names are one to Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fencepost.config.loading import load_pipeline
from fencepost.errors import SettingsError
from fencepost.formats.column_names import twins, without_case
from fencepost.formats.format import taken_names

SAME = {
    "ASCII": ("Name", "nAME"),
    "the dotless i": ("id", "\u0131d"),
    "the dotted I": ("id", "\u0130d"),
    "the two characters that the dotted I is in lower case": ("\u0130d", "i\u0307d"),
    "the long s": ("size", "\u017fize"),
    "the Kelvin sign": ("key", "\u212aey"),
    "the Ohm sign": ("\u03c9", "\u2126"),
    "sigmas": ("\u03c3\u03b1\u03c3", "\u03a3\u0391\u03c2"),
    "micro and mu": ("\u00b5", "\u03bc"),
    "sharp s": ("stra\u00dfe", "STRA\u1e9eE"),
    "letters beyond 16 bits": ("\U00010400", "\U00010428"),
}
APART = [("stra\u00dfe", "strasse"), ("\ufb01", "fi"), ("a", "\u00e4"), ("a_b", "ab"), ("n", "\u0149")]


@pytest.mark.parametrize("what", SAME)
def test_names_that_differ_only_in_case_are_one(what: str) -> None:
    one, other = SAME[what]
    assert without_case(one) == without_case(other)
    assert twins(["before", one, "between", other]) == (one, other)


@pytest.mark.parametrize("pair", APART)
def test_other_names_are_not(pair: tuple[str, str]) -> None:
    assert twins(pair) is None
    assert twins([pair[0], pair[0]]) is None, "one name twice is not two names"


@pytest.mark.parametrize("what", ["ASCII", "the dotless i", "the long s", "the Kelvin sign", "sharp s"])
def test_a_source_does_not_declare_both(what: str, tmp_path: Path) -> None:
    settings = {
        "source": {"topic": "in", "schema": dict.fromkeys(SAME[what], "int")},
        "output": {"topic": "out"},
        "schedule": {"start": "2026-01-01"},
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
    }
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(SettingsError, match="differ only in case: to Spark they are the same"):
        load_pipeline(tmp_path)


def test_what_every_source_has_is_taken_in_any_case() -> None:
    assert taken_names(["_\u212aey", "_t\u0131mestamp", "_FENCEPOST_x", "key"]) == [
        "_fencepost_x",
        "_key",
        "_timestamp",
    ]
