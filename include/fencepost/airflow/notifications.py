"""Sends events about a batch through Airflow's notifiers, as `notify` in `pipeline.yaml` says.

Each entry of `notify` gets an event once for each batch and validation. An event is noted in the state store of the
output's asset after it was sent. So a task that is killed in between may send the event twice, and no event is lost.
Once an interval is published or skipped, its notes are deleted, because Airflow never deletes any. A notifier that
fails or does not end in time is logged, and does not fail the task.
"""

from __future__ import annotations

import importlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from jinja2 import StrictUndefined, TemplateError
from pydantic import JsonValue

from fencepost.airflow.assets import output_asset
from fencepost.airflow.notified_event import NotifiedEvent
from fencepost.config.digest import digest
from fencepost.config.notify import Event, Notify
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.model import Interval, utc_now
from fencepost.spark.diagnosis import describe

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier, Context

log = logging.getLogger("fencepost.notify")

LIMIT = 10.0  # seconds for all notifiers of one event, which run side by side
BAD: frozenset[Event] = frozenset({"rejected", "failed", "late", "awaiting"})  # an interval can recover from these


class Notes(Protocol):
    """Values that are kept between tasks and runs, by key."""

    def get(self, key: str) -> JsonValue:
        """Returns the value, or None if there is none."""

    def set(self, key: str, value: JsonValue) -> None:
        """Stores the value."""

    def delete(self, key: str) -> None:
        """Deletes the value."""


class NoNotes:
    """Used when Airflow gives a callback no state store."""

    def get(self, key: str) -> JsonValue:
        """Returns None, because there is no value."""

    def set(self, key: str, value: JsonValue) -> None:
        """Stores nothing."""

    def delete(self, key: str) -> None:
        """Deletes nothing."""


@dataclass(frozen=True)
class Recipients:
    """What a notification needs to know about a pipeline: its name, its output's name, and the entries of `notify`."""

    name: str
    output: str
    notify: tuple[Notify, ...]

    @classmethod
    def of(cls, pipeline: Pipeline) -> Self:
        """Returns the recipients of a pipeline that can be read."""
        return cls(pipeline.name, pipeline.output.name, pipeline.notify)


def notes_outside_of_tasks(recipients: Recipients) -> Notes:
    """Returns the notes of `notes_of` for a callback in the triggerer, whose context has no stores."""
    from airflow.sdk.execution_time.context import AssetStateStoreAccessor

    notes: Notes = AssetStateStoreAccessor(name=output_asset(recipients.name, recipients.output).name)
    return notes


def notes_of(context: Context | Mapping[str, Any], pipeline: Pipeline) -> Notes:
    """Returns the state store of the output's asset. The asset is an inlet of every task of a pipeline with `notify`."""
    stores: Any = context.get("asset_state_store")
    notes: Notes = stores[output_asset(pipeline.name, pipeline.output.name)] if stores is not None else NoNotes()
    return notes


@dataclass(frozen=True)
class NotifierResult:
    """The result for one entry. `error` is empty if the notifier sent the event."""

    entry: Notify
    error: str = ""


def tell(
    context: Context | Mapping[str, Any], pipeline: Pipeline | Recipients, happened: NotifiedEvent, notes: Notes
) -> list[NotifierResult]:
    """Sends the event through each entry that names the event and has not sent it. It raises no error."""
    try:
        return _tell(context, pipeline, happened, notes)
    except Exception as error:
        log.warning("pipeline %s: %s was not sent: %s", pipeline.name, happened.event, describe(error))
        return []


def tell_recovered(
    context: Context | Mapping[str, Any], pipeline: Pipeline | Recipients, happened: NotifiedEvent, notes: Notes
) -> list[NotifierResult]:
    """Sends that an interval is published or skipped, if a problem of the interval was sent before. Deletes the
    interval's notes. It raises no error.
    """
    sent: list[NotifierResult] = []
    is_wanted = any(happened.event in entry.on for entry in pipeline.notify)
    if is_wanted and _noted(notes, _trouble(happened.interval)) is not None:
        # Somebody was notified of the problem, so the end is sent too, even if a backfill brought it.
        sent = tell(context, pipeline, replace(happened, ends_trouble=True), notes)
    if all(not one.error for one in sent):
        for key in (_trouble(happened.interval), _sent(happened.interval)):
            _note(notes.delete, key)
    return sent


