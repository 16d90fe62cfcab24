"""The spool, the slots and the processes of this machine, without starting a job."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator import errors, jobs
from orchestrator.jobs import JobState
from orchestrator.local import checks, machine, processes, records, runner, slots, spool, submitted

REQUEST = records.Request(
    token="abcd00000001",
    name="x.abcd00000001",
    script="/runs/x/script.sbatch",
    run_dir="/runs/x",
    folder="/work",
    environ={"A": "b"},
    cpus_per_task=None,
    signal_seconds=None,
    kill_wait_seconds=30,
    slots_are_gpus=False,
    slots=1,
    devices=("slot0",),
    time_limit_seconds=60,
    may_requeue=True,
    umask=0o022,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> machine.Machine:
    """A machine on which nothing is ever started."""
    monkeypatch.setattr(machine.Machine, "_start", lambda self, entry, options: False)
    return machine.Machine(folder=tmp_path / "local", host="lap")


def enter(here: machine.Machine, token: str, **changes: object) -> str:
    request = dataclasses.replace(REQUEST, token=token, name=f"x.{token}", **changes)  # type: ignore[arg-type]
    return here.submit(
        request, lambda job_id, _: (f"/runs/{job_id}.out", None), lambda sha256: None
    )


def test_a_token_is_accepted_once(here: machine.Machine) -> None:
    assert enter(here, "abcd00000001") == "local-1"
    assert enter(here, "abcd00000002", tasks=(0, 3, 5)) == "local-2"
    assert enter(here, "abcd00000001") == "local-1"
    assert enter(here, "abcd00000003") == "local-5", "each array task has a number of its own"
    seen = here.squeue(lambda *_: True)
    assert [(row.job_id, row.raw_job_id, row.reason) for row in seen] == [
        ("local-1", "1", "Resources"),
        ("local-2_0", "2", "Priority"),
        ("local-2_3", "3", "Priority"),
        ("local-2_5", "4", "Priority"),
        ("local-5", "5", "Priority"),
    ]
    assert {row.array_job_id for row in seen} == {None, "local-2"}


def test_an_interrupted_submission_is_completed(here: machine.Machine) -> None:
    enter(here, "abcd00000001", tasks=(1, 2))
    (here.folder / "queue" / "1_2.json").unlink()
    assert here.by_name(["x.abcd00000001"], machine.datetime.datetime.min) == []
    assert enter(here, "abcd00000001", tasks=(1, 2)) == "local-1"
    assert [entry.key for entry in here.spool.queue()] == ["1_1", "1_2"]


def test_an_interrupted_end_is_completed(here: machine.Machine) -> None:
    enter(here, "abcd00000001")
    (entry,) = here.spool.queue()
    path = here.folder / "queue" / "1.json"
    with here.spool.locked():
        here.close(entry, here.end_without_runner(entry, "why"))
    (here.folder / "ended" / "1.json").rename(path)
    assert here.squeue(lambda *_: True) == []
    (row,) = here.sacct(["local-1"], machine.datetime.datetime.min)
    assert (row.state, row.reason) == (
        JobState.LOST,
        "its runner on lap ended unexpectedly: why",
    )
    assert not path.exists()


@pytest.mark.parametrize(("rc", "state"), [(0, JobState.COMPLETED), (3, JobState.FAILED)])
def test_the_exit_record_of_a_job_whose_runner_was_killed(
    here: machine.Machine, tmp_path: Path, rc: int, state: JobState
) -> None:
    enter(here, "abcd00000001", run_dir=str(tmp_path))
    (entry,) = here.spool.queue()
    attempt = {"token": "abcd00000001", "job_id": "1", "task": 0, "attempt": 0}
    record = {**attempt, "rc": rc, "outcome": "end", "done": True}
    path = tmp_path / "exit.0.0.json"
    for bad in ({"done": False}, {"job_id": "2"}, {"outcome": "requeue"}):
        path.write_text(json.dumps({**record, **bad}))
        assert here.end_without_runner(entry, "why").state is JobState.LOST
    path.write_text(json.dumps(record))
    ended = here.end_without_runner(entry, "why")
    assert (ended.state, ended.exit_code) == (state, rc)
    assert ended.reason is not None and ended.reason.startswith("from the exit record; its runner")


def test_cancel_checks_the_name_and_cancels_all_tasks(here: machine.Machine) -> None:
    enter(here, "abcd00000001", tasks=(0, 1))
    here.cancel("local-1", "y.abcd00000001")
    assert len(here.spool.queue()) == 2
    here.cancel("local-1_0", "x.abcd00000001")
    assert [entry.key for entry in here.spool.queue()] == ["1_1"]
    here.cancel("local-1", "x.abcd00000001")
    assert here.spool.queue() == []
    rows = here.sacct(["local-1"], machine.datetime.datetime.min)
    assert [(row.job_id, row.state) for row in rows] == [
        ("local-1_0", JobState.CANCELLED),
        ("local-1_1", JobState.CANCELLED),
    ]


def test_ended_jobs_can_be_requeued(here: machine.Machine) -> None:
    enter(here, "abcd00000001")
    enter(here, "abcd00000002", may_requeue=False)
    here.cancel("local-1", "x.abcd00000001")
    assert here.change("requeuehold", ["local-1", "local-2", "local-9"]) == {
        "local-2": "it was submitted with requeue = false",
        "local-9": "there is no such job on this machine",
    }
    entry = here.spool.live_entry("1")
    assert entry is not None and entry.held and entry.restart_count == 1
    assert [ended.state for ended in entry.ended] == [JobState.CANCELLED]
    assert here.change("release", ["local-1"]) == {}
    assert not here.spool.live_entry("1").held  # type: ignore[union-attr]


def test_the_queue_keeps_its_order_when_the_clock_is_set_back(
    here: machine.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(here, "abcd00000001")
    monkeypatch.setattr(machine.time, "time", lambda: 1000.0)
    enter(here, "abcd00000002")
    assert [entry.number for entry in here.spool.queue()] == [1, 2]
    here.cancel("local-1", "x.abcd00000001")
    assert here.change("requeue", ["local-1"]) == {}
    assert [entry.number for entry in here.spool.queue()] == [2, 1]


def test_old_ended_jobs_are_removed(here: machine.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    for number in range(1, 5):
        enter(here, f"abcd0000000{number}")
        if number != 3:
            here.cancel(f"local-{number}", f"x.abcd0000000{number}")
    enter(here, "abcd00000005", dependency="afterany:local-4")
    monkeypatch.setattr(machine.time, "time", lambda: now + machine.RETENTION_SECONDS + 60)
    for path in (here.folder / "requests").iterdir():
        os.utime(path, (now - 60, now - 60))
    enter(here, "abcd00000006")
    here.cancel("local-6", "x.abcd00000006")
    there = dataclasses.replace(here, host="other")
    # One home folder on two hosts: jobs of the other host are left to its commands.
    assert there.clear(list) == []
    (here.folder / "cleared").unlink()
    # The clock is in doubt.
    assert here.clear(lambda: None) == []
    # The end of 2 is not stored, 3 is waiting, 5 depends on 4, 6 ended just now.
    assert here.clear(lambda: ["abcd00000002"]) == ["1"]
    left = sorted(path.stem for path in (here.folder / "requests").iterdir())
    assert left == [f"abcd0000000{number}" for number in range(2, 7)]
    refused = here.change("requeue", ["local-1"])
    assert refused == {"local-1": "there is no such job on this machine"}
    assert enter(here, "abcd00000007") == "local-7", "no number is given twice"

    def unasked() -> list[str]:
        raise AssertionError("once a day")

    os.utime(here.folder / "cleared", (now + machine.RETENTION_SECONDS,) * 2)
    assert here.clear(unasked) == []


def test_a_full_disk_leaves_no_keeper_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that could not be stored would find its job waiting, and start it again and again."""
    here = machine.Machine(folder=tmp_path / "local", host="lap", database="sqlite:////none")
    put = spool.Spool.put

    def refuse(files: spool.Spool, entry: records.Entry) -> records.Entry:
        if entry.state is JobState.RUNNING:
            raise OSError(errno.ENOSPC, "No space left on device", str(files.folder))
        return put(files, entry)

    monkeypatch.setattr(spool.Spool, "put", refuse)
    with pytest.raises(errors.OrchestratorError, match="No space left on device"):
        enter(here, "abcd00000001")
    deadline = time.monotonic() + 60
    while processes.marked(machine.KEEPER, "abcd00000001.0.0"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [entry.state for entry in here.spool.queue()] == [JobState.PENDING]


def test_the_runner_waits_only_for_disk_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitted, "_DISK_RETRY_SECONDS", 0.0)
    error_numbers = [errno.ENOSPC, errno.EROFS, 0]

    def store() -> str:
        if number := error_numbers.pop(0):
            raise errors.OrchestratorError("x") from OSError(number, "x")
        return "stored"

    assert submitted.until_stored(store) == "stored"
    error_numbers.append(errno.EACCES)
    with pytest.raises(errors.OrchestratorError):
        submitted.until_stored(store)


