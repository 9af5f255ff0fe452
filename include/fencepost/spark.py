"""The door to Spark: sessions, exact reads of Kafka, and the user's transform.

Only driver-side code; what runs in executors is in `write.py` and below.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import ModuleType

import pyspark
from pyspark import SparkConf, SparkContext, cloudpickle
from pyspark.accumulators import AccumulatorServer
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.client_settings import java_settings
from fencepost.errors import DriverDied, NeedsOperator, SettingsError
from fencepost.failures import HOW_TO_SEE, told
from fencepost.kafka import Settings
from fencepost.local.class_archive import java_options
from fencepost.local.state import State
from fencepost.model import BATCH_HEADER, Batch, OffsetRange
from fencepost.settings import Pipeline

log = logging.getLogger("fencepost.spark")

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
LOG_SETTINGS = f'"-Dlog4j2.configurationFile={PACKAGE / "log4j2.properties"}"'
# What every start of Spark says on stderr, whatever the settings.
IDLE_WORDS = (b"WARNING: Using incubator modules: jdk.incubator.vector", b"NOTE: Picked up JDK_JAVA_OPTIONS:")


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
        "spark.driver.defaultJavaOptions": f"{LATE_COMPILER} {LOG_SETTINGS} {java_options(folder)}".strip(),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # The number of task-partitions is the plan's: nothing may merge or split them.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",  # ten thousand records may be gigabytes
        "spark.sql.session.timeZone": "UTC",
        # Kafka's login line holds the password; Spark shows options in plans and in its UI.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore|truststore",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
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


def local_dirs(conf: Mapping[str, str], master: str) -> dict[str, str]:
    """Variables that let `spark.local.dir` hold for Spark's JVM on this machine, where `SPARK_LOCAL_DIRS` would outweigh it.

    On a cluster the folders are the workers' own.
    """
    here = master.startswith("local") and "spark.local.dir" in conf
    return {"SPARK_LOCAL_DIRS": conf["spark.local.dir"]} if here else {}


def check_java() -> None:
    """There is a Java for Spark's driver: JAVA_HOME's, or one on PATH. A `spark-env.sh` may name another.

    Raises:
        SettingsError: there is none, and a retry finds none either.
    """
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java"):
        return
    spark = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    if (Path(os.environ.get("SPARK_CONF_DIR") or f"{spark}/conf") / "spark-env.sh").exists():
        return
    where = f"in JAVA_HOME, which is {home}" if home else "on PATH, and JAVA_HOME is not set"
    raise SettingsError(
        f"Spark needs Java 17 or newer: there is no java {where}. Install it, or set JAVA_HOME to its folder where this step "
        "runs; then run again."
    )


def spark_master() -> str:
    """Where jobs of `fencepost run` run: `FENCEPOST_SPARK_MASTER`, or this machine."""
    return os.environ.get("FENCEPOST_SPARK_MASTER") or "local[*]"


def build_session(pipeline: Pipeline, step: str) -> SparkSession:
    """A session for one step. Under spark-submit its master and conf are taken as they are."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"fencepost {pipeline.name} {step}")
    if "SPARK_ENV_LOADED" not in os.environ:
        master = spark_master()
        check_java()
        conf = {"spark.master": master, **submit_conf(pipeline, master)}
        os.environ.update(local_dirs(conf, master))
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        else:
            conf["spark.submit.pyFiles"] = str(package_zip())
        for name, value in conf.items():
            builder = builder.config(name, value)
        _start_jvm(conf)
    # It prints a traceback on stderr where the JVM died.
    setattr(AccumulatorServer, "handle_error", _log_broken_connection)  # noqa: B010
    session = builder.getOrCreate()
    for context in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # quote records as well, on stderr
        PySparkLogger.getLogger(context).disabled = True
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


def _log_broken_connection(server: object, request: object, client: object) -> None:
    log.debug("the JVM's connection to %s broke", type(server).__name__, exc_info=True)


def _start_jvm(conf: dict[str, str]) -> None:
    """Start Spark's JVM where none runs yet, without the words that it says at every start.

    Raises:
        DriverDied: it ended before it was up; why, it has said on stderr.
    """
    if SparkContext._gateway is not None:
        return
    words, its_stderr = os.pipe()
    passing = Thread(target=_pass_on, args=(words,), name="Spark's stderr", daemon=True)
    passing.start()
    try:
        gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(list(conf.items())), {"stderr": its_stderr})
    except PySparkRuntimeError as error:
        os.close(its_stderr)
        passing.join(5)
        raise DriverDied(
            "Spark's JVM could not be started; its own words stand above. Is it Java 17 or newer, is there memory enough, "
            "and do the spark: settings of pipeline.yaml hold? Then run again."
        ) from error
    os.close(its_stderr)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(words: int) -> None:
    """What the JVM says on stderr, but for what it says at every start. By descriptor: nothing is left locked at the end."""
    rest = b""
    while chunk := os.read(words, 65_536):
        *lines, rest = (rest + chunk).split(b"\n")
        _say(b"".join(line + b"\n" for line in lines if not line.startswith(IDLE_WORDS)))
    _say(rest)
    os.close(words)


