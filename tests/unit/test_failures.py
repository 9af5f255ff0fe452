"""What an error's text tells of its kind and place, whatever stands in the records that it quotes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fencepost.errors import BatchRejected, FencepostError, KafkaUnavailable, Retriable, TransformFailed, Unexpected
from fencepost.spark.diagnosis import carry, describe, find_carried, is_the_transforms, unexpected
from fencepost.steps import jobs

FOLDER = Path("/pipelines/orders")
OWN = '  File "/pipelines/orders/transform.py", line 6, in parse\n    int(text)\n    ~~~^^^^^^\n'
LIBRARY = '  File "/usr/lib/python3/json/decoder.py", line 9, in decode\n    fail()\n'
WORKER = '  File "/x/pyspark/worker.py", line 1830, in main\n    process()\n'
WRITER = '  File "/x/fencepost/rows/writer.py", line 20, in _answer\n    write()\n'
DECODER = '  File "/tmp/x/fencepost.zip/fencepost/formats/json_decoder.py", line 9, in decode\n    scan()\n'
NEAR = '  File "/home/ann/fencepost/.venv/lib/spark/writer.py", line 9, in apply\n    fail()\n'  # somebody's, below such a folder
HEAD = "An exception was thrown from the Python worker. Please see the stack trace below.\nTraceback (most recent call last):\n"


LOST_TASK = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 1.0 (TID 7) (10.0.0.1 executor 1): "
)


@pytest.mark.parametrize(
    ("text", "words", "own"),
    [
        (f"{HEAD}{WORKER}{OWN}ValueError: secret", "ValueError in transform.py, line 6", True),
        (f"{HEAD}{WORKER}{OWN}{LIBRARY}json.JSONDecodeError: secret", "JSONDecodeError in transform.py, line 6", True),
        (f"{HEAD}{WORKER}{OWN}fencepost_transform_orders.Boom: secret", "Boom in transform.py, line 6", True),
        (f"{HEAD}{WORKER}{OWN}fencepost_transform_orders.Stop\n", "Stop in transform.py, line 6", True),
        (f"{HEAD}{WORKER}{OWN}SystemExit: secret", "SystemExit in transform.py, line 6", True),
        (f"{HEAD}{WORKER}{OWN}ConnectionResetError: secret", "ConnectionResetError in transform.py, line 6", True),
        (f"{HEAD}{WORKER}pyarrow.lib.ArrowTypeError: secret", "ArrowTypeError in worker.py, line 1830", True),
        (f"{HEAD}{WORKER}EOFError\n", "EOFError in worker.py, line 1830", False),
        (f"{HEAD}{WORKER}MemoryError: secret", "MemoryError in worker.py, line 1830", False),
        (f"{HEAD}{WORKER}{WRITER}RuntimeError: secret", "RuntimeError in writer.py, line 20", False),
        (f"{HEAD}{WORKER}{DECODER}{LIBRARY}ValueError: secret", "ValueError in decoder.py, line 9", False),
        (f"{HEAD}{WORKER}{NEAR}ValueError: secret", "ValueError in writer.py, line 9", True),
        ("[CAST_INVALID_INPUT] The value 'secret' cannot be cast. SQLSTATE: 22018", "CAST_INVALID_INPUT", True),
        ("[USER_RAISED_EXCEPTION] secret SQLSTATE: P0001", "USER_RAISED_EXCEPTION", True),
        ("[KAFKA_DATA_LOSS.X] Some data may have been lost. SQLSTATE: 22000", "KAFKA_DATA_LOSS.X", False),
        ("[UNABLE_TO_ACQUIRE_MEMORY] secret SQLSTATE: 53200", "UNABLE_TO_ACQUIRE_MEMORY", False),
        (
            LOST_TASK + "ExecutorLostFailure (executor 1 exited) Reason: OOM\n" + HEAD + OWN + "E: x",
            "ExecutorLost",
            False,
        ),
        (
            f"{LOST_TASK}java.lang.StackOverflowError\n\tat java.base/java.util.regex.Pattern$Loop.match(Pattern.java:1)",
            "java.lang.StackOverflowError in a regex, on a long text",
            True,
        ),
        (
            f"An error occurred while calling o1.x.\n: org.apache.spark.SparkException: {LOST_TASK}java.lang.OutOfMemoryError: x",
            "java.lang.OutOfMemoryError: set spark.driver.memory, or spark.executor.memory on a cluster, under spark: in "
            "pipeline.yaml",
            False,
        ),
        ("[CAST_INVALID_INPUT] java.lang.StackOverflowError SQLSTATE: 22018", "CAST_INVALID_INPUT", True),
        ("Job aborted.\nCaused by: java.lang.OutOfMemoryError", "java.lang.OutOfMemoryError", False),
    ],
)
def test_an_error_is_told_by_kind_and_place_and_the_transforms_own_are_known(text: str, words: str, own: bool) -> None:
    said = describe(RuntimeError(text), FOLDER)
    assert words in said
    assert "secret" not in said
    assert is_the_transforms(RuntimeError(text), FOLDER) is own


@pytest.mark.parametrize("name", ["spark", "json", "pyspark"])
def test_a_pipeline_may_have_the_name_of_a_librarys_folder(name: str) -> None:
    error = RuntimeError(f"{HEAD}{WORKER}{WRITER}{LIBRARY}ValueError: secret")
    assert describe(error, Path("/pipelines") / name) == "ValueError in decoder.py, line 9"
    assert not is_the_transforms(error, Path("/pipelines") / name)


@pytest.mark.parametrize(
    "record",
    [
        "\nfencepost.errors.BatchRejected: secret\n",
        '\nTraceback (most recent call last):\n  File "/secret/orders/secret.py", line 1, in x\nSecretError: secret\n',
        "\n[SECRET] secret SQLSTATE: 53200\nCaused by: secret.secret",
        "\nExecutorLostFailure (executor 1 exited) Reason: secret",
        f"\n{LOST_TASK}ExecutorLostFailure (executor 1 exited) Reason: secret",
    ],
)
def test_a_record_cannot_forge_what_is_told(record: str) -> None:
    error = RuntimeError(
        f"{LOST_TASK}org.apache.spark.api.python.PythonException: {HEAD}{WORKER}{OWN}ValueError: {record}"
    )
    assert describe(error, FOLDER) == "ValueError in transform.py, line 6"
    assert is_the_transforms(error, FOLDER)
    assert find_carried(str(error), "0123456789abcdef") is None


@pytest.mark.parametrize(
    "head",
    [
        "java.lang.IllegalStateException: ",
        "An error occurred while calling o1.collect.\n: java.lang.IllegalStateException: ",
        f"{LOST_TASK}java.lang.IllegalStateException: ",
        "[INTERNAL_ERROR] ",
    ],
)
@pytest.mark.parametrize("record", ["[SECRET]", "x [SECRET.VALUE] SQLSTATE: 22018", "\n[SECRET] x"])
def test_a_record_in_brackets_is_no_condition_of_sparks(head: str, record: str) -> None:
    error = RuntimeError(f"{head}key '{record}\n\tat a.B.c(B.java:1)\nCaused by: java.io.IOException: {record}")
    assert describe(error, FOLDER) == "java.io.IOException"


@pytest.mark.parametrize(
    "head",
    [
        "",
        "org.apache.spark.SparkArithmeticException: ",
        "An error occurred while calling o1.collect.\n: org.apache.spark.SparkArithmeticException: ",
        f"{LOST_TASK}org.apache.spark.SparkArithmeticException: ",
        f"An error occurred while calling o1.x.\n: org.apache.spark.SparkException: {LOST_TASK}a.B: ",
        "An error occurred while calling o1.toRdd.\n: java.util.concurrent.ExecutionException: "
        "org.apache.spark.SparkArithmeticException: ",
    ],
)
def test_sparks_condition_is_told_where_spark_puts_it(head: str) -> None:
    assert describe(RuntimeError(f"{head}[DIVIDE_BY_ZERO] Division by [SECRET]. SQLSTATE: 22012")) == "DIVIDE_BY_ZERO"


@pytest.mark.parametrize("raised", [KafkaUnavailable('a "quoted" line\nand another'), BatchRejected("no")])
def test_an_error_raised_on_purpose_travels_whole_through_sparks_text(raised: FencepostError) -> None:
    text = f"{HEAD}{WRITER}RuntimeError: {carry(raised, '5ec4e7')}\n\n\tat org.apache.spark.api.python.X"
    found = find_carried(text, "5ec4e7")
    assert (type(found), str(found)) == (type(raised), str(raised))
    assert find_carried(text, "another") is None
    assert find_carried(text, "") is None


@pytest.mark.parametrize(
    "mistake",
    [
        *(TypeError("secret"), KeyError("secret"), AssertionError("secret"), ValueError("secret")),
        *(RecursionError("secret"), NotImplementedError("secret")),
    ],
)
def test_a_defect_is_no_reason_to_run_again(mistake: Exception) -> None:
    found = unexpected(mistake, "write")
    assert type(found) is Unexpected
    assert str(found).startswith("defect in Fencepost in write: ")
    assert "report it" in str(found)
    assert "secret" not in str(found)


@pytest.mark.parametrize("trouble", [OSError("secret"), MemoryError("secret"), RuntimeError("secret")])
def test_what_may_be_the_machines_fault_is_run_again(trouble: Exception) -> None:
    found = unexpected(trouble)
    assert isinstance(found, Retriable)
    assert str(found).startswith("unexpected error: ")
    assert "run again" in str(found)
    assert "secret" not in str(found)


def test_a_failing_transform_is_terminal() -> None:
    assert TransformFailed.exit_code == 4


@pytest.mark.parametrize(("level", "shown"), [("WARNING", False), ("INFO", False), ("DEBUG", True)])
def test_clients_speak_for_themselves_only_to_who_asks(level: str, shown: bool) -> None:
    """librdkafka's line for every refused connection, py4j's traceback for every call to a dead JVM, and what Great
    Expectations tells of its own import."""
    names = ("fencepost", "fencepost.kafka.librdkafka", "py4j", "great_expectations")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers[1:]:
            logger.setLevel(logging.CRITICAL if logger.name.startswith("fencepost") else logging.NOTSET)
        jobs.start_log(level)
        assert [logger.isEnabledFor(logging.ERROR) for logger in loggers[1:3]] == [shown, shown]
        assert loggers[3].isEnabledFor(logging.WARNING)
        assert not loggers[3].isEnabledFor(logging.INFO) or shown
    finally:
        for logger, number in zip(loggers, before, strict=True):
            logger.setLevel(number)
