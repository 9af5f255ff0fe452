"""A small disk under a server, which can be made larger, and texts that fill it."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A disk of this size, mounted there, which everybody may write to; what is given sets another size."""
    assert os.geteuid() == 0, "only root may mount a disk: run this test as root"
    folder.mkdir(parents=True, exist_ok=True)

    def mount(*options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)], check=True)

    mount(f"size={size}", "mode=777")
    try:
        yield lambda larger: mount("remount", f"size={larger}")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def text_of(size: int) -> str:
    """A text that no compression makes much shorter."""
    return "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))
