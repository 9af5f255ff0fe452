"""Checks and merges the arguments that a team gives to all of its DAGs: arguments of the DAG, and default arguments of
its tasks.

Only arguments that decide nothing about batches are accepted. A team's callbacks run after Fencepost's own callbacks
and replace none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DAG_CALLBACKS = ("on_failure_callback", "on_success_callback")
TASK_CALLBACKS = (*DAG_CALLBACKS, "on_execute_callback", "on_retry_callback", "on_skipped_callback")
OF_DAGS = frozenset(
    """access_control dag_display_name dagrun_timeout is_paused_upon_creation max_active_tasks max_consecutive_failed_dag_runs
    owner_links tags""".split()
).union(DAG_CALLBACKS)
OF_TASKS = frozenset(
    """email email_on_failure email_on_retry executor executor_config max_retry_delay owner pool priority_weight queue
    retry_exponential_backoff run_as_user weight_rule""".split()
).union(TASK_CALLBACKS)
DECIDING_SETTINGS = {
    "retries": "schedule.retries",
    "retry_delay": "schedule.retry_delay_seconds",
    "execution_timeout": "schedule.timeout_minutes",
    "schedule": "schedule.cron",
    "start_date": "schedule.start",
    "end_date": "schedule.end",
    "catchup": "schedule.catchup",
    "max_active_runs": "lanes",
    "deadline": "schedule.deadline_minutes",
    "description": "description",
}


def check_arguments(dag_args: Mapping[str, Any], default_args: Mapping[str, Any]) -> None:
    """Checks the arguments that a team gives to its DAGs.

    Raises:
        ValueError: names an argument that is not accepted. It also names the setting in pipeline.yaml that decides it,
            or what is allowed.
    """
    for given, allowed, where in ((dag_args, OF_DAGS, "dag_args"), (default_args, OF_TASKS, "default_args")):
        for name in given:
            if name in allowed:
                continue
            if name in DECIDING_SETTINGS:
                raise ValueError(
                    f"build_dags: {where} has {name}, which is {DECIDING_SETTINGS[name]} in each pipeline.yaml."
                )
            raise ValueError(
                f"build_dags: {where} has {name}, which is not accepted, because the order and the meaning of "
                f"batches may depend on it. Allowed are {', '.join(sorted(allowed))}."
            )


def merged(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns Fencepost's arguments and the given arguments. Fencepost's take precedence. Callbacks and tags are
    joined, and Fencepost's come first.
    """
    both = {**given, **own}
    for name in (*TASK_CALLBACKS, "tags"):
        if name in own and name in given:
            both[name] = list(dict.fromkeys([*_listed(own[name]), *_listed(given[name])]))
    return both


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
