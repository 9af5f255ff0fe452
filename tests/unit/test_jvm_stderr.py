"""What Spark's JVM says on stderr reaches the terminal, but for what it says at every start."""

from __future__ import annotations

import os

import pytest

from fencepost.spark import _pass_on


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
