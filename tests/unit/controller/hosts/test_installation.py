"""What `setup --host` and `doctor --host` say about a host, from what it printed."""

from __future__ import annotations

import importlib.metadata
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from orchestrator.controller.hosts import checks as host_checks
from orchestrator.controller.hosts import installation, wheels
from orchestrator.remote import probe

PYTHONS = "probe python 3.9.2 old /usr/bin/python3\nprobe python 3.13.1 venv /opt/python3.13\n"


def facts(lines: str) -> probe.Facts:
    return probe.facts(f"Welcome\n\nprobe begin\n{lines}probe end\n".encode())


@pytest.mark.parametrize(
    ("line", "found", "cure"),
    [
        (
            "3.9.21 old",
            "3.11 or newer was not found, only 3.9.21",
            "find one with `module avail python`, or install one without root: `uv python install "
            "3.12`, or conda; then name it: setup --python",
        ),
        (
            "3.13.1 no-venv",
            "3.13.1, /usr/bin/python3, has no venv and ensurepip",
            "install the package that has them (python3-venv), or name another Python: setup "
            "--python",
        ),
    ],
)
def test_pythons_that_do_not_suffice(line: str, found: str, cure: str) -> None:
    host = facts(f"probe python {line} /usr/bin/python3\n")
    assert host_checks.python_check(host) == ("bad", "Python", found, cure)
    assert installation.failure("mill", host, None, None) == f"mill: Python {found}: {cure}"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("probe installer 0\n", ""),
        (
            "probe failed pip\nprobe installer 1\n",
            "pip on mill cannot install the dependencies, see its message above: if the host has "
            "no access to a package index, `orchestrator setup --host mill --wheels wheels` sends "
            "them from here",
        ),
        (
            "probe failed venv\nprobe installer 1\n",
            "no virtual environment could be made on mill, see the message above: name another "
            "Python there with --python",
        ),
        (
            "probe installer 1\n",
            "Python on mill ended with exit code 1, see its message above: --python must be the "
            "path of a Python 3.11 or newer there",
        ),
        (
            "probe failed [Errno 122] Disk quota exceeded\nprobe installer 1\n",
            "cannot install orchestrator on mill: [Errno 122] Disk quota exceeded",
        ),
    ],
)
def test_why_an_installation_failed(lines: str, text: str) -> None:
    assert installation.failure("mill", facts(PYTHONS + lines), None, None) == text


def test_how_to_fetch_the_packages_for_the_host(tmp_path: Path) -> None:
    wheel = tmp_path / "orchestrator-0.1.0-py3-none-any.whl"
    wheel.touch()
    host = facts(
        "probe machine Linux aarch64\n" + PYTHONS + "probe failed pip\nprobe installer 1\n"
    )
    assert installation.failure("mill", host, None, tmp_path) == (
        "pip on mill cannot install these wheels, see its message above: fetch those that are "
        "missing: `pip download --only-binary=:all: --python-version 3.13 --platform "
        f"manylinux_2_28_aarch64 --platform manylinux2014_aarch64 --dest {tmp_path} {wheel}`"
    )


def test_a_wheel_of_an_installed_package() -> None:
    """An installed package is packed as it was, and always to the same bytes."""
    distribution = importlib.metadata.distribution("click")
    name, content = wheels.packed(distribution)
    assert name == f"click-{distribution.version}-py3-none-any.whl"
    assert wheels.packed(distribution) == (name, content)
    with zipfile.ZipFile(BytesIO(content)) as archive:
        names = archive.namelist()
        record = archive.read(f"click-{distribution.version}.dist-info/RECORD").decode()
    assert [line.partition(",")[0] for line in record.splitlines()] == names
    assert "click/core.py" in names
    assert not [each for each in names if each.endswith((".pyc", "INSTALLER"))]


def test_a_folder_of_wheels_gets_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "orchestrator-0.1.0-py3-none-any.whl"
    monkeypatch.setattr(wheels, "of_this_version", lambda environ: (ours, b"ours"))
    folder = tmp_path / "wheels"
    assert installation.files_of(None, {}) == {ours: b"ours"}
    assert installation.files_of(folder, {}) == {ours: b"ours"}
    (folder / "click-8.3.0-py3-none-any.whl").write_bytes(b"click")
    (folder / "orchestrator-0.0.9-py3-none-any.whl").write_bytes(b"old")
    assert installation.files_of(folder, {}) == {
        ours: b"ours",
        "click-8.3.0-py3-none-any.whl": b"click",
    }
