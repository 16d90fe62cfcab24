"""Requests whose end is not known, and claims of requests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.controller.remote import pending, requests
from orchestrator.local import processes

ID = "0" * 32


def waiting(at: float = 1.0, request: str = ID) -> pending.Pending:
    return pending.Pending(request=request, words=["submit"], at=at, store="s", host="login1")


def test_a_request_is_settled_only_when_nobody_waits_for_it(tmp_path: Path) -> None:
    folder = pending.Folder(tmp_path, "mill", ())
    with folder.unattended() as found:
        assert found == []
    with folder.waiting(waiting()), folder.unattended() as found:
        assert found == []
    with folder.unattended() as found:
        assert found == [waiting()]
        # Two calls do not settle it at the same time.
        with pending.Folder(tmp_path, "mill", ()).unattended() as others:
            assert others == []
    folder.remove(ID)
    with folder.unattended() as found:
        assert found == []


def test_damaged_files_are_left_alone(tmp_path: Path) -> None:
    folder = pending.Folder(tmp_path, "mill", ())
    with folder.waiting(waiting(2.0)), folder.waiting(waiting(1.0, "1" * 32)):
        pass
    (tmp_path / "remote/mill/x.json").write_text("{")
    with folder.unattended() as found:
        assert [each.at for each in found] == [1.0, 2.0]


def store(folder: Path) -> requests.Requests:
    made = requests.Requests(folder, ())
    made.make()
    return made


def test_one_claim_is_made(tmp_path: Path) -> None:
    request = store(tmp_path).open(ID)
    assert request.standing() is None
    assert request.claim({"never": True}, is_durable=True)
    assert not request.claim({"pid": 1}, is_durable=False)
    assert request.standing() == "never"
    assert sorted(path.name for path in request.folder.iterdir()) == ["claim"]


def test_what_became_of_a_request(tmp_path: Path) -> None:
    here = store(tmp_path)
    assert here.settled(ID) == "never"
    assert here.settled(ID) == "never"
    running = here.open("1" * 32)
    keeper = {"host": os.uname().nodename, **vars(processes.identify(os.getpid()))}
    assert running.claim(keeper, is_durable=False)
    assert here.settled(running.id) == "running"
    running.end(3, is_durable=False)
    assert (here.settled(running.id), running.exit_code()) == ("ended", 3)
    lost = here.open("2" * 32)
    assert lost.claim({**keeper, "start_ticks": 1}, is_durable=False)
    assert here.settled(lost.id) == "lost"


def test_a_keeper_on_another_host_gives_signs_of_life(tmp_path: Path) -> None:
    request = store(tmp_path).open(ID)
    claim = {"host": "login2", "pid": 1, "start_ticks": 1, "boot_id": "other"}
    assert request.claim(claim, is_durable=False)
    assert request.standing() == "running"
    path = request.folder / "claim"
    old = path.stat().st_mtime - 1000
    os.utime(path, (old, old))
    assert request.standing() == "lost"


def test_the_spool_is_read_by_offset(tmp_path: Path) -> None:
    request = store(tmp_path).open(ID)
    request.segment(0).write_bytes(b"abc")
    request.segment(3).write_bytes(b"def")
    assert [request.output(n, 10) for n in range(7)] == [
        *(b"abc", b"bc", b"c", b"def", b"ef", b"f", b""),
    ]
    request.drop_output(2)
    assert request.output(0, 10) == b"abc"
    request.drop_output(4)
    assert request.output(4, 10) == b"ef"
    with pytest.raises(errors.OrchestratorError, match="was removed"):
        request.output(0, 10)


def test_old_requests_are_removed(tmp_path: Path) -> None:
    here = store(tmp_path)
    for number in range(4):
        request = here.open(str(number) * 32)
        if number < 3:
            request.end(0, is_durable=False)
    week = 8 * 24 * 3600
    path = here.find("0" * 32).folder / "exit"
    os.utime(path, (path.stat().st_mtime - week,) * 2)
    requests.remove_old(here.folder)
    assert sorted(path.name[0] for path in here.folder.iterdir()) == ["1", "2", "3"]


def test_the_state_folder_has_one_id(tmp_path: Path) -> None:
    assert store(tmp_path).store_id() == store(tmp_path).store_id()
    assert store(tmp_path / "other").store_id() != store(tmp_path).store_id()
