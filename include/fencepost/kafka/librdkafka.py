"""A producer for the write step's rows, on librdkafka's C interface.

confluent-kafka makes Python objects of every record, which costs more than librdkafka's own work. This producer passes
whole Arrow batches by address (`produce_arguments.py`). The producer calls only functions that rdkafka.h documents.
These functions are in the librdkafka that confluent-kafka includes, because an extension module makes the symbols of
its libraries visible. The first producer looks them up, so commands that only read work without them.

Every error is a KafkaException with a KafkaError, as in confluent-kafka. Only `poll` and `flush` serve callbacks, in
the caller's thread. Callbacks report failed deliveries, errors of the client, and its log.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from operator import length_hint
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition, cimpl, libversion, version

from fencepost.errors import NeedsOperator

PRODUCER = 0  # rd_kafka_type_t
CONF_OK = 0
ERROR_SIZE = 512  # bytes for an error's text


class _Message(Structure):
    """rd_kafka_message_t, with the fields of a delivery report that this module reads."""

    _fields_ = (("err", c_int), ("rkt", c_void_p), ("partition", c_int32))


class _TopicPartition(Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


_DELIVERED = CFUNCTYPE(None, c_void_p, POINTER(_Message), c_void_p)
_ERROR = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
_LOG = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)


class _Library:
    """The functions of one librdkafka, by their names without `rd_kafka_`. `version` is its number, as in rdkafka.h.

    Raises:
        OSError: the file cannot be loaded.
        AttributeError: functions are missing. The error has their names.
    """

    def __init__(self, file: str) -> None:
        # These wait for threads or brokers, so they let other Python threads run.
        waiting = ctypes.CDLL(file)
        # These return at once: letting other threads run would cost more than the call.
        at_once = ctypes.PyDLL(file)
        missing: list[str] = []

        def bound(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
            try:
                function = getattr(library, f"rd_kafka_{name}")
            except AttributeError:
                missing.append(f"rd_kafka_{name}")
                return None
            function.restype, function.argtypes = result, arguments
            return function

        self.version = bound(at_once, "version", c_int)
        self.conf_new = bound(at_once, "conf_new", c_void_p)
        self.conf_set = bound(at_once, "conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
        self.conf_destroy = bound(at_once, "conf_destroy", None, c_void_p)
        self.conf_set_delivered = bound(at_once, "conf_set_dr_msg_cb", None, c_void_p, _DELIVERED)
        self.conf_set_error = bound(at_once, "conf_set_error_cb", None, c_void_p, _ERROR)
        self.conf_set_log = bound(at_once, "conf_set_log_cb", None, c_void_p, _LOG)
        self.new = bound(waiting, "new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
        self.set_log_queue = bound(at_once, "set_log_queue", c_int, c_void_p, c_void_p)
        self.destroy = bound(waiting, "destroy", None, c_void_p)
        self.topic_new = bound(at_once, "topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
        self.topic_destroy = bound(at_once, "topic_destroy", None, c_void_p)
        self.topic_name = bound(at_once, "topic_name", c_char_p, c_void_p)
        self.last_error = bound(at_once, "last_error", c_int)
        self.poll = bound(waiting, "poll", c_int, c_void_p, c_int)
        self.flush = bound(waiting, "flush", c_int, c_void_p, c_int)
        self.queued = bound(at_once, "outq_len", c_int, c_void_p)
        self.metadata = bound(waiting, "metadata", c_int, c_void_p, c_int, c_void_p, c_void_p, c_int)
        self.metadata_destroy = bound(at_once, "metadata_destroy", None, c_void_p)
        self.produce = bound(at_once, "produceva", c_void_p, c_void_p, c_void_p, c_size_t)
        self.init = bound(waiting, "init_transactions", c_void_p, c_void_p, c_int)
        self.begin = bound(waiting, "begin_transaction", c_void_p, c_void_p)
        self.commit = bound(waiting, "commit_transaction", c_void_p, c_void_p, c_int)
        self.abort = bound(waiting, "abort_transaction", c_void_p, c_void_p, c_int)
        self.send_offsets = bound(waiting, "send_offsets_to_transaction", c_void_p, c_void_p, c_void_p, c_void_p, c_int)
        self.group_new = bound(at_once, "consumer_group_metadata_new", c_void_p, c_char_p)
        self.group_destroy = bound(at_once, "consumer_group_metadata_destroy", None, c_void_p)
        self.list_new = bound(at_once, "topic_partition_list_new", c_void_p, c_int)
        self.list_destroy = bound(at_once, "topic_partition_list_destroy", None, c_void_p)
        self.list_add = bound(
            at_once, "topic_partition_list_add", POINTER(_TopicPartition), c_void_p, c_char_p, c_int32
        )
        self.error_code = bound(at_once, "error_code", c_int, c_void_p)
        self.error_string = bound(at_once, "error_string", c_char_p, c_void_p)
        self.error_is_fatal = bound(at_once, "error_is_fatal", c_int, c_void_p)
        self.error_is_retriable = bound(at_once, "error_is_retriable", c_int, c_void_p)
        self.error_requires_abort = bound(at_once, "error_txn_requires_abort", c_int, c_void_p)
        self.error_destroy = bound(at_once, "error_destroy", None, c_void_p)
        self.malloc = ctypes.CDLL(None).malloc
        self.malloc.restype, self.malloc.argtypes = c_void_p, (c_size_t,)
        self.fatal_error = bound(at_once, "fatal_error", c_int, c_void_p, c_char_p, c_size_t)
        if missing:
            raise AttributeError(", ".join(missing))


@cache
def library() -> _Library:
    """Returns the librdkafka that confluent-kafka is linked with.

    Raises:
        NeedsOperator: the functions cannot be called from this process, or belong to another librdkafka.
    """
    theirs, number = libversion()
    client = f"librdkafka {theirs} of confluent-kafka {version()}"
    cure = (
        "Fencepost writes with the librdkafka inside confluent-kafka's own wheels: install the wheel of the version in "
        "requirements.txt (pip install --force-reinstall --only-binary=:all: confluent-kafka==...). Commands that only "
        "read work without it."
    )
    try:
        found = _Library(cimpl.__file__)
    except OSError as error:
        raise NeedsOperator(f"{client}: cannot be loaded: {error}. {cure}") from None
    except AttributeError as error:
        raise NeedsOperator(f"{client}: {cimpl.__file__} does not have these functions: {error}. {cure}") from None
    if found.version() != number:
        raise NeedsOperator(
            f"{client}: {cimpl.__file__} has another librdkafka, {found.version():#x} instead of {number:#x}. {cure}"
        )
    return found


@dataclass
class _Heard:
    """The reports of callbacks. The reports are separate from the producer, because the callbacks would otherwise keep
    the producer alive.
    """

    on_error: Callable[[KafkaError], None]
    logger: logging.Logger
    failed: KafkaError | None = None
    failed_topic: str = ""
    topics: dict[str, int] = field(default_factory=dict)

    def delivered(self, client: int, message: Any, opaque: int | None) -> None:
        """Keeps the error of the first record that could not be delivered. librdkafka calls this only for such records."""
        if self.failed is None:
            self.failed = _fatal(client) or KafkaError(message.contents.err)
            self.failed_topic = _text(library().topic_name(message.contents.rkt))

    def error(self, client: int, code: int, reason: bytes, opaque: int | None) -> None:
        self.on_error(_fatal(client) or KafkaError(code, _text(reason)))

    def log(self, client: int, level: int, facility: bytes, line: bytes) -> None:
        self.logger.log(logging.ERROR if level <= 3 else logging.INFO, "%s: %s", _text(facility), _text(line))


class Producer:
    """A librdkafka producer, which is destroyed with this object. Records that are not delivered by then are lost.

    `config` holds librdkafka's settings. `on_error` is called for errors that no call of this class returns. Times are in
    seconds.
    """

    def __init__(
        self, config: Mapping[str, Any], on_error: Callable[[KafkaError], None], logger: logging.Logger
    ) -> None:
        self._heard = _Heard(on_error, logger)
        callbacks = (_DELIVERED(self._heard.delivered), _ERROR(self._heard.error), _LOG(self._heard.log))
        conf = library().conf_new()
        text = ctypes.create_string_buffer(ERROR_SIZE)
        settings = {**config, "delivery.report.only.error": True, "log.queue": True}
        for name, value in settings.items():
            given = str(value).lower() if isinstance(value, bool) else str(value)
            if library().conf_set(conf, name.encode(), given.encode(), text, ERROR_SIZE) != CONF_OK:
                library().conf_destroy(conf)
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _text(text.value)))
        library().conf_set_delivered(conf, callbacks[0])
        library().conf_set_error(conf, callbacks[1])
        library().conf_set_log(conf, callbacks[2])
        self._client = library().new(PRODUCER, conf, text, ERROR_SIZE)
        if not self._client:
            library().conf_destroy(conf)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _text(text.value)))
        library().set_log_queue(self._client, None)  # poll serves the log too
        # At the interpreter's end the client ends with the process: destroying it could wait for brokers.
        weakref.finalize(self, _close, self._client, self._heard.topics, callbacks).atexit = False

    @property
    def failed(self) -> KafkaError | None:
        """Returns the error of the first record that could not be delivered, or None. Only callbacks that were served
        count.
        """
        return self._heard.failed

    @property
    def failed_topic(self) -> str:
        """Returns the topic of the first record that could not be delivered, or an empty text if there is none."""
        return self._heard.failed_topic

    def topic(self, name: str) -> int:
        """Returns the address of librdkafka's topic of that name."""
        topics = self._heard.topics
        if name not in topics:
            topics[name] = library().topic_new(self._client, name.encode(), None)
            if not topics[name]:
                del topics[name]
                raise KafkaException(KafkaError(library().last_error()))
        return topics[name]

    def enqueue(self, starts: Sequence[int], counts: Sequence[int]) -> int:
        """Enqueues records in order, and returns their number. The number is smaller than requested if the queue is
        full.

        `starts` has the address of each record's arguments (rd_kafka_vu_t), and `counts` their number. No Python code
        runs for a single record.
        """
        records = iter(starts)
        error = next(filter(None, map(library().produce, repeat(self._client), records, counts)), None)
        if error is None:
            return len(starts)
        taken = self._taken(error)
        if taken.code() != KafkaError._QUEUE_FULL:
            raise KafkaException(taken)
        return len(starts) - length_hint(records) - 1

    def queued(self) -> int:
        """Returns the number of records that wait to be sent or acknowledged, plus the number of callbacks that wait to
        be served.
        """
        return int(library().queued(self._client))

    def poll(self, timeout: float) -> None:
        """Serves callbacks. If there are no callbacks, the method waits at most `timeout` seconds for a callback."""
        library().poll(self._client, round(timeout * 1000))

    def flush(self, timeout: float) -> int:
        """Sends without delay, and serves callbacks until the queue is empty or the time is over. Returns the number of
        queued records.
        """
        library().flush(self._client, round(timeout * 1000))
        return self.queued()

    def init_transactions(self, timeout: float) -> None:
        """Fences older producers, as rdkafka.h describes. After a time-out this may be called again, like commit and
        abort.

        It first waits for an answer of any broker. While the first connection is being replaced, init finds no broker,
        and it tries again only half a second later *(measured: a third of all inits)*.
        """
        metadata = c_void_p()
        if library().metadata(self._client, 0, None, ctypes.byref(metadata), round(timeout * 1000)) == 0:
            library().metadata_destroy(metadata)
        self._check(library().init(self._client, round(timeout * 1000)))

    def begin_transaction(self) -> None:
        """Begins a transaction. All records that are produced afterwards belong to it."""
        self._check(library().begin(self._client))

    def send_offsets_to_transaction(self, offsets: Sequence[TopicPartition], group: str, timeout: float) -> None:
        """Commits a group's offsets with the transaction. The group has no members, so its generation is not checked."""
        places, metadata = library().list_new(len(offsets)), library().group_new(group.encode())
        try:
            for offset in offsets:
                _fill(library().list_add(places, offset.topic.encode(), offset.partition).contents, offset)
            self._check(library().send_offsets(self._client, places, metadata, round(timeout * 1000)))
        finally:
            library().list_destroy(places)
            library().group_destroy(metadata)

    def commit_transaction(self, timeout: float) -> None:
        """Delivers the queued records, then commits."""
        self._check(library().commit(self._client, round(timeout * 1000)))

    def abort_transaction(self, timeout: float) -> None:
        """Drops the queued records, then aborts."""
        self._check(library().abort(self._client, round(timeout * 1000)))

    def _check(self, error: int | None) -> None:
        if error is not None:
            raise KafkaException(self._taken(error))

    def _taken(self, error: int) -> KafkaError:
        """Returns the KafkaError for an rd_kafka_error_t, and destroys that. A fatal error of the client takes
        precedence.
        """
        try:
            return _fatal(self._client) or KafkaError(
                library().error_code(error),
                _text(library().error_string(error)),
                bool(library().error_is_fatal(error)),
                bool(library().error_is_retriable(error)),
                bool(library().error_requires_abort(error)),
            )
        finally:
            library().error_destroy(error)


def _close(client: int, topics: Mapping[str, int], callbacks: Iterable[object]) -> None:
    """Destroys a client. This function keeps the callbacks alive until then."""
    for topic in topics.values():
        library().topic_destroy(topic)
    library().destroy(client)


def _fill(element: _TopicPartition, given: TopicPartition) -> None:
    element.offset = given.offset
    if given.metadata is not None:
        # librdkafka copies `metadata_size` bytes and sends them up to a NUL, so the NUL has to be one of them.
        text = ctypes.create_string_buffer(given.metadata.encode())
        element.metadata, element.metadata_size = library().malloc(len(text)), len(text)  # the list frees it
        ctypes.memmove(element.metadata, text, len(text))


def _fatal(client: int) -> KafkaError | None:
    """Returns the error that ended the client for good, or None if it can go on."""
    text = ctypes.create_string_buffer(ERROR_SIZE)
    code = library().fatal_error(client, text, ERROR_SIZE)
    return KafkaError(code, _text(text.value), True) if code else None


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
