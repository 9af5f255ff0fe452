"""The door to Spark: sessions, exact reads of Kafka, and the user's transform.

Only driver-side code; what runs in executors is in `write.py` and below.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.client_settings import java_settings
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.failures import HOW_TO_SEE, told
from fencepost.kafka import Settings
from fencepost.local.class_archive import java_options
from fencepost.local.state import State
from fencepost.model import BATCH_HEADER, Batch, OffsetRange, Written
from fencepost.settings import Pipeline

if TYPE_CHECKING:
    from types import ModuleType

PACKAGE = Path(__file__).resolve().parent
POLL_TIMEOUT_MS = 120_000
# Of what is fetched already, so memory does not grow; by default the connector asks anew for every 500 records.
MAX_POLL_RECORDS = 50_000
# The JVM's second compiler sets in after forty times as many calls and loops as it would: a job of few rows ends before that,
# and it takes a third of such a job's processor time; one of millions is there within a second or two *(measured)*.
LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=200000 -XX:Tier4MinInvocationThreshold=24000 "
    "-XX:Tier4CompileThreshold=600000 -XX:Tier4BackEdgeThreshold=1600000"
)


def connector_folder() -> Path:
    """The folder of the Kafka connector's jars, as set-up resolved them (or `FENCEPOST_SPARK_JARS`)."""
    folder = Path(os.environ.get("FENCEPOST_SPARK_JARS") or State.default().jars_spark)
    if not any(folder.glob("*.jar")):
        raise SettingsError(
            f"{folder}: the Kafka connector's jars are not there. Run `make setup`, or set FENCEPOST_SPARK_JARS."
        )
    return folder


def submit_conf(pipeline: Pipeline, master: str) -> dict[str, str]:
    """Spark settings of a pipeline's jobs on that master, with the pipeline's own on top. Holds no secret.

    The driver has the connector on its class path, where the archive of classes expects it; executors that are not in the
    driver are sent the jars.
    """
    folder = connector_folder()
    conf = {
        "spark.driver.extraClassPath": f"{folder}/*",
        "spark.driver.defaultJavaOptions": f"{LATE_COMPILER} {java_options(folder)}".strip(),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # The number of task-partitions is the plan's: nothing may merge or split them.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.session.timeZone": "UTC",
        # Kafka's login line holds the password; Spark shows options in plans and in its UI.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore|truststore",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark's ERROR lines give a failed task's error in full, and so quote records.
        "spark.log.level": "FATAL",
    }
    if master.startswith("local"):
        conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        # Spark's shuffle files hold records, and are readable by everybody.
        if "spark.local.dir" not in pipeline.spark:
            conf["spark.local.dir"] = str(private_folder())
    else:
        conf["spark.jars"] = ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
    own = dict(pipeline.spark)
    for name, between in (("spark.jars", ","), ("spark.driver.extraClassPath", ":")):
        if name in own and name in conf:  # more of them, not others in the connector's place
            conf[name] += between + own.pop(name)
    return conf | own


def private_folder() -> Path:
    """Where Spark puts its files on this machine: a folder of this user's, which nobody else may enter.

    Raises:
        NeedsOperator: somebody else made it.
    """
    folder = Path(tempfile.gettempdir()) / f"fencepost-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NeedsOperator(
            f"{folder}: Spark's files hold records, and this is not a folder of this user's alone. Remove it, or set "
            "spark.local.dir in the pipeline's spark settings."
        )
    return folder


def spark_master() -> str:
    """Where jobs of `fencepost run` run: `FENCEPOST_SPARK_MASTER`, or this machine."""
    return os.environ.get("FENCEPOST_SPARK_MASTER") or "local[*]"


