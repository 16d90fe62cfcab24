"""The run folder: names, tokens, valid and invalid exit records."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import errors, files
from orchestrator.files import run_folder

RECORD: dict[str, object] = {
    **{"token": "abcd12345678", "job_id": "41", "task": 0, "attempt": 0},
    **{"rc": 0, "outcome": "end", "done": True},
}


def exit_record(folder: Path, text: str) -> run_folder.ExitRecord | None:
    (folder / "exit.0.0.json").write_text(text)
    return run_folder.RunFolder(folder).exit_record(0, 0, token="abcd12345678", owner="41")


def test_the_token_of_a_job_that_was_renamed() -> None:
    log = "/runs/demo.abcd12345678/%j.out"
    assert run_folder.token_of("demo.abcd12345678", None) == "abcd12345678"
    assert run_folder.token_of("site_demo", log) == "abcd12345678"
    assert run_folder.token_of("demo.zzzz12345678", log) == "zzzz12345678"
    assert run_folder.token_of("site_demo", "/home/alice/slurm-7.out") is None
    assert run_folder.token_of("site_demo", "") is None


def test_token() -> None:
    token = run_folder.new_token("abcd")
    assert token.startswith("abcd")
    assert run_folder.split_name(run_folder.slurm_name("a.b", token)) == ("a.b", token)
    assert run_folder.split_name("a.b") == ("a.b", None)
    assert run_folder.split_name("x.ABCD12345678") == ("x.ABCD12345678", None)


@given(st.text(min_size=1))
def test_any_name_splits(name: str) -> None:
    first, token = run_folder.split_name(name)
    assert name == (first if token is None else f"{first}.{token}")


def test_create_keeps_others_out(tmp_path: Path) -> None:
    files = {"script.sbatch": "a\r\nb"}
    folder = run_folder.create(tmp_path / "runs", "x", "abcd12345678", files)
    assert folder.script.read_bytes() == b"a\r\nb"
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.script.stat().st_mode) == 0o600
    assert folder.owner(0) is None
    assert folder.attempts() == {}
    assert folder.exit_record(0, 0, token="abcd12345678", owner=None) is None


@pytest.mark.parametrize(
    "number", [errno.EMLINK, errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV]
)
def test_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Or with too many of one file: a symbolic link instead."""

    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    target = tmp_path / "tree.tar"
    target.touch()
    monkeypatch.setattr(os, "link", failing)
    links = {"code.tar": target}
    folder = run_folder.create(tmp_path / "runs", "x", "abcd12345678", {}, hard_links=links)
    assert (folder.path / "code.tar").readlink() == target


def test_create_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        errors.RunFolderError, match=r"cannot make the run folder .*: Not a directory"
    ):
        run_folder.create(tmp_path / "file", "x", "abcd12345678", {})
    with pytest.raises(errors.RunFolderError):
        run_folder.create(tmp_path / "runs", "x", "abcd12345678", {"no/such/place": ""})
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_script_and_both_folders_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync", synced.append)
    folder = run_folder.create(
        tmp_path, "x", "abcd12345678", {"a": "b"}, copies={"spec.json": "{}"}
    )
    assert synced == [folder.path / "a", folder.path, tmp_path]
    assert (folder.path / "spec.json").read_text() == "{}"
    assert stat.S_IMODE((folder.path / "spec.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "change",
    [
        {"token": "other1234567"},
        {"job_id": "42"},
        {"task": 1},
        {"attempt": 1},
        {"done": False},
    ],
)
def test_a_record_counts_only_if_all_of_it_fits(tmp_path: Path, change: dict[str, object]) -> None:
    assert exit_record(tmp_path, json.dumps(RECORD)) is not None
    assert exit_record(tmp_path, json.dumps({**RECORD, **change})) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"token": "x"}',
        '{"attempt": "one"}',
        "\x00" * 100,
        "9" * 50_000,
    ],
)
def test_a_torn_or_foreign_record_is_none(tmp_path: Path, text: str) -> None:
    assert exit_record(tmp_path, text) is None


def test_owner_and_attempts(tmp_path: Path) -> None:
    folder = run_folder.RunFolder(tmp_path)
    (tmp_path / "owner.0").write_text("41\n")
    for name in ("attempt.0.0", "attempt.0.10", "attempt.0.2", "attempt.0.x", "attempt.1.5"):
        (tmp_path / name).write_text("")
    assert folder.owner(0) == "41"
    assert folder.attempts()[0] == [0, 2, 10]


@pytest.mark.parametrize(
    ("pattern", "job_id", "path"),
    [
        ("%j.out", "57", "57.out"),
        ("%A_%a.out", "57_3", "57_3.out"),
        ("%x-%5j.log", "57", "x.abcd12345678-00057.log"),
        ("100%%-%j", "57", "100%-57"),
    ],
)
def test_output_patterns(pattern: str, job_id: str, path: str) -> None:
    assert run_folder.expand(pattern, job_id=job_id, name="x.abcd12345678") == path
