"""Declares the service Kafka: the librdkafka settings that a pipeline may set, and the settings that the protocol
fixes.

To allow another setting of librdkafka, add its name to one of the lists behind `SETTINGS`. A security setting also needs its
translation for Spark's reader, in `config/java_options.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from fencepost.config.java_options import LOGIN_MODULES, UNLOCKED
from fencepost.config.secret_names import NOT_BESIDE
from fencepost.config.services.connection import Connection, ConnectionSettings, Settings, extra_of, settings_without
from fencepost.config.services.service import Service, checked_by, declared
from fencepost.errors import SettingsError

# Settings that the protocol depends on, with the allowed values and what any other value would break.
FIXED_KAFKA = {
    "enable.idempotence": (("true",), "otherwise a retried send could be stored twice"),
    "acks": (("all", "-1"), "otherwise a committed record could be lost with one broker"),
    "request.required.acks": (("all", "-1"), "otherwise a committed record could be lost with one broker"),
    "enable.auto.commit": (("false",), "only the advance step moves offsets"),
    "enable.auto.offset.store": (("false",), "only the advance step moves offsets"),
    "enable.partition.eof": (("true",), "Fencepost needs it to detect the end of a partition"),
    "isolation.level": (("read_committed",), "otherwise aborted records would be read"),
    "enable.gapless.guarantee": (("false",), "it does not work with transactions"),
    "delivery.report.only.error": (("true",), "the writer expects reports of failures only"),
}
NATIVE = "it loads native code into every process that opens the pipeline, even Airflow's API server"
NO_MEMBER = "none of Fencepost's consumers joins its group"
OWN_KAFKA = {
    "transactional.id": "the protocol fixes it: <pipeline>.<lane>.<task-partition>",
    "group.id": "the protocol fixes the groups: <pipeline>, and <pipeline>. with a word such as validated or lane-<n>",
    "group.instance.id": NO_MEMBER,
    "heartbeat.interval.ms": NO_MEMBER,
    "max.poll.interval.ms": NO_MEMBER,
    "session.timeout.ms": NO_MEMBER,
    "auto.offset.reset": "ranges are frozen in the plan, so there is nothing to reset",
    "partitioner": "records are placed by murmur2_random, as Kafka's Java client does",
    "default.topic.config": "write its settings beside the others",
    "metadata.broker.list": "write bootstrap.servers",
    "allow.auto.create.topics": "a mistyped topic would be created",
    "debug": "librdkafka's debug lines are not shown, and would slow every client down",
    "test.mock.num.brokers": "it replaces bootstrap.servers by a cluster in memory",
    "plugin.library.paths": NATIVE,
    "ssl.engine.location": NATIVE,
    "ssl.engine.id": NATIVE,
    "ssl.providers": NATIVE,
    "sasl.kerberos.kinit.cmd": "it is a shell command, which would run in Airflow's API server too",
    # Its Kafka client asks Java for an algorithm named PBES2, which does not exist *(measured: Spark 4.0, Java 17)*.
    "ssl.key.password": f"Spark's reader cannot open a PEM key with a password; {UNLOCKED}",
}
WHOLE_NUMBERS = {
    "max.in.flight": (1, 5, "more could reorder a partition on a retry"),
    "max.in.flight.requests.per.connection": (1, 5, "more could reorder a partition on a retry"),
    "retries": (1, 2**31 - 1, "idempotence needs retries"),
    "message.send.max.retries": (1, 2**31 - 1, "idempotence needs retries"),
    "transaction.timeout.ms": (1000, 2**31 - 1, "it is a time in milliseconds"),
}

# Tuning for all clients of librdkafka, for its producers and for its consumers. Spark's reader gets none of it.
COMMON = frozenset(
    """api.version.request.timeout.ms broker.address.family broker.address.ttl client.id connections.max.idle.ms
    enable.metrics.push message.copy.max.bytes message.max.bytes metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy receive.message.max.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms socket.connection.setup.timeout.ms socket.keepalive.enable
    socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms""".split()
)
PRODUCER_ONLY = frozenset(
    """acks batch.num.messages batch.size compression.codec compression.level compression.type
    delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee enable.idempotence linger.ms max.in.flight
    max.in.flight.requests.per.connection message.send.max.retries message.timeout.ms
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms request.required.acks request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sticky.partitioning.linger.ms transaction.timeout.ms""".split()
)
CONSUMER_ONLY = frozenset(
    """check.crcs enable.auto.commit enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms
    fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms isolation.level
    max.partition.fetch.bytes queued.max.messages.kbytes queued.min.messages""".split()
)
TUNING = COMMON | PRODUCER_ONLY | CONSUMER_ONLY
# Settings that may stand beside a connection. They never include where the login is sent and which server is trusted;
# otherwise whoever writes the pipeline could obtain the connection's secret.
BESIDE_CONNECTION = TUNING.union(
    """client.rack sasl.mechanism sasl.mechanisms sasl.password sasl.username ssl.certificate.location ssl.certificate.pem
    ssl.key.location ssl.key.pem ssl.keystore.location ssl.keystore.password""".split()
)
SETTINGS = declared(
    shown=TUNING.union(("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.mechanisms")),
    private="""client.dns.lookup client.rack sasl.username ssl.ca.location ssl.endpoint.identification.algorithm""".split(),
    login_files="ssl.certificate.location ssl.key.location ssl.keystore.location".split(),
    secret="sasl.password ssl.ca.pem ssl.certificate.pem ssl.key.pem ssl.keystore.password".split(),
)
# Java requires the port. It ignores a protocol prefix, which librdkafka obeys.
BROKER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(%\w+)?\]):(\d{1,5})", re.ASCII)
SECURITY = ("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")
PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
OTHER_MECHANISMS = {
    "GSSAPI": "confluent-kafka's wheels are built without Kerberos",
    "OAUTHBEARER": "its settings have no translation for Spark's Kafka reader",
}
EXCLUSIVE = (
    ("acks", "request.required.acks"),
    ("compression.type", "compression.codec"),
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("fetch.message.max.bytes", "max.partition.fetch.bytes"),
    ("linger.ms", "queue.buffering.max.ms"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("retries", "message.send.max.retries"),
    ("sasl.mechanism", "sasl.mechanisms"),
    ("ssl.ca.location", "ssl.ca.pem"),
    ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location"),
    ("ssl.key.location", "ssl.key.pem", "ssl.keystore.location"),
)


def check_kafka(values: Mapping[str, str], *, whole: bool = True) -> None:
    """Refuses settings that are unknown, contradict the protocol, or would not reach Spark's reader. Opens no file.

    `whole` is false if a connection has the other settings. In that case the function does not check that a login or a
    certificate is complete, and it refuses settings that decide where the connection's secret is sent.

    Raises:
        ValueError: names the setting, the value and what is allowed. It never has a value that could be a secret.
    """
    for name, value in values.items():
        _check_name(name)
        if not whole and name not in BESIDE_CONNECTION:
            raise ValueError(f"{name} {NOT_BESIDE}")
        _check_protocol(name, value)
    for names in EXCLUSIVE:
        given = [n for n in names if n in values]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} set the same thing: give one of them")
    if values.get("ssl.ca.location", "").lower() == "probe":
        raise ValueError(
            "ssl.ca.location is 'probe'; give a file, because Spark's reader cannot search for the authorities"
        )
    if not whole:
        return
    certificate = bool({"ssl.certificate.location", "ssl.certificate.pem"} & values.keys())
    if certificate != bool({"ssl.key.location", "ssl.key.pem"} & values.keys()):
        raise ValueError("a client certificate needs both ssl.certificate.* and ssl.key.*; one of them is missing")
    _check_login(values)


def _check_name(name: str) -> None:
    if name in SETTINGS:
        return
    if name in OWN_KAFKA or name.endswith("_cb"):
        raise ValueError(f"{name} cannot be set: {OWN_KAFKA.get(name, 'it takes a function')}")
    close = get_close_matches(name, sorted(SETTINGS), n=1, cutoff=0.8)
    hint = f" (did you mean {close[0]}?)" if close else ""
    if name.startswith(SECURITY):
        raise ValueError(
            f"{name} cannot be set{hint}: it has no translation for Spark's Kafka reader, a Java client, which would run "
            f"without it. Allowed settings of this kind are {', '.join(_security_names())}"
        )
    raise ValueError(f"{name} is not allowed{hint}. Allowed are {', '.join(sorted(SETTINGS))}")


def _check_protocol(name: str, value: str) -> None:
    if name == "bootstrap.servers":
        _check_brokers(value)
    if name.endswith(".location") and (
        "\n" in value or "-----BEGIN" in value
    ):  # a message would show the text as if it were a path
        hint = f"; give a text as {pem}" if (pem := name.replace(".location", ".pem")) in SETTINGS else ""
        raise ValueError(f"{name} holds the text of a certificate or key, allowed is the path of a file{hint}")
    if name in FIXED_KAFKA:
        allowed, reason = FIXED_KAFKA[name]
        if value.lower() not in allowed:
            raise ValueError(f"{name} is {value!r}, allowed is {allowed[0]!r}: {reason}")
    if name in WHOLE_NUMBERS:
        low, high, reason = WHOLE_NUMBERS[name]
        if not (value.isascii() and value.isdigit() and len(value) < 12 and low <= int(value) <= high):
            raise ValueError(f"{name} is {value!r}, allowed is {low} to {high}: {reason}")


def _check_brokers(value: str) -> None:
    for broker in value.split(",") if value else ():
        found = BROKER.fullmatch(broker.strip(" "))
        if found is None or not 0 < int(found[3]) < 65_536:
            raise ValueError(
                f"bootstrap.servers contains {broker.strip(' ')!r}; write host:port, and a comma between brokers. "
                "Spark's reader needs the port, and security.protocol names the protocol"
            )


def _check_login(values: Mapping[str, str]) -> None:
    """Checks that the settings for SASL are complete or absent. librdkafka and Java both assume GSSAPI if no mechanism
    is named.
    """
    protocol = values.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol is {protocol!r}, allowed are {', '.join(PROTOCOLS)}")
    mechanism = values.get("sasl.mechanism", values.get("sasl.mechanisms"))
    if mechanism is not None and mechanism not in LOGIN_MODULES:
        reason = OTHER_MECHANISMS.get(mechanism.upper())
        raise ValueError(
            f"sasl.mechanism is {mechanism!r}, allowed are {', '.join(LOGIN_MODULES)}{f': {reason}' if reason else ''}"
        )
    if protocol.startswith("sasl"):
        if mechanism is None:
            raise ValueError(
                f"security.protocol {protocol} needs sasl.mechanism; allowed are {', '.join(LOGIN_MODULES)}"
            )
        missing = [n for n in ("sasl.username", "sasl.password") if not values.get(n)]
        if missing:
            raise ValueError(f"sasl.mechanism {mechanism} needs {' and '.join(missing)}, which is missing or empty")


def _security_names() -> list[str]:
    return sorted(name for name in SETTINGS if name.startswith(SECURITY))


# Settings of a connection for plain consumers or producers that none of Fencepost's clients uses.
OF_PLAIN_CLIENTS = frozenset(
    """auto.commit.interval.ms auto.offset.reset debug enable.auto.commit enable.auto.offset.store enable.partition.eof
    error_cb group.id group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms
    isolation.level log_cb max.poll.interval.ms on_commit on_delivery partition.assignment.strategy session.timeout.ms
    statistics.interval.ms stats_cb throttle_cb""".split()
)
GOOGLE = re.compile(r"managedkafka\S*cloud\.goog|cloud\.goog\S*managedkafka")
AMAZON = re.compile(r"\.kafka(-serverless)?\.[a-z0-9-]+\.amazonaws\.com", re.IGNORECASE)


def kafka_of(connection: Connection) -> ConnectionSettings:
    """Returns the settings in the extra of a connection of type `kafka`, in librdkafka's names.

    Raises:
        SettingsError: the extra is not a JSON object of texts, numbers and booleans, or logs in by a token.
    """
    values = extra_of(connection)
    _refuse_tokens(values, connection.id)
    return settings_without(values, OF_PLAIN_CLIENTS)


def _refuse_tokens(values: Settings, name: str) -> None:
    """Refuses a connection that logs in by a token, because Spark's reader has no counterpart of the provider's
    callbacks.
    """
    brokers = values.get("bootstrap.servers", "")
    mechanism = values.get("sasl.mechanism", values.get("sasl.mechanisms", "")).upper()
    by_token = "oauth_cb" in values or mechanism == "OAUTHBEARER"
    if GOOGLE.search(brokers) and (by_token or not mechanism):
        how = "Google's Managed Kafka, to which Airflow's provider logs in by a token"
    elif AMAZON.search(brokers) and by_token:
        how = "Amazon MSK by IAM"
    elif "oauth_cb" in values:
        how = "oauth_cb, a Python function"
    elif by_token:
        how = "OAUTHBEARER"
    else:
        return
    raise SettingsError(
        f"kafka.connection {name}: it logs in by {how}, which Spark's Kafka reader, a Java client, cannot do. Use a "
        "connection with sasl.mechanism PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or with a client certificate."
    )


def _replaced_by(own: Settings) -> frozenset[str]:
    """Returns the connection's settings that the pipeline's own settings replace. Some settings have several names, and
    a pipeline that sets one name replaces all names of the setting.
    """
    names = {name for group in EXCLUSIVE if not own.keys().isdisjoint(group) for name in group}
    return frozenset(names | {"ssl.keystore.password"} if "ssl.keystore.location" in names else names)


KAFKA = Service(
    name="kafka",
    library="librdkafka",
    settings=SETTINGS,
    beside_connection=BESIDE_CONNECTION,
    placeholder={"bootstrap.servers": "127.0.0.1:1"},
    of_connection=kafka_of,
    checked=checked_by(check_kafka),
    replaced_by=_replaced_by,
)