def _say(text: bytes) -> None:
    """On stderr. Where nobody reads that any more, the JVM is read on: it would stand still at a full pipe."""
    with suppress(OSError):
        os.write(2, text)


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


def read_batch(spark: SparkSession, settings: Settings, batch: Batch, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The records with this batch's header in these ranges of its output topic; others may have written in between.

    Columns: key, value (binary), topic, partition, offset.
    """
    raw = read_ranges(spark, settings, batch.plan.output_topic, ranges, headers=True)
    # Not `exists`: Spark interprets a lambda for every row, and generates code for this.
    own = F.struct(F.lit(BATCH_HEADER).alias("key"), F.lit(str(batch.id)).cast("binary").alias("value"))
    return raw.where(F.array_contains("headers", own)).select("key", "value", "topic", "partition", "offset")


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
    """The pipeline's transform.py as a module whose functions travel to executors by value; None for transform.sql.

    Raises:
        SettingsError: it cannot be read or imported, or has no function `transform`.
    """
    file = pipeline.transform_file
    if file.suffix == ".sql":
        if not SQL_COMMENT.sub("", read_sql(file)).strip():
            raise SettingsError(f"{file}: empty; expected a SELECT from the table {{source}}.")
        return None
    module = ModuleType(f"fencepost_transform_{pipeline.name}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        # Not by an import: its cache knows a text by second and size, and is written into the pipeline's folder.
        exec(compile(_read(file), str(file), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except (KeyboardInterrupt, SettingsError):
        raise
    except BaseException as error:  # sys.exit too
        raise SettingsError(f"{file}: cannot be imported: {type(error).__name__}: {error}.") from error
    if not callable(getattr(module, "transform", None)):
        raise SettingsError(f"{file}: expected a function transform(DataFrame) -> DataFrame, found none.")
    cloudpickle.register_pickle_by_value(module)
    return module


def read_sql(file: Path) -> str:
    """The text of transform.sql."""
    try:
        return _read(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not UTF-8 at byte {error.start}. Save it as UTF-8.") from None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}.") from None


def transform(pipeline: Pipeline, frame: DataFrame) -> DataFrame:
    """The user's transform applied; transform.sql selects from the table `{source}`."""
    module = load_transform(pipeline)
    file = pipeline.transform_file
    try:
        result = select(read_sql(file), frame) if module is None else module.transform(frame)
    except AnalysisException as error:
        raise SettingsError(f"{file}: failed: {analysis_of(error)}") from error
    except (Exception, SystemExit) as error:  # of a job the transform ran, only what kind of failure it was
        raise SettingsError(f"{file}: failed: {told(error, pipeline.folder)}. {HOW_TO_SEE}.") from error
    if not isinstance(result, DataFrame):
        raise SettingsError(f"{file}: transform returned {type(result).__name__}, expected a DataFrame.")
    return result


SQL_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# What Spark reads as one piece, so that braces and names in it are data; and the name of the table.
SQL_PIECE = re.compile(
    r"""(?<!\w)[rR]'[^']*'|(?<!\w)[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|"""
    + SQL_COMMENT.pattern
    + r"|(?P<source>\{source\})",
    re.DOTALL,
)
SOURCE_VIEW = "_fencepost_source"


def select(text: str, frame: DataFrame) -> DataFrame:
    """The result of a SELECT from the table `{source}`, or plain `source`; other braces mean what they mean in Spark."""
    spark, views = frame.sparkSession, (SOURCE_VIEW, "source")
    for view in views:
        frame.createOrReplaceTempView(view)
    try:
        return spark.sql(SQL_PIECE.sub(lambda m: SOURCE_VIEW if m["source"] else m[0], text))
    finally:
        for view in views:
            spark.catalog.dropTempView(view)


def analysis_of(error: AnalysisException) -> str:
    """What Spark says of columns, types and syntax, with the place in the SQL; without its plan, which follows."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return said.rstrip(";.") + "."


@contextmanager
def analysed(pipeline: Pipeline) -> Iterator[None]:
    """Raises SettingsError where Spark cannot make records of a transform's result (two columns of one name, for example)."""
    try:
        yield
    except AnalysisException as error:
        raise SettingsError(f"{pipeline.transform_file}: its result cannot be written: {analysis_of(error)}") from error


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
