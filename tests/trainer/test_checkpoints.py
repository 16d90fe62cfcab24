"""A checkpoint is complete or does not exist, even if writing is interrupted."""

import errno
import hashlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import arguments, checkpoint, errors, train  # noqa: E402

#: User ID of `nobody` in Debian
NOBODY = 65534

pytestmark = pytest.mark.trainer

Run = Callable[..., subprocess.CompletedProcess[str]]

# Forks writers that are killed at their first, second, ... call of what changes the disk, until one
# comes to its end. For each of them a line: how it ended, and the step of the newest checkpoint.
KILLER = """
import builtins, os, pathlib, signal, sys
import torch
from trainers import checkpoint

folder = pathlib.Path(sys.argv[1])

def save(step):
    store = checkpoint.Store(folder, keep=2)
    state = {"settings": {}, "step": step, "weights": torch.full((1000,), float(step))}
    store.save(state, step=step, is_best=True)
    store.wait()

def die_at(number):
    calls = 0
    def counted(call):
        def wrapper(*arguments, **more):
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **more)
        return wrapper
    for name in ("fsync", "replace"):
        setattr(os, name, counted(getattr(os, name)))
    for name in ("rename", "symlink_to", "unlink", "write_text"):
        setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
    torch.save = counted(torch.save)

def newest():
    store = checkpoint.Store(folder, keep=2)
    store.open()
    path = store.newest()
    state = checkpoint.load(path)
    assert torch.equal(state["weights"], torch.full((1000,), float(state["step"])))
    checkpoint.verify(folder / "best.pt")
    best = checkpoint.load(folder / "best.pt")
    assert best["step"] in (state["step"], state["step"] - 1), (best["step"], state["step"])
    # As a resumed run does.
    store.mark_best(path)
    return state["step"]

def forked(work, *arguments):
    child = os.fork()
    if child == 0:
        work(*arguments)
        sys.stdout.flush()
        os._exit(0)
    return os.waitpid(child, 0)[1]

def write(number, step):
    die_at(number)
    save(step)

checkpoint.Store(folder, keep=2).open()
assert forked(save, 1) == 0
status, number, step = None, 0, 1
while status != 0:
    number += 1
    status = forked(write, number, step + 1)
    now = newest()
    print(status, step, now, flush=True)
    assert number < 40, "no writer came to its end"
    # A writer that was killed after the name was given has saved all the same.
    step = now
print(*sorted(os.listdir(folder)))
"""


def test_kill_at_each_stage_leaves_an_intact_checkpoint(
    launch: Run, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "checkpoints"
    done = launch(["-c", KILLER, str(folder)])
    assert done.returncode == 0, done.stderr
    *rounds, names = done.stdout.splitlines()
    outcomes = [tuple(map(int, line.split())) for line in rounds]
    assert [status for status, _, _ in outcomes[:-1]] == [signal.SIGKILL] * (len(outcomes) - 1)
    # Some were killed before the new one counted, and some after.
    gains = [after - before for _, before, after in outcomes]
    assert set(gains) == {0, 1} and gains[-1] == 1 and len(gains) > 8
    assert len(re.findall(r"checkpoint-[0-9]{10}\.pt(?= |$)", names)) == 2
    assert "draft" not in names


def make_store(folder: pathlib.Path, steps: int) -> checkpoint.Store:
    store = checkpoint.Store(folder, keep=3)
    store.open()
    for step in range(1, steps + 1):
        store.save({"step": step}, step=step, is_best=step == 2)
    store.wait()
    return store


def test_newest_few_and_the_best_are_kept(tmp_path: pathlib.Path) -> None:
    store = make_store(tmp_path / "checkpoints", 5)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == [
        "best.pt",
        *(
            f"checkpoint-000000000{step}.pt{end}"
            for step in (2, 3, 4, 5)
            for end in ("", ".sha256")
        ),
    ]
    best = tmp_path / "checkpoints" / "best.pt"
    # Plain files: no class of ours, and sha256sum -c works.
    assert torch.load(best, weights_only=True) == {"step": 2}
    assert os.readlink(best) == "checkpoint-0000000002.pt"
    digest = hashlib.sha256(best.read_bytes()).hexdigest()
    sums = best.with_name("checkpoint-0000000002.pt.sha256").read_text()
    assert sums == f"{digest}  checkpoint-0000000002.pt\n"
    # The link may lead to another one, and then the former is not kept.
    store.mark_best(tmp_path / "checkpoints" / "checkpoint-0000000005.pt")
    store.save({"step": 6}, step=6, is_best=False)
    store.wait()
    assert list(store.paths()) == [6, 5, 4]


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped", "empty", "no checksum", "binary checksum"]
)
def test_damaged_newest_falls_back(
    tmp_path: pathlib.Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path / "checkpoints", 3)
    path = tmp_path / "checkpoints" / "checkpoint-0000000003.pt"
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "no checksum":
        path.with_name(f"{path.name}.sha256").unlink()
    if damage == "binary checksum":
        path.with_name(f"{path.name}.sha256").write_bytes(b"\xff")
    path.write_bytes(
        {
            "truncated": content[:-1],
            "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "empty": b"",
            "no checksum": content,
            "binary checksum": content,
        }[damage]
    )
    newest = store.newest()
    assert newest is not None and torch.load(newest, weights_only=True) == {"step": 2}
    assert capsys.readouterr().err.endswith(" Renamed to checkpoint-0000000003.pt.damaged.\n")
    # It no longer counts as a checkpoint to keep.
    assert list(store.paths()) == [2, 1]
    assert path.with_name("checkpoint-0000000003.pt.damaged").exists()


