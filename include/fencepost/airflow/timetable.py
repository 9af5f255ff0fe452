"""A timetable with cron intervals that touch and never overlap, and without manual runs.

Airflow's own intervals may overlap where clocks change by half an hour. `config/cron.py` says where these intervals
begin and end.

A manual run has no interval. Or it takes the interval before its logical date, which belongs to a scheduled run or a
backfill. `allowed_run_types` would refuse manual runs too, but then Airflow 3.3's UI disables the button that opens the
form for backfills.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Never

from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.utils.types import DagRunType
from pendulum import instance

from fencepost.config.cron import Cron

if TYPE_CHECKING:
    from airflow.timetables.base import DataInterval
    from pendulum import DateTime

NO_MANUAL_RUNS = (
    "Fencepost's DAGs take no manual runs, because a manual run has no data interval of its own. Choose Backfill "
    "in the same form, with the interval's start in both fields. Outside Airflow's UI, use `fencepost try` instead "
    "of dag.test() to see what a batch would be, and `fencepost run` to run an interval."
)


class IntervalTimetable(CronDataIntervalTimetable):
    """Airflow's timetable with the same boundaries as the commands. The timetable is serialized, so its arguments are
    the arguments of Airflow's timetable.

    For a manual run, Airflow calls the last two methods and answers with the error's text.

    `public` has the pipeline's settings for the pages, which read the serialized DAG without the folder
    (`config/public_settings.py`).
    """

    def __init__(self, cron: str, timezone: Any, public: Mapping[str, Any] | None = None) -> None:
        super().__init__(cron, timezone)
        self._cron = Cron(self._expression, self._timezone.name)
        self.public = public

    def serialize(self) -> dict[str, Any]:
        """Returns the cron and the time zone, with the pipeline's settings if the timetable carries them."""
        return {**super().serialize(), **({"pipeline": self.public} if self.public is not None else {})}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> IntervalTimetable:
        """Returns the timetable that was serialized."""
        made = super().deserialize(data)
        assert isinstance(made, cls)
        made.public = data.get("pipeline")
        return made

    def _get_next(self, current: DateTime) -> DateTime:
        return instance(self._cron.after(current))

    def _get_prev(self, current: DateTime) -> DateTime:
        return instance(self._cron.before(current))

    def _align_to_next(self, current: DateTime) -> DateTime:
        return instance(self._cron.at_or_after(current))

    def _align_to_prev(self, current: DateTime) -> DateTime:
        """Returns the start of the interval that follows an interval with this end.

        After a change of the cron it is the first boundary after that end. Airflow's own start would overlap the
        interval before.
        """
        return instance(self._cron.at_or_after(current))

    def infer_manual_data_interval(self, *, run_after: DateTime) -> Never:
        """Refuses a manual run.

        Raises:
            ValueError: always.
        """
        raise ValueError(NO_MANUAL_RUNS)

    def generate_run_id(
        self, *, run_type: DagRunType, run_after: DateTime, data_interval: DataInterval | None, **extra: Any
    ) -> str:
        """Returns Airflow's own run id, for a scheduled run or a backfill.

        Raises:
            ValueError: the run is manual.
        """
        if run_type == DagRunType.MANUAL:
            raise ValueError(NO_MANUAL_RUNS)
        return super().generate_run_id(run_type=run_type, run_after=run_after, data_interval=data_interval, **extra)
