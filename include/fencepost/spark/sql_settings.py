"""Fixes the SQL settings of a session, so that a value is read and written in one way only.

A setting that may change a value has Spark's own default, unless Fencepost pins it or the pipeline chooses it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from fencepost.config.pipeline import Pipeline
from fencepost.config.spark_options import DOCUMENTED, OF_TRANSFORM, SQL, is_harmless, settings_of_values
from fencepost.errors import SettingsError

log = logging.getLogger("fencepost.spark.sql_settings")
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def pin_settings(session: SparkSession, pipeline: Pipeline) -> None:
    """Gives the session the pinned settings and the pipeline's. The settings replace what a `spark-defaults.conf`, the
    environment or other code has set.

    Raises:
        SettingsError: Spark does not accept a value of the pipeline.
    """
    wanted = settings_of_values(pipeline.spark)
    try:
        found = _values(session)
        _set(session, wanted, found)
    except IllegalArgumentException:
        raise SettingsError(
            f"{pipeline.written_in}: spark: Spark does not accept a value of {', '.join(OF_TRANSFORM)}. Correct it."
        ) from None
    if foreign := sorted(found.keys() - wanted.keys()):
        log.warning("ignored, because it is set outside of pipeline.yaml: %s", ", ".join(foreign))


def copy_settings(session: SparkSession, other: SparkSession) -> None:
    """Gives `other` those settings of this session that a pipeline pins or chooses."""
    for name in settings_of_values({}):
        other.conf.set(name, str(session.conf.get(name)))


def set_shuffle_partitions(session: SparkSession, pipeline: Pipeline, partitions: int) -> None:
    """Gives the transform's own shuffles this number of partitions, unless a setting of the pipeline or of Spark has a
    number.
    """
    if SHUFFLE_PARTITIONS in pipeline.spark or session.sparkContext.getConf().contains(SHUFFLE_PARTITIONS):
        return
    session.conf.set(SHUFFLE_PARTITIONS, str(partitions))


def check_settings(session: SparkSession, pipeline: Pipeline) -> None:
    """Checks that the session still has the pinned settings and the pipeline's.

    Raises:
        SettingsError: names the settings that the transform has changed. The changed settings are reset in the session.
    """
    _compare(session, pipeline, settings_of_values(pipeline.spark))


@contextmanager
def set_for_now(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets settings of the session in the block. The session may be a user's, so they have their old values afterwards."""
    before = {name: str(session.conf.get(name)) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)


@contextmanager
def settings_kept(session: SparkSession, pipeline: Pipeline) -> Iterator[None]:
    """Checks that the transform, which runs in the block, does not change the pinned settings and the pipeline's. If
    the block raises an error, the settings are reset.
    """
    before = _values(session)
    try:
        yield
    except BaseException:
        with suppress(Exception):  # a JVM that died
            _set(session, before, _values(session))
        raise
    _compare(session, pipeline, before)


def _compare(session: SparkSession, pipeline: Pipeline, before: Mapping[str, str]) -> None:
    found = _values(session)
    if changed := sorted(name for name in {**before, **found} if _differ(before.get(name), found.get(name))):
        _set(session, before, found)
        own = " Set it under spark: in pipeline.yaml." if OF_TRANSFORM.keys() & set(changed) else ""
        raise SettingsError(
            f"{pipeline.transform_file}: it sets {', '.join(changed)}, which may change values that are read or written.{own} "
            f"{DOCUMENTED}. In the transform use an option of the reader, or a function."
        )


def _set(session: SparkSession, wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    for name in found.keys() - wanted.keys():
        session.conf.unset(name)
    for name, value in wanted.items():
        if _differ(value, found.get(name)):
            session.conf.set(name, value)


def _differ(one: str | None, other: str | None) -> bool:
    return (one and one.lower()) != (other and other.lower())


def _values(session: SparkSession) -> dict[str, str]:
    """Returns the pinned settings, the settings of transforms, and every other setting that may change a value and
    differs from Spark's default.

    Static settings are left out, because they hold for the whole JVM and no transform can set them.
    """
    entries = getattr(getattr(session._jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$")  # type: ignore[union-attr]
    found = {name: str(session.conf.get(name)) for name in settings_of_values({})}
    for name, value in session.conf.getAll.items():
        if not name.startswith(SQL) or name in found or is_harmless(name) or entries.isStaticConfigKey(name):
            continue
        entry = entries.getConfigEntry(name)  # without alternative names of the same setting
        if entry is None or _differ(entry.defaultValueString(), value):
            found[name] = value
    return found
