"""The local stack's folders hold records and passwords: others on the machine do not get in."""

from __future__ import annotations

from pathlib import Path

from fencepost_stack.state_folder import StateFolder


def test_folders_with_records_are_closed_to_others_also_those_that_were_there(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    state.reports.mkdir(parents=True)
    state.reports.chmod(0o777)
    state.make_folders()
    folders = (state.kafka, state.schema_registry, state.airflow, state.logs, state.reports)
    assert [folder.stat().st_mode & 0o027 for folder in folders] == [0, 0, 0, 0, 0]
