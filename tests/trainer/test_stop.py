"""Stop requests: by the stop file, a signal, or the time limit."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import arguments, errors, stop, train  # noqa: E402

pytestmark = pytest.mark.trainer

Run = Callable[..., subprocess.CompletedProcess[str]]

TRAIN = ["-m", "trainers.train", "--device=cpu"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"SLURM_JOB_END_TIME": "2000"}, None),
        ({"SLURM_JOB_START_TIME": "1000", "SLURM_JOB_END_TIME": "4600"}, 4510),
        # One minute: six seconds, or nothing would be left of it.
        ({"SLURM_JOB_START_TIME": "1000", "SLURM_JOB_END_TIME": "1060"}, 1054),
        ({"SLURM_JOB_START_TIME": "1000", "SLURM_JOB_END_TIME": "Unknown"}, None),
    ],
)
def test_deadline(environ: dict[str, str], expected: float | None) -> None:
    assert stop.read_stopper(environ, margin_seconds=90).deadline == expected


def test_stop_is_checked_about_once_a_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    now = [0.0]
    monkeypatch.setattr(stop.time, "perf_counter", lambda: now[0])
    looked = []
    clock = lambda: looked.append(now[0]) or 0.0  # noqa: E731
    stopper = stop.Stopper(stop_file=tmp_path / "stop", deadline=1.0, clock=clock)
    stopper.begin(100)
    for step in range(101, 1101):
        now[0] += 0.01
        assert stopper.agree(step) == (None, False)
    # Doubling at first, then every hundred steps of 10 ms.
    assert looked[:4] == pytest.approx([0.01, 0.03, 0.07, 0.15])
    gaps = [after - before for before, after in itertools.pairwise(looked[8:])]
    assert gaps and all(0.9 < gap <= 1.01 for gap in gaps)


def test_reasons(tmp_path: pathlib.Path) -> None:
    now = [0.0]
    stopper = stop.Stopper(
        stop_file=tmp_path / "stop", deadline=5.0, poll_seconds=0, clock=lambda: now[0]
    )
    handler = signal.getsignal(signal.SIGTERM)
    with stopper.signals():
        assert stopper.agree(1) == (None, False)
        (tmp_path / "stop").touch()
        assert stopper.agree(2) == (stop.Reason.STOP_FILE, False)
        now[0] = 5.0
        assert stopper.agree(3) == (stop.Reason.TIME_LIMIT, False)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stopper.agree(4) == (stop.Reason.SIGNAL, False)
    assert signal.getsignal(signal.SIGTERM) is handler


def test_requeue_is_requested_only_after_progress(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "requeue.0.1"
    message = (
        "stopped at step 7, the first step of this attempt: not requeued, because the next attempt"
        " would not get further. Increase the time limit."
    )
    with pytest.raises(errors.StoppedError, match=f"^{re.escape(message)}$"):
        stop.end_attempt(stop.Reason.SIGNAL, str(path), 7, 0, rank=0)
    stop.end_attempt(stop.Reason.SIGNAL, str(path), 8, 1, rank=1)
    assert not path.exists()
    stop.end_attempt(stop.Reason.SIGNAL, str(path), 8, 1, rank=0)
    assert path.read_text() == "saved at step 8\n"
    # The trainer has reported the stop.
    for reason, exit_code in ((stop.Reason.SIGNAL, 143), (stop.Reason.INTERRUPT, 130)):
        with pytest.raises(errors.StoppedError, match=r"^$") as caught:
            stop.end_attempt(reason, None, 8, 1, rank=0)
        assert caught.value.exit_code == exit_code


def test_interrupt(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stopper = stop.Stopper(poll_seconds=0)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stopper.signals(is_announced=True):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            assert stopper.agree(1) == (stop.Reason.INTERRUPT, False)
            # The next one ends the process.
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert capfd.readouterr().err == (
            "trainers.train: stops after this step; a second Ctrl-C ends it at once.\n"
        )
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with stopper.signals():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, handler)


def job(folder: pathlib.Path, attempt: int) -> dict[str, str]:
    """What the job script exports."""
    return {
        "ORCHESTRATOR_RUN_DIR": str(folder),
        "ORCHESTRATOR_METRICS_FILE": str(folder / "metrics.3.jsonl"),
        "ORCHESTRATOR_TASK": "3",
        "ORCHESTRATOR_ATTEMPT": str(attempt),
        "ORCHESTRATOR_STOP_FILE": str(folder / f"stop.3.{attempt}"),
        "ORCHESTRATOR_REQUEUE_FILE": str(folder / f"requeue.3.{attempt}"),
    }


def test_job_stops_requests_requeue_and_continues(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    args = arguments.parse_arguments(["--device=cpu", "--epochs=2"])
    (tmp_path / "stop.3.0").write_text("USR1 1\n")
    train.run(args, job(tmp_path, 0))
    first = capsys.readouterr()
    assert first.err == ""
    assert first.out.endswith(
        "Stopped after step 1, because the stop file exists: checkpoint saved.\n"
    )
    assert (tmp_path / "requeue.3.0").read_text() == "saved at step 1\n"
    assert json.loads((tmp_path / "result.3.json").read_text())["finished"] is False
    train.run(args, job(tmp_path, 1))
    second = capsys.readouterr()
    assert second.err == ""
    assert second.out.startswith("Resumed after step 1, in epoch 1.\n")
    assert "Training completed successfully.\n" in second.out
    assert not (tmp_path / "requeue.3.1").exists()
    result = json.loads((tmp_path / "result.3.json").read_text())
    assert (result["finished"], result["num_samples"]) == (True, 2 * 1438)
    assert len(result["history"]) == 2
    names = {path.name for path in tmp_path.iterdir()}
    assert {"checkpoints.3", "metrics.3.jsonl"} < names


@pytest.mark.parametrize(
    ("number", "exit_code", "why", "announced"),
    [
        # What the job script does on TERM, and Slurm where it tracks processes by their parents.
        (signal.SIGTERM, 143, "a signal was received", ""),
        (
            *(signal.SIGINT, 130, "it was interrupted"),
            "trainers.train: stops after this step; a second Ctrl-C ends it at once.\n",
        ),
    ],
)
def test_signal_to_the_process_group_ends_no_worker(
    clean_environ: Mapping[str, str],
    tmp_path: pathlib.Path,
    number: int,
    exit_code: int,
    why: str,
    announced: str,
) -> None:
    # Its parents do not exist.
    run_dir = tmp_path / "runs" / "first"
    words = [
        "--dataset=synthetic", "--synthetic-samples=2000", "--synthetic-shape=3,8,8",
        "--epochs=100000", "--data-path=loader", "--num-workers=2", f"--run-dir={run_dir}",
    ]  # fmt: skip
    program = subprocess.Popen(
        [sys.executable, *TRAIN, *words],
        env=clean_environ,
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        deadline = time.monotonic() + 200
        while not (run_dir / "metrics.jsonl").exists():
            assert program.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(program.pid, number)
        stdout, stderr = program.communicate(timeout=100)
    finally:
        # Workers too are of its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    assert (program.returncode, stderr) == (exit_code, announced)
    line = rf"^Stopped after step [0-9]+, because {why}: checkpoint saved\.\n\Z"
    assert re.search(line, stdout, flags=re.MULTILINE), stdout


def test_stop_without_requeue_exits_with_143(launch: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "stop").touch()
    done = launch(TRAIN, ORCHESTRATOR_STOP_FILE=str(tmp_path / "stop"))
    assert done.returncode == 143
    assert done.stderr == ""
    assert done.stdout.endswith(
        "Stopped after step 1, because the stop file exists: no checkpoint saved (no --run-dir).\n"
    )