@pytest.mark.parametrize(
    ("state", "latest", "asks_for_requeue", "expected"),
    [
        (JobState.COMPLETED, "", False, (JobState.COMPLETED, "")),
        (JobState.COMPLETED, "", True, (JobState.REQUEUED, "requeue")),
        (JobState.COMPLETED, "hold", True, (JobState.REQUEUED, "hold")),
        (JobState.COMPLETED, "cancel", True, (JobState.CANCELLED, "")),
        (JobState.COMPLETED, "cancel", False, (JobState.COMPLETED, "")),
        (JobState.FAILED, "hold", False, (JobState.REQUEUED, "hold")),
    ],
)
def test_the_latest_request_decides(
    state: JobState, latest: str, asks_for_requeue: bool, expected: tuple[JobState, str]
) -> None:
    ended = records.Ended(
        state=state, reason=None, exit_code=0, exit_signal=0, started_at=1.0, ended_at=2.0
    )
    final, again = runner._final(ended, latest, asks_for_requeue)
    assert (final.state, again) == expected


def test_files_of_a_newer_version_are_read(here: machine.Machine) -> None:
    enter(here, "abcd00000001")
    for path in (here.folder / "queue" / "1.json", here.folder / "requests" / "abcd00000001.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "of_tomorrow": 1}))
    assert here.spool.queue()[0].number == 1
    assert here.spool.request("abcd00000001") is not None


def test_a_damaged_file_is_named(here: machine.Machine) -> None:
    enter(here, "abcd00000001")
    (here.folder / "queue" / "1.json").write_text("{")
    with pytest.raises(errors.OrchestratorError, match=r"queue/1\.json is damaged"):
        here.squeue(lambda *_: True)


GPU_LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-7b1c6f0e-1f0c-2d4f-7c1e-000000000000)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-7b1c6f0e-1f0c-2d4f-7c1e-000000000001)
"""


def test_slots(tmp_path: Path) -> None:
    def results(count: int | None = None, **environ: str) -> slots.Slots:
        return slots.find({"PATH": str(tmp_path / "bin"), **environ}, count=count, dev=tmp_path)

    assert results() == slots.Slots(devices=("slot0",), are_gpus=False)
    assert results(3).devices == ("slot0", "slot1", "slot2")
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert results() == slots.Slots(devices=("2", "10"), are_gpus=True)
    assert results(1).devices == ("2",)
    assert results(CUDA_VISIBLE_DEVICES="3, 1,-1,0").devices == ("3", "1")
    assert results(CUDA_VISIBLE_DEVICES="GPU-7b1c,1").devices == ("GPU-7b1c", "1")
    assert not results(CUDA_VISIBLE_DEVICES="").are_gpus
    command = tmp_path / "bin" / "nvidia-smi"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{GPU_LIST}END\n")
    command.chmod(0o755)
    assert results().devices == ("0", "1")
    assert results(CUDA_VISIBLE_DEVICES="GPU-7b1c6f0e-1f0c-2d4f-7c1e-000000000001,0").devices == (
        "1",
        "0",
    )
    command.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed' >&2\nexit 9\n")
    assert results().devices == ("2", "10")


#: As an A100 with MIG and a GPU of another model are listed (NVIDIA MIG User Guide).
MIXED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb      Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA GeForce RTX 3090 (UUID: GPU-aaaa0000-d33d-2b2c-524d-9e3d8d2b8a77)
"""


