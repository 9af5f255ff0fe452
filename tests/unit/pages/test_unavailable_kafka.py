"""Kafka is away, under many logins: a page waits once, and leaves no client behind."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.config.loading import load_pipelines
from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, FencepostError, KafkaUnavailable
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.pages import access, app
from fencepost.pages.ledgers import IDLE, Ledgers
from fencepost.pages.pipelines import Pipelines

from .conftest import SETTINGS, Get

LOGINS = 16
LOGIN = """
  security.protocol: SASL_PLAINTEXT
  sasl.mechanism: PLAIN
  sasl.username: {name}
  sasl.password: of {name}
"""
Make = Callable[..., dict[str, Pipeline]]


@pytest.fixture
def make(folders: Path) -> Make:
    """Pipelines with a login each, on the addresses given, in turn."""

    def make(*addresses: str, pipelines: int = LOGINS) -> dict[str, Pipeline]:
        for number in range(pipelines):
            name = f"p{number:02}"
            (folders / name).mkdir()
            settings = SETTINGS.format(description="").replace("127.0.0.1:1", addresses[number % len(addresses)])
            settings = settings.replace('kafka: {bootstrap.servers: "', 'kafka:\n  bootstrap.servers: "').replace(
                '"}\n', f'"{LOGIN.format(name=name)}'
            )
            (folders / name / "pipeline.yaml").write_text(settings)
            for other in ("transform.sql", "expectations.yaml"):
                (folders / name / other).write_bytes((folders / "orders" / other).read_bytes())
        return {name: p for name, p in load_pipelines(folders)[0].items() if name.startswith("p")}

    return make


class Clients:
    """Every client that the pages make, by its login, and what a client says that is not real: an error, or an answer."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.answers: dict[str, Callable[[], None]] = {}

    def make(self, settings: ClientSettings, timeout: float) -> Any:
        login = settings.values["sasl.username"]
        self.made.append(login)

        def find(topic: str) -> Any:
            self.answers.get(login, lambda: None)()
            return topic

        return SimpleNamespace(find=find, high_watermarks=lambda topic: [3])


def raises(error: FencepostError) -> Callable[[], None]:
    def answer() -> None:
        raise error

    return answer


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Clients:
    """Real clients, counted."""
    clients = Clients()

    def make(settings: ClientSettings, timeout: float) -> Cluster:
        clients.make(settings, timeout)
        return Cluster(settings, timeout)

    monkeypatch.setattr("fencepost.pages.ledgers.Cluster", make)
    return clients


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Clients:
    """Clients that answer as they are told."""
    clients = Clients()
    monkeypatch.setattr("fencepost.pages.ledgers.Cluster", clients.make)
    return clients


@pytest.fixture
def closed() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[list[str]]:
    """Addresses that accept connections and say nothing."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(LOGINS)]
    yield [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()


@pytest.mark.parametrize("away", ["closed", "silent"])
def test_the_overview_waits_once_for_an_address_whatever_the_number_of_logins(
    get: Get,
    make: Make,
    real: Clients,
    monkeypatch: pytest.MonkeyPatch,
    closed: str,
    silent: list[str],
    away: str,
) -> None:
    address = closed if away == "closed" else silent[0]
    names = set(make(address))
    ledgers = Ledgers(timeout=1.0)
    monkeypatch.setattr(app, "ledgers", ledgers)
    monkeypatch.setattr(app, "pipelines", Pipelines())
    monkeypatch.setattr(access, "get_auth_manager", lambda: SimpleNamespace(get_authorized_dag_ids=lambda **_: names))
    first, second = get("/"), get("/")
    assert (first.status_code, second.status_code) == (503, 503)
    assert f"no answer from Kafka at {address}" in first.text
    assert len(real.made) <= app.AT_ONCE, "only those that ask at the same time: four time-outs otherwise"
    assert not ledgers._clients


def test_a_page_stops_waiting_for_clusters_that_never_answered(
    make: Make, real: Clients, silent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many addresses there are."""
    pipelines = list(make(*silent).values())
    ledgers = Ledgers(timeout=0.5)
    until = ledgers.deadline()
    told = []
    for pipeline in pipelines:
        with pytest.raises(KafkaUnavailable) as raised:
            ledgers.snapshot(pipeline, until)
        told.append(str(raised.value))
    assert len(real.made) == 1
    assert "no answer from Kafka" in told[0]
    assert all("other clusters kept this page waiting" in text for text in told[1:])
    with pytest.raises(KafkaUnavailable, match="no answer from Kafka"):
        ledgers.snapshot(pipelines[1], ledgers.deadline())


def test_a_login_that_fails_where_others_are_answered_fails_alone(make: Make, scripted: Clients) -> None:
    """As one whose certificate has ended: all that its client tells is that no broker answers."""
    bad, good = make("127.0.0.1:1", pipelines=2).values()
    ledgers = Ledgers()

    def fail_while_the_other_is_answered() -> None:
        ledgers.source_ends(good)
        raise KafkaUnavailable("no answer")

    scripted.answers["p00"] = fail_while_the_other_is_answered
    for _ in range(2):
        with pytest.raises(KafkaUnavailable):
            ledgers.source_ends(bad)
    assert ledgers.source_ends(good) == {("orders-in", 0): 3}
    assert scripted.made == ["p00", "p01"]


def test_a_refused_login_leaves_the_others_of_its_cluster(make: Make, scripted: Clients) -> None:
    first, second = make("127.0.0.1:1", pipelines=2).values()
    scripted.answers["p00"] = raises(AccessDenied("no"))
    ledgers = Ledgers()
    for _ in range(2):
        with pytest.raises(AccessDenied):
            ledgers.source_ends(first)
    assert ledgers.source_ends(second)
    assert scripted.made == ["p00", "p01"]


def test_a_cluster_that_is_back_is_asked_again_after_a_moment(
    make: Make, scripted: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make("127.0.0.1:1", pipelines=2).values()
    scripted.answers["p00"] = raises(KafkaUnavailable("no answer"))
    ledgers = Ledgers()
    for pipeline in (first, second):
        with pytest.raises(KafkaUnavailable):
            ledgers.source_ends(pipeline)
    assert scripted.made == ["p00"]
    monkeypatch.setattr("fencepost.pages.ledgers.PAUSE", 0)
    assert ledgers.source_ends(second)


def test_each_login_keeps_its_client_for_as_long_as_pages_use_it(
    make: Make, scripted: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("fencepost.pages.ledgers.time.monotonic", lambda: now[0])
    pipelines = list(make("127.0.0.1:1", pipelines=40).values())
    ledgers = Ledgers()
    for _ in range(3):
        for pipeline in pipelines:
            ledgers.source_ends(pipeline)
        now[0] += IDLE - 1
    assert scripted.made == [p.name for p in pipelines]
    now[0] += 2
    ledgers.source_ends(pipelines[1])
    assert len(ledgers._clients) == 1, "the others are closed"
    ledgers.source_ends(pipelines[2])
    assert scripted.made[40:] == [pipelines[2].name]
