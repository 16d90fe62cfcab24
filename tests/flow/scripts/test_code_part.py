"""The part of the script that unpacks a snapshot of the code."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import tarfile
from concurrent import futures
from pathlib import Path

import pytest

from orchestrator import jobs
from tests.flow.scripts import machine as machines

CODE = jobs.Code(snapshot=True, tree="0" * 40, root="/p", folder="sub dir", python_paths=("src",))
PRINT = "import os, sys; print(os.getcwd(), os.environ.get('PYTHONPATH'), *sys.argv[1:])\n"
COUNTING_TAR = '#!/bin/sh\necho "$$" >>"$FAKE/tar.log"\nexec {tar} "$@"\n'


@pytest.fixture(name="machine")
def _machine(machine: machines.Machine) -> machines.Machine:
    """A machine whose run folder has a snapshot."""
    snapshot = machine.folder / "snapshot" / "sub dir"
    snapshot.mkdir(parents=True)
    (snapshot / "t.py").write_text(PRINT)
    with tarfile.open(machine.run_dir / "code.tar", "w") as archive:
        archive.add(snapshot.parent, ".")
    (machine.run_dir / "code.paths").write_text("sub dir\nsrc\nlib\n")
    (machine.folder / "bin" / "tar").write_text(COUNTING_TAR.format(tar=shutil.which("tar")))
    (machine.folder / "bin" / "tar").chmod(0o755)
    return machine


def unpacked(machine: machines.Machine) -> int:
    """Return how often it was unpacked."""
    log = machine.folder / "fake" / "tar.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def output(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def render(machine: machines.Machine, **changes: object) -> str:
    launch = jobs.Launch(launcher="python", script="t.py")
    return machine.render(**{"launch": launch, "code": CODE, **changes})


def test_it_runs_in_the_copy_and_imports_from_it(machine: machines.Machine) -> None:
    code = machine.run_dir / "code"
    variables = {"PYTHONPATH": "/from/the/spec"}
    script = render(machine, environment=jobs.Environment(variables=variables))
    expected = f"{code}/sub dir {code}/src:{code}/lib:/from/the/spec"
    assert output(machine.run(script)) == expected
    (code / "sub dir" / "t.py").write_text(PRINT.replace("argv[1:]", "argv[1:], 'kept'"))
    again = machine.run(script, SLURM_RESTART_COUNT="1")
    assert output(again) == f"{expected} kept"
    assert unpacked(machine) == 1


def test_tasks_that_start_together_unpack_once(machine: machines.Machine) -> None:
    count = 12
    script = render(machine, array=jobs.Array(size=count))

    def run(task: int) -> str:
        return output(
            machine.run(
                script,
                SLURM_JOB_ID=str(50 + task),
                SLURM_ARRAY_JOB_ID="50",
                SLURM_ARRAY_TASK_ID=str(task),
            )
        )

    with futures.ThreadPoolExecutor(count) as pool:
        outputs = set(pool.map(run, range(count)))
    assert len(outputs) == 1
    assert unpacked(machine) == 1
    names = sorted(name for name in os.listdir(machine.run_dir) if name.startswith("code"))
    assert names == ["code", "code.lock", "code.paths", "code.tar"]


def test_an_attempt_that_died_while_it_unpacked(machine: machines.Machine) -> None:
    (machine.run_dir / "code.lock").write_text("41\n")
    (machine.run_dir / "code.draft.41.0").mkdir()
    done = machine.run(render(machine), SLURM_RESTART_COUNT="1")
    assert output(done).startswith(f"{machine.run_dir}/code/sub dir ")
    assert not (machine.run_dir / "code.draft.41.0").exists()


def test_another_task_that_could_not_unpack(machine: machines.Machine) -> None:
    """It removes its lock, and the others try at once."""
    lock = machine.run_dir / "code.lock"
    lock.write_text("40\n")
    process = machine.start(render(machine))
    machines.wait_for(lambda: (machine.run_dir / "attempt.0.0").exists(), "its start")
    assert not (machine.run_dir / "code").exists()
    lock.unlink()
    stdout, _ = process.communicate(timeout=60)
    assert stdout.splitlines()[-1].startswith(f"{machine.run_dir}/code/sub dir ")


def test_it_is_cancelled_while_it_waits(machine: machines.Machine) -> None:
    (machine.run_dir / "code.lock").write_text("40\n")
    process = machine.start(render(machine))
    machines.wait_for(lambda: (machine.run_dir / "attempt.0.0").exists(), "its start")
    # After the banner, the signals are trapped.
    assert process.stdout is not None
    process.stdout.readline()
    machines.wait_for(lambda: _traps_term(process.pid), "its trap")
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert not (machine.run_dir / "code").exists()


def _traps_term(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) & 1 << 14)


def test_a_container_sees_the_copy(machine: machines.Machine) -> None:
    container = jobs.Container(runtime="apptainer", image="/image.sif")
    script = render(machine, container=container)
    code = machine.run_dir / "code"
    assert output(machine.run(script)) == f"{code}/sub dir {code}/src:{code}/lib"
    (words,) = machine.calls("apptainer")
    binds = [words[n + 1] for n, word in enumerate(words) if word == "--bind"]
    assert binds == [str(machine.run_dir), f"{code}/sub dir"]


def test_a_continuation_job_uses_the_copy_of_the_first(machine: machines.Machine) -> None:
    first = machine.folder / "first" / "code" / "sub dir"
    first.mkdir(parents=True)
    (first / "t.py").write_text(PRINT)
    (machine.run_dir / "code").symlink_to(first.parent)
    assert output(machine.run(render(machine))).startswith(f"{first} {first.parent}/src:")
    assert unpacked(machine) == 0


FULL_DISK = """\
mount -t tmpfs -o size=1m,mode=700 full "$1" || exit 99
cp -a "$2/." "$1"
dd if=/dev/zero of="$1/ballast" bs=1k count="$3" 2>/dev/null
bash "$4"; echo "first $?" "$(ls "$1" | tr '\n' ' ')"
rm -f "$1/ballast"
SLURM_RESTART_COUNT=1 bash "$4"; echo "second $?" "$(ls "$1" | tr '\n' ' ')"
"""


@pytest.mark.parametrize(("unpack", "ballast_kib"), [("run_folder", 300), ("node", 700)])
def test_a_full_disk(
    machine: machines.Machine, tmp_path: Path, unpack: str, ballast_kib: int
) -> None:
    """What could be unpacked is removed, and a requeue unpacks again."""
    large = machine.folder / "snapshot" / "large"
    large.write_bytes(b"x" * 400_000)
    with tarfile.open(machine.run_dir / "code.tar", "w") as archive:
        archive.add(large.parent, ".")
    full, empty = tmp_path / "full", tmp_path / "empty"
    for folder in (full, empty):
        folder.mkdir()
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(full)]
    if os.geteuid() != 0 or subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("a full disk needs a small tmpfs, and only root may mount one")
    script = machine.folder / "script"
    script.write_text(render(machine, code=dataclasses.replace(CODE, unpack=unpack)))
    if unpack == "run_folder":
        shutil.copytree(machine.run_dir, empty, dirs_exist_ok=True)
        full = machine.run_dir
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "bash",
            "-c",
            FULL_DISK,
            "bash",
            full,
            empty,
            str(ballast_kib),
            script,
        ],
        env=machine.environ(TMPDIR=str(tmp_path / "full")),
        cwd=machine.folder / "work",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No space left on device" in done.stderr
    message = f"orchestrator: cannot unpack {machine.run_dir}/code.tar on n1: see the message above"
    assert message in done.stderr.splitlines()
    ends = [line for line in done.stdout.splitlines() if line.startswith(("first", "second"))]
    assert [end.split()[1] for end in ends] == ["73", "0"], done
    names = [{name for name in end.split()[2:] if "code" in name} for end in ends]
    if unpack == "node":
        assert names == [set(), set()]
    else:
        assert names == [
            {"code.paths", "code.tar"},
            {"code", "code.lock", "code.paths", "code.tar"},
        ]


def test_each_node_unpacks_for_itself(machine: machines.Machine, tmp_path: Path) -> None:
    """With srun; after a failure on one node all copies are removed."""
    local = tmp_path / "tmp"
    local.mkdir()
    script = render(
        machine,
        code=jobs.Code(snapshot=True, unpack="node", tree="0" * 40),
        resources=jobs.Resources(nodes=2),
    )
    done = machine.run(script, TMPDIR=str(local), SLURM_JOB_NUM_NODES="2")
    # The two nodes of this machine have one disk: the second finds a folder that is not its own.
    assert done.returncode == 73
    options = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    copy = f"{local}/orchestrator-code.41.0.0"
    unpack, remove = machine.calls("srun")
    assert [*unpack[:4], *unpack[-2:]] == [
        *options,
        "bash",
        str(machine.run_dir / "code.tar"),
        copy,
    ]
    assert remove == [*options, "rm", "-rf", copy]
    assert list(local.iterdir()) == []
