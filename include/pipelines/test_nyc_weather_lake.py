"""The transform of `nyc_weather_lake` on a few observations: row by row, and a day that was written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.testing.trial import Trials

NYC_WEATHER_LAKE = Path(__file__).with_name("nyc_weather_lake")
AT_TEN, AT_ELEVEN = "2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 3}
COLUMNS: dict[str, Any] = {
    "origin": "string",
    "observed_at": {"type": "long", "logicalType": "timestamp-micros"},
    **dict.fromkeys(("temp_c", "dewp_c", "humidity"), "double"),
    "wind_dir": "int",
    **dict.fromkeys(("wind_kmh", "gust_kmh"), "double"),
    "precip_mm": DECIMAL,
    **dict.fromkeys(("pressure_hpa", "visibility_km"), "double"),
    "sky": "string",
}


def observation(at: str, temp: float | None, **more: Any) -> dict[str, Any]:
    """An observation as the topic has it."""
    return {"origin": "EWR", "observed_at": at, "temp_c": temp, "precip_mm": "0.250", "sky": "rain", **more}


def test_of_an_observation_that_was_published_again_the_newer_record_counts_with_its_nulls(
    fencepost_transform: Trials, tmp_path: Path
) -> None:
    schema = tmp_path / "weather_metric.avsc"
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in COLUMNS.items()]
    schema.write_text(json.dumps({"type": "record", "name": "Observation", "fields": fields}))
    old = [observation(AT_TEN, 1.5), observation(AT_ELEVEN, 2.5), observation(AT_TEN, 3.5, origin="JFK")]
    new = [observation(AT_TEN, None, wind_kmh=9.0), observation(AT_ELEVEN, 4.5)]
    rows = [{**row, "_offset": at} for row, at in zip([*new, *old], (8, 9, 5, 6, 7), strict=True)]
    outcome = fencepost_transform(NYC_WEATHER_LAKE, rows, schema=schema)
    found = {(r["origin"], f"{r['observed_at']:%H}", r["temp_c"], r["wind_kmh"]) for r in outcome.rows if r}
    assert found == {("EWR", "10", None, 9.0), ("EWR", "11", 4.5, None), ("JFK", "10", 3.5, None)}
    assert {tuple(row or ()) for row in outcome.rows} == {tuple(COLUMNS)}
    assert {str(row and row["precip_mm"]) for row in outcome.rows} == {"0.250"}