def build_session(pipeline: Pipeline, step: str) -> SparkSession:
    """A session for one step. Under spark-submit its master and conf are taken as they are."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"fencepost {pipeline.name} {step}")
    if "SPARK_ENV_LOADED" not in os.environ:
        master = spark_master()
        builder = builder.master(master)
        for name, value in submit_conf(pipeline, master).items():
            builder = builder.config(name, value)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        else:
            builder = builder.config("spark.submit.pyFiles", str(package_zip()))
    session = builder.getOrCreate()
    for context in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # quote records as well, on stderr
        PySparkLogger.getLogger(context).disabled = True
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


def package_zip() -> Path:
    """The `fencepost` package as a zip for executors, named by its content and made once."""
    files = sorted(f for f in PACKAGE.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    digest = hashlib.sha256(b"".join(str(f).encode() + f.read_bytes() for f in files)).hexdigest()[:12]
    folder = State.default().root / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"fencepost-{digest}.zip"
    if not target.exists():
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part:
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in files:
                    archive.write(file, Path("fencepost") / file.relative_to(PACKAGE))
            Path(part.name).rename(target)
    return target


def read_ranges(
    spark: SparkSession, settings: Settings, topic: str, ranges: Sequence[OffsetRange], *, headers: bool
) -> DataFrame:
    """Exactly the records of these ranges, read_committed, one Spark partition per Kafka partition.

    Columns are the connector's: key, value (binary), topic, partition, offset, timestamp, and headers when asked for.
    """
    reader = (
        spark.read.format("kafka")
        .options(**{f"kafka.{k}": v for k, v in java_settings(settings.common()).items()})
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.max.poll.records", str(MAX_POLL_RECORDS))
        .option("assign", json.dumps({topic: [r.partition for r in ranges]}))
        .option("startingOffsets", json.dumps({topic: {str(r.partition): r.start for r in ranges}}))
        .option("endingOffsets", json.dumps({topic: {str(r.partition): r.end for r in ranges}}))
        .option("failOnDataLoss", "true")
        .option("kafkaConsumer.pollTimeoutMs", str(POLL_TIMEOUT_MS))
    )
    return reader.option("includeHeaders", str(headers).lower()).load()


def read_batch(spark: SparkSession, settings: Settings, batch: Batch, written: Written) -> DataFrame:
    """The records with this batch's header between the output's ends at planning and at the end of writing.

    Others may have written in between; a pipeline without the header has the range to itself. Columns: key, value
    (binary), topic, partition, offset.
    """
    raw = read_ranges(
        spark, settings, batch.plan.output_topic, batch.output_ranges(written), headers=batch.plan.batch_header
    )
    if batch.plan.batch_header:
        # Not `exists`: Spark interprets a lambda for every row, and generates code for this.
        own = F.struct(F.lit(BATCH_HEADER).alias("key"), F.lit(str(batch.id)).cast("binary").alias("value"))
        raw = raw.where(F.array_contains("headers", own))
    return raw.select("key", "value", "topic", "partition", "offset")


def task_ranges(frame: DataFrame) -> list[OffsetRange] | None:
    """Which range of the source each task-partition of a frame reads, or None when it shuffles.

    Spark's Kafka RDD keeps one partition per range, empty ones too, through filters, projections and broadcast joins.
    """
    ranges = []
    for partition in frame._jdf.queryExecution().toRdd().partitions():
        if partition.getClass().getSimpleName() != "KafkaSourceRDDPartition":
            return None
        found = partition.offsetRange()
        ranges.append(
            OffsetRange(partition=found.topicPartition().partition(), start=found.fromOffset(), end=found.untilOffset())
        )
    return ranges


def load_transform(pipeline: Pipeline) -> ModuleType | None:
    """The pipeline's transform.py as a module whose functions travel to executors by value; None for transform.sql."""
    file = pipeline.transform_file
    if file.suffix == ".sql":
        return None
    spec = importlib.util.spec_from_file_location(f"fencepost_transform_{pipeline.name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SettingsError(f"{file}: cannot be imported: {type(error).__name__}: {error}.") from error
    if not callable(getattr(module, "transform", None)):
        raise SettingsError(f"{file}: expected a function transform(DataFrame) -> DataFrame, found none.")
    cloudpickle.register_pickle_by_value(module)
    return module


def transform(pipeline: Pipeline, frame: DataFrame) -> DataFrame:
    """The user's transform applied; transform.sql selects from the table `source`."""
    module = load_transform(pipeline)
    file = pipeline.transform_file
    try:
        if module is None:
            result = frame.sparkSession.sql(file.read_text(encoding="utf-8"), source=frame)
        else:
            result = module.transform(frame)
    except (PySparkException, Py4JError) as error:
        # What Spark says of columns and syntax is told; of a job the transform ran, only what kind of failure it was.
        analysed = isinstance(error, AnalysisException)
        raise SettingsError(f"{file}: failed: {error if analysed else told(error, pipeline.folder)}") from error
    except Exception as error:
        raise SettingsError(f"{file}: failed: {told(error, pipeline.folder)}. {HOW_TO_SEE}.") from error
    if not isinstance(result, DataFrame):
        raise SettingsError(f"{file}: transform returned {type(result).__name__}, expected a DataFrame.")
    return result


def value_schema(pipeline: Pipeline, frame: DataFrame) -> StructType:
    """Fields of the output's value: the columns of the transform's result that do not begin with `_`."""
    fields = [f for f in frame.schema.fields if not f.name.startswith("_")]
    if not fields:
        raise NeedsOperator(f"{pipeline.transform_file}: its result has no column for the output's value.")
    return StructType(fields)


def fingerprint_hash() -> str:
    """SQL for the 64-bit hash of a record's key and value; nulls and empty values differ."""
    return "xxhash64(key, value, CASE WHEN key IS NULL THEN 1 ELSE 0 END + CASE WHEN value IS NULL THEN 2 ELSE 0 END)"


def rows_and_fingerprint(frame: DataFrame) -> tuple[int, int]:
    """Count, and sum of the records' hashes modulo 2**64."""
    return count_and_sum(frame.select(F.expr(fingerprint_hash()).alias("hash")), "hash")


def count_and_sum(frame: DataFrame, hashes: str) -> tuple[int, int]:
    """Count, and sum of a column of hashes modulo 2**64. Halves are summed apart: a plain sum would overflow."""
    row = frame.agg(
        F.count("*").alias("rows"),
        F.sum(F.expr(f"{hashes} & 4294967295")).alias("low"),
        F.sum(F.expr(f"shiftrightunsigned({hashes}, 32)")).alias("high"),
    ).head()
    assert row is not None
    return int(row["rows"]), (int(row["low"] or 0) + (int(row["high"] or 0) << 32)) % 2**64