def test_folder_that_cannot_be_read(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests may run as root, who can read all folders.
    def refuse(folder: pathlib.Path) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(os, "listdir", refuse)
    message = (
        f"Cannot use the checkpoint folder: [Errno 13] Permission denied: '{tmp_path}/c'. Set"
        " another --checkpoint-dir."
    )
    with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
        train_here(tmp_path, f"--checkpoint-dir={tmp_path}/c")


def test_folder_that_cannot_be_written() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as base:
        folder = pathlib.Path(base) / "c"
        folder.mkdir(mode=0o500)
        # For the other user, because root may write everywhere.
        os.chmod(base, 0o777)
        message = (
            "Cannot use the checkpoint folder: [Errno 13] Permission denied:"
            f" '{folder}/draft.probe'. Set another --checkpoint-dir."
        )
        os.seteuid(user or NOBODY)
        try:
            with pytest.raises(errors.UsageError, match=f"^{re.escape(message)}$"):
                train_here(pathlib.Path(base), f"--checkpoint-dir={folder}")
        finally:
            os.seteuid(user)


def test_all_checkpoints_damaged_is_an_error(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "checkpoints"
    store = make_store(folder, 2)
    for step in list(store.paths()):
        (folder / f"checkpoint-{step:010d}.pt").write_bytes(b"")
    message = (
        f"all checkpoints in {folder} are damaged; they were renamed to *.damaged. The next start"
        " begins at step 0."
    )
    with pytest.raises(errors.CheckpointError, match=f"^{re.escape(message)}$"):
        store.newest()
    assert store.newest() is None


@pytest.fixture
def small_files() -> object:
    """No file may become larger than 64 KiB: a write beyond it fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_full_disk_keeps_the_old_file(
    tmp_path: pathlib.Path, small_files: object, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path / "checkpoints", 2)
    store.save({"weights": torch.zeros(100_000)}, step=3, is_best=True)
    # The next save reports the failure and succeeds.
    store.save({"step": 4}, step=4, is_best=False)
    store.wait()
    assert "/checkpoint-0000000003.pt: " in capsys.readouterr().err
    assert list(store.paths()) == [4, 2, 1]
    assert not list((tmp_path / "checkpoints").glob("draft*"))
    assert store.failure is None
    # The failure of the last one is kept: the run ends with it.
    store.save({"weights": torch.zeros(100_000)}, step=5, is_best=False)
    store.wait()
    assert re.match(r"cannot write checkpoint .*/checkpoint-0000000005\.pt: ", str(store.failure))
    newest = store.newest()
    assert newest is not None and torch.load(newest, weights_only=True) == {"step": 4}


@pytest.mark.parametrize("is_best", [False, True])
def test_full_disk_at_the_checksum_leaves_no_draft(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_best: bool
) -> None:
    store = make_store(tmp_path / "checkpoints", 2)
    before = sorted(os.listdir(store.folder))

    def full(*paths: pathlib.Path) -> None:
        if any(".sha256" in path.name for path in paths):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "sync", full)
    store.save({"step": 3}, step=3, is_best=is_best)
    store.wait()
    assert "the disk is full" in str(store.failure)
    assert sorted(os.listdir(store.folder)) == before


def test_older_attempt_saves_nothing(tmp_path: pathlib.Path) -> None:
    def superseded() -> None:
        raise errors.SupersededError("attempt 2 of this job has begun")

    make_store(tmp_path / "checkpoints", 1)
    store = checkpoint.Store(tmp_path / "checkpoints", keep=2, check=superseded)
    store.save({"step": 2}, step=2, is_best=False)
    with pytest.raises(errors.SupersededError):
        store.wait()
    assert sorted(os.listdir(tmp_path / "checkpoints")) == [
        "checkpoint-0000000001.pt",
        "checkpoint-0000000001.pt.sha256",
    ]


def train_here(folder: pathlib.Path, *words: str) -> None:
    always = ["--device=cpu", "--epochs=1", f"--run-dir={folder}"]
    train.run(arguments.parse_arguments([*always, *words]), {})


def test_checkpoint_of_another_run_is_refused(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    train_here(tmp_path)
    message = (
        "The checkpoint has other settings: model cnn, now mlp; seed 0, now 1. Use the settings of"
        " the checkpoint, another --checkpoint-dir, or --resume force."
    )
    with pytest.raises(errors.CheckpointError, match=f"^{re.escape(message)}$"):
        train_here(tmp_path, "--model=mlp", "--seed=1")
    message = "The checkpoint does not match the model and the optimizer: Error"
    fix = "Use those of the checkpoint, or another --checkpoint-dir."
    with pytest.raises(errors.CheckpointError, match=f"^{re.escape(message)}.*{fix}$"):
        train_here(tmp_path, "--model=mlp", "--resume=force", "--epochs=2")


def test_forced_run_has_its_own_rules(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    train_here(tmp_path)
    train_here(tmp_path, "--resume=force", "--epochs=2", "--weight-decay=0.125", "--momentum=0.5")
    path = tmp_path / "checkpoints" / "checkpoint-0000000046.pt"
    (group,) = checkpoint.load(path)["optimizer"]["param_groups"]
    assert (group["weight_decay"], group["momentum"]) == (0.125, 0.5)


def test_forced_run_has_its_own_precision(tmp_path: pathlib.Path) -> None:
    words = ("--dataset=synthetic", "--synthetic-samples=64", "--model=mlp", "--resume=force")
    for epochs, precision in ((1, "fp32"), (2, "fp16"), (3, "fp32")):
        train_here(tmp_path, *words, f"--epochs={epochs}", f"--precision={precision}")
        path = tmp_path / "checkpoints" / f"checkpoint-{epochs:010d}.pt"
        assert bool(checkpoint.load(path)["scaler"]) is (precision == "fp16")


def test_run_with_an_unused_parameter_is_resumed(tmp_path: pathlib.Path) -> None:
    words = ["--task=tests.trainer.several_ranks:Random", "--task-options=kind='branches'"]
    words += ["--batch-size=24", "--device=cpu", f"--run-dir={tmp_path}"]
    for epochs in (1, 2):
        train.run(arguments.parse_arguments([*words, f"--epochs={epochs}"]), {})
    state = checkpoint.load(tmp_path / "checkpoints" / "checkpoint-0000000004.pt")
    assert state["optimizer"]["state"].keys() == {"used.weight", "used.bias"}


def test_averages_of_tied_weights_are_resumed(tmp_path: pathlib.Path) -> None:
    words = ["--task=tests.trainer.several_ranks:Random", "--task-options=kind='tied'"]
    words += ["--batch-size=24", "--device=cpu", "--ema-decay=0.5"]
    states = []
    for name, epochs in (("whole", [2]), ("resumed", [1, 2])):
        for count in epochs:
            options = [f"--epochs={count}", f"--run-dir={tmp_path / name}"]
            train.run(arguments.parse_arguments([*words, *options]), {})
        states.append(checkpoint.load(tmp_path / name / "checkpoints/checkpoint-0000000004.pt"))
    whole, resumed = states
    for part in ("model", "ema"):
        assert whole[part].keys() == resumed[part].keys()
        assert all(torch.equal(whole[part][key], resumed[part][key]) for key in whole[part])


def test_no_requeue_without_a_saved_checkpoint(tmp_path: pathlib.Path, small_files: object) -> None:
    (tmp_path / "stop").touch()
    environ = {
        "ORCHESTRATOR_STOP_FILE": str(tmp_path / "stop"),
        "ORCHESTRATOR_REQUEUE_FILE": str(tmp_path / "requeue"),
    }
    words = ["--device=cpu", "--dataset=synthetic", "--synthetic-samples=64", "--model=mlp"]
    with pytest.raises(
        errors.CheckpointError, match=r"^cannot write checkpoint .*/checkpoint-0000000001\.pt: "
    ):
        train.run(arguments.parse_arguments([*words, f"--run-dir={tmp_path}"]), environ)
    assert not (tmp_path / "requeue").exists()


def test_finished_run_has_nothing_to_do(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    train_here(tmp_path)
    first = capsys.readouterr().out
    before = (tmp_path / "metrics.jsonl").read_bytes()
    train_here(tmp_path)
    head, summary = capsys.readouterr().out.split("\n\n")
    assert head == "Training was complete after step 23: nothing to do."
    # The time of a checkpoint is not yet known when it is captured.
    time_of_checkpoints = re.compile("Waiting for checkpoints: .*")
    assert time_of_checkpoints.sub("", summary) == time_of_checkpoints.sub(
        "", first.split("\n\n")[1]
    )
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    # With more epochs, training continues.
    train_here(tmp_path, "--epochs=2")
    third = capsys.readouterr().out
    assert "Resumed after step 23, in epoch 2.\n" in third
    assert "Epoch 2/2 completed" in third
    # Fewer than it has.
    train_here(tmp_path)
    assert capsys.readouterr().out.startswith(
        "Training was complete after step 46: nothing to do.\n\n"
    )


def test_diverged_run_ends_and_saves_nothing(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    train_here(tmp_path)
    saved = sorted(os.listdir(tmp_path / "checkpoints"))
    with pytest.raises(errors.DivergedError) as raised:
        train_here(tmp_path, "--epochs=3", "--base-lr=1e30", "--resume=force")
    assert raised.value.exit_code == 65
    assert str(raised.value) == (
        "training diverged: the loss became NaN in steps 24 to 46. Use a lower --base-lr, a longer"
        " --warmup-epochs or --max-gradient-norm; earlier checkpoints are kept."
    )
    assert sorted(os.listdir(tmp_path / "checkpoints")) == saved
    assert json.loads((tmp_path / "result.json").read_text())["ending"] == "diverged"


def test_weight_that_is_not_finite_is_not_saved(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    # The loss of the only step is finite; its update makes the weights infinite.
    with pytest.raises(errors.DivergedError, match="a weight became NaN or infinite by step 1"):
        train_here(
            tmp_path, "--base-lr=1e38", "--weight-decay=1e38", "--checkpoint-steps=1", "--epochs=1"
        )
    assert not list((tmp_path / "checkpoints").glob("*.pt"))


# In a mount namespace of its own, so that the file system ends with the program.
FULL_DISK = """
mount -t tmpfs -o size=700k tmpfs "$1" && mkdir "$1/run" && shift
exec "$@"
"""


def test_full_disk_is_named_and_the_results_are_written(
    clean_environ: dict[str, str], tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    folder = tmp_path / "disk"
    folder.mkdir()
    # One checkpoint of 470 KB fits, and no second one.
    script = f"""
import pathlib
from trainers import checkpoint, train
folder = pathlib.Path("{folder}/run/checkpoints")
try:
    train.main(["--device=cpu", "--epochs=2", "--run-dir={folder}/run", "--ema-decay=0.9"])
finally:
    checkpoint.verify(folder / "best.pt")
    print("newest:", checkpoint.Store(folder, keep=3).newest().name)
    print(open("{folder}/run/result.json").read())
"""
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    command = [*unshare, "sh", "-c", FULL_DISK, "sh", str(folder), sys.executable, "-c", script]
    done = subprocess.run(
        command, env=clean_environ, capture_output=True, text=True, check=False, timeout=300
    )
    if "unshare failed" in done.stderr or "mount: " in done.stderr:
        pytest.skip(f"a file system of its own is not permitted here: {done.stderr.strip()}")
    assert done.returncode == 1, done.stderr
    path = f"{folder}/run/checkpoints/checkpoint-0000000046.pt"
    failure = (
        f"cannot write checkpoint {path}: the disk is full. Free space, or set another folder with"
        " --checkpoint-dir."
    )
    assert done.stderr.splitlines() == [
        f"trainers.train: warning: {failure} Training continues; earlier checkpoints are kept.",
        f"trainers.train: error: {failure}",
    ]
    assert "Training Summary:\n" in done.stdout
    assert "newest: checkpoint-0000000023.pt\n" in done.stdout
    assert "Training completed successfully." not in done.stdout
    result = json.loads(done.stdout[done.stdout.index("{") :])
    assert (result["finished"], result["checkpoint_failure"]) == (True, failure)
