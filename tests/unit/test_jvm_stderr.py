"""What Spark's JVM says on stderr reaches the terminal, but for what it says at every start."""

from __future__ import annotations

import logging
import os
import socket
import struct
import subprocess
import sys
from threading import Thread

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters

from fencepost.spark import session
from fencepost.spark.session import _pass_on


def test_only_the_words_of_every_start_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    words, its_stderr = os.pipe()
    os.write(
        its_stderr,
        b"NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g\nWARNING: Using incubator modules: jdk.incubator.vector\n",
    )
    os.write(its_stderr, b"OpenJDK 64-Bit Server VM warning: useful\nno line's end")
    os.close(its_stderr)
    _pass_on(words)
    assert capfd.readouterr().err == "OpenJDK 64-Bit Server VM warning: useful\nno line's end"


def test_the_jvm_is_read_on_where_nobody_reads_our_stderr() -> None:
    """As in `fencepost run 2>&1 | head`: the JVM would wait for ever for room in the pipe."""
    script = (
        "import os; from fencepost.spark.session import _pass_on; r, w = os.pipe(); gone, ours = os.pipe(); os.close(gone);"
        "os.dup2(ours, 2); os.write(w, b'words\\n' * 10); os.close(w); _pass_on(r); print('read to the end')"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stdout == "read to the end\n"


@pytest.mark.parametrize("debug", [False, True])
def test_a_connection_that_a_dying_jvm_resets_is_no_traceback(
    debug: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "filters", [session._without_py4j])
    caplog.set_level(logging.DEBUG if debug else logging.INFO, session.log.name)
    with socket.create_server(("127.0.0.1", 0)) as jvm:

        def die() -> None:
            connection, _ = jvm.accept()
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets it
            connection.close()

        Thread(target=die, daemon=True).start()
        client = GatewayClient(gateway_parameters=GatewayParameters(port=jvm.getsockname()[1]))
        client.send_command("a call\n")
        client.close()
    assert ("Exception while sending command." in caplog.messages) == debug


def test_a_worker_that_the_jvm_does_not_want_any_more_is_no_traceback() -> None:
    """The real one, in a process of its own: it sets signal handlers."""
    script = (
        "import socket; from fencepost.rows import daemon; jvm, ours = socket.socketpair(); jvm.close();"
        "print(daemon.worker_or_nothing(ours, False))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")