@pytest.mark.parametrize(
    ("visible", "bus_order", "expected"),
    [
        (None, False, ["MIG-c6d4", "MIG-cba6", "GPU-aaaa"]),
        ("MIG-cba663e8,GPU-aaaa", False, ["MIG-cba6", "GPU-aaaa"]),
        ("GPU-5d5b", False, ["MIG-c6d4"]),
        ("1,GPU-aaaa,0", True, ["GPU-aaaa", "MIG-c6d4"]),
        # nvidia-smi does not show which of two models is CUDA device 1.
        ("1,GPU-aaaa", False, ["1", "GPU-aaaa"]),
        ("7,MIG-ffff", True, []),
    ],
)
def test_each_gpu_has_one_name(visible: str | None, bus_order: bool, expected: list[str]) -> None:
    result = slots.device_names(slots.parse_gpu_list(MIXED), visible, in_bus_order=bus_order)
    assert [name[:8] for name in result] == expected
    assert all(len(name) in (1, 40) for name in result)


def test_specs_that_one_machine_cannot_run() -> None:
    spec = jobs.JobSpec(
        name="x",
        partition="gpu",
        dependency="afterok:1",
        resources=jobs.Resources(nodes=2, mem="4G"),
        container=jobs.Container(runtime="pyxis", image="i"),
        launch=jobs.Launch(launcher="srun", rendezvous="c10d", script="a.py"),
        sbatch={"hint": "nomultithread"},
    )
    with pytest.raises(errors.SpecError) as caught:
        checks.check_spec(spec)
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["resources.nodes", "launch.launcher", "container.runtime", "job.dependency"]
    for wrong in ("aftercorr:local-1", "after:local-1+5", "afterok:local-1,afterany:2_3"):
        with pytest.raises(errors.SpecError, match=r"job\.dependency"):
            checks.check_spec(jobs.JobSpec(name="x", dependency=wrong))
    checks.check_spec(jobs.JobSpec(name="x", dependency="afterok:local-1:local-2_*?singleton"))
    assert checks.ignored_keys(spec) == [
        "job.partition",
        "resources.mem",
        "launch.rendezvous",
        "sbatch.hint",
    ]


def test_identity_of_a_process() -> None:
    own = processes.identify(os.getpid())
    assert own.is_alive()
    assert not dataclasses.replace(own, start_ticks=own.start_ticks + 1).is_alive()
    assert not dataclasses.replace(own, boot_id="of yesterday").is_alive()
    child = subprocess.Popen(["true"])
    who = processes.identify(child.pid)
    deadline = time.monotonic() + 60
    while who.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert Path(f"/proc/{child.pid}").exists(), "a zombie is no living process"
    child.wait()


def test_processes_are_identified_by_their_marker_and_killed() -> None:
    environ = {**os.environ, "MARK": "a b.0"}
    argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    child = subprocess.Popen(
        argv, env=environ, stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    assert child.stdout is not None
    with child.stdout as stdout:
        assert stdout.readline() == "up\n"
    assert processes.marked("MARK", "a b") == []
    assert processes.marked("MARK", "a b.0") == [child.pid]
    assert child.pid in processes.descendants(os.getpid())
    assert child.pid not in processes.descendants(os.getpid(), without=[child.pid])
    processes.send(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert processes.kill_all(lambda: processes.marked("MARK", "a b.0"))