def _tell(
    context: Context | Mapping[str, Any], pipeline: Pipeline | Recipients, happened: NotifiedEvent, notes: Notes
) -> list[NotifierResult]:
    wanted = {_key(entry, happened): entry for entry in _wanting(pipeline, happened)}
    known = _sent_before(notes, happened.interval) if wanted else {}
    new = {key: entry for key, entry in wanted.items() if key not in known}
    sent = send(context, tuple(new.values()), happened)
    sent_now: dict[str, JsonValue] = {}
    for key, one in zip(new, sent, strict=True):
        if one.error:
            log.warning(
                "pipeline %s: %s did not send %s: %s", pipeline.name, one.entry.notifier, happened.event, one.error
            )
        else:
            log.info("pipeline %s: sent %s through %s", pipeline.name, happened.event, one.entry.notifier)
            sent_now[key] = utc_now().isoformat()
    if sent_now:  # merged with what another process has noted meanwhile, such as the triggerer
        _note(notes.set, _sent(happened.interval), _sent_before(notes, happened.interval) | sent_now)
    if sent_now and happened.event in BAD:
        _note(notes.set, _trouble(happened.interval), happened.event)
    return sent


def _wanting(pipeline: Pipeline | Recipients, happened: NotifiedEvent) -> list[Notify]:
    is_backfill = happened.run.type == "backfill"
    is_wanted = happened.ends_trouble or not is_backfill
    found = [entry for entry in pipeline.notify if happened.event in entry.on and (entry.backfills or is_wanted)]
    if happened.event == "quarantined":
        return [entry for entry in found if happened.facts.in_quarantine > entry.above]
    return found


def send(
    context: Context | Mapping[str, Any], entries: Sequence[Notify], happened: NotifiedEvent
) -> list[NotifierResult]:
    """Runs the notifiers in parallel, each in its own thread. It waits at most `LIMIT` seconds.

    A thread that has not ended by then is abandoned, and ends with the process.
    """
    from airflow.sdk.exceptions import AirflowNotFoundException

    values = happened.for_templates()
    errors = [f"did not end within {LIMIT:g} seconds"] * len(entries)

    def run(position: int) -> None:
        try:
            _send(dict(context), entries[position], values)
            errors[position] = ""
        except (SettingsError, AirflowNotFoundException) as error:
            errors[position] = str(error)
        except Exception as error:  # the error's text may quote an address with a token
            errors[position] = describe(error)

    threads = [
        threading.Thread(target=run, args=(position,), daemon=True, name=f"notify-{position}")
        for position in range(len(entries))
    ]
    until = time.monotonic() + LIMIT
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    return [NotifierResult(entry, error) for entry, error in zip(entries, tuple(errors), strict=True)]


def _send(context: dict[str, Any], entry: Notify, values: Mapping[str, Any]) -> None:
    """Renders and runs a new notifier. The notifier is new because rendering changes a notifier in place.

    The notifier is not called directly, because a call logs the error's message, which may quote an address with a
    token.
    """
    notifier = notifier_of(entry)
    context["fencepost"] = json.loads(json.dumps(values))
    known = cast("Context", context)
    environment = notifier.get_template_env(dag=known.get("dag"))
    environment.undefined = StrictUndefined  # as in a DAG: a misspelt name is an error, and not an empty text
    try:
        notifier.render_template_fields(known, environment)
    except TemplateError as error:
        raise SettingsError(f"notify.kwargs: a template of {entry.notifier} cannot be rendered: {error}") from None
    notifier.notify(known)


def notifier_of(entry: Notify) -> BaseNotifier:
    """Returns a new notifier of that entry.

    Raises:
        SettingsError: there is no such class, the class is no notifier, or it does not accept these arguments.
    """
    from airflow.sdk import BaseNotifier

    module, _, name = entry.notifier.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise SettingsError(
            f"notify.notifier: {entry.notifier} cannot be imported here. Install the provider that has it, or correct the path."
        ) from None
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise SettingsError(
            f"notify.notifier: {entry.notifier} is not an Airflow notifier, that is, a subclass of BaseNotifier."
        )
    try:
        return kind(**json.loads(json.dumps(entry.kwargs)))
    except TypeError as error:
        raise SettingsError(f"notify.kwargs: {entry.notifier} does not accept them: {error}.") from None


def _key(entry: Notify, happened: NotifiedEvent) -> str:
    """Returns the key of an event of a batch for one entry. If the entry changes, the key changes."""
    which = digest([entry.notifier, entry.kwargs])[:16]
    return f"{happened.event} {happened.subject} {which}"


def _sent(interval: Interval) -> str:
    return f"fencepost sent {interval}"


def _sent_before(notes: Notes, interval: Interval) -> dict[str, JsonValue]:
    """Returns when each event of the interval was sent to each entry."""
    found = _noted(notes, _sent(interval))
    return dict(found) if isinstance(found, dict) else {}


def _trouble(interval: Interval) -> str:
    return f"fencepost trouble {interval}"


def _noted(notes: Notes, key: str) -> JsonValue:
    """Returns the noted value. Returns None if there is none, or if the store cannot be read: sending an event twice is
    better than never sending it.
    """
    try:
        return notes.get(key)
    except Exception as error:
        log.warning("the state store of the output's asset could not be read: %s", describe(error))
        return None


def _note(act: Callable[..., None], *args: Any) -> None:
    try:
        act(*args)
    except Exception as error:
        log.warning("the state store of the output's asset could not be written: %s", describe(error))
