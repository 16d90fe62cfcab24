"""The record of the environment, as scripts write it; it neither fails nor changes the program."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import environments, jobs
from orchestrator.rendering import batch_file, templates
from tests.flow.scripts.machine import TOKEN, Machine

PYTHON = jobs.Launch(launcher="python", script="a.py")


def recorded(machine: Machine, attempt: int = 0) -> environments.Record:
    path = machine.run_dir / f"environment.0.{attempt}"
    assert path.stat().st_mode & 0o777 == 0o600
    return environments.parse(path.read_text(), str(machine.run_dir))


def packages(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).mkdir()


def make_python(prefix: Path, *, version: str, minor: str) -> Path:
    """Make what looks like an installed Python; its program prints nothing."""
    (prefix / "bin").mkdir(parents=True)
    interpreter = prefix / "bin" / f"python{minor}"
    interpreter.write_text("#!/bin/sh\n")
    interpreter.chmod(0o755)
    (prefix / "bin" / "python3").symlink_to(interpreter.name)
    (prefix / "include" / f"python{minor}").mkdir(parents=True)
    header = f'#define PY_MAJOR_VERSION 3\n#define PY_VERSION      \t"{version}"\n'
    (prefix / "include" / f"python{minor}" / "patchlevel.h").write_text(header)
    return interpreter


def test_a_real_virtual_environment(machine: Machine) -> None:
    venv = machine.folder / "my venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    show = (
        "import importlib.metadata as m, json, platform\n"
        "names = ('torch', 'nvidia-nccl-cu12')\n"
        "versions = {name: m.version(name) for name in names}\n"
        "print(json.dumps([platform.python_version(), versions]))\n"
    )
    (machine.folder / "work" / "a.py").write_text(show)
    (site,) = venv.glob("lib/python3.*/site-packages")
    packages(site, "torch-2.6.0+cu124.dist-info", "nvidia_nccl_cu12-2.21.5.dist-info")
    for folder in site.glob("*.dist-info"):
        name, version = folder.name.removesuffix(".dist-info").split("-")
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    extra = machine.folder / "extra"
    packages(extra, "torch-2.7.0.dist-info")
    (extra / "torch-2.7.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.7.0\n"
    )
    result = machine.run(
        machine.render(launch=PYTHON, environment=jobs.Environment(venv=str(venv))),
        PYTHONPATH=f"{extra}:/nowhere",
    )
    assert result.stderr == ""
    version, seen = json.loads(result.stdout.splitlines()[-1])
    record = recorded(machine)
    assert record.is_complete
    assert record.environment.python == f"{venv}/bin/python3"
    # What Python itself reports.
    assert record.environment.python_version == version
    assert record.environment.packages == seen == {"torch": "2.7.0", "nvidia-nccl-cu12": "2.21.5"}
    assert record.environment.kernel and record.environment.os
    assert record.environment.variables["VIRTUAL_ENV"] == str(venv)
    assert record.placement.host == "n1" and record.placement.nodes == "n[1-2]"


def test_a_system_python_with_user_packages(machine: Machine) -> None:
    prefix = machine.folder / "usr"
    make_python(prefix, version="3.12.3+", minor="3.12")
    packages(prefix / "lib/python3.12/site-packages", "a-1.dist-info", "b-1.dist-info")
    packages(prefix / "lib64/python3.12/site-packages", "c-1.dist-info")
    packages(prefix / "lib/python3/dist-packages", "d-1.egg-info")
    packages(machine.folder / ".local/lib/python3.12/site-packages", "b-2.dist-info")
    path = f"{prefix}/bin:{machine.folder}/bin:/usr/bin:/bin"
    assert machine.run(machine.render(launch=PYTHON), PATH=path).returncode == 0
    first = recorded(machine).environment
    assert (first.python, first.python_version) == (f"{prefix}/bin/python3", "3.12.3+")
    assert first.packages == {"a": "1", "b": "2", "c": "1", "d": "1"}
    assert (
        machine.run(
            machine.render(launch=PYTHON), PATH=path, PYTHONNOUSERSITE="1", SLURM_RESTART_COUNT="1"
        ).returncode
        == 0
    )
    second = recorded(machine, attempt=1).environment
    assert second.packages == {"a": "1", "b": "1", "c": "1", "d": "1"}


def test_a_conda_environment(machine: Machine) -> None:
    prefix = machine.folder / "conda"
    make_python(prefix, version="3.11.9", minor="3.11")
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "python-3.11.10-h5_0_cpython.json").touch()
    (prefix / "conda-meta" / "python-dateutil-2.9.0-py_0.json").touch()
    packages(prefix / "lib/python3.11/site-packages", "numpy-2.1.0.dist-info")
    launch = jobs.Launch(launcher="python", program=(f"{prefix}/bin/python3", "a.py"))
    assert machine.run(machine.render(launch=launch)).returncode == 0
    environment = recorded(machine).environment
    assert environment.python == f"{prefix}/bin/python3"
    assert environment.python_version == "3.11.10"
    assert environment.packages == {"numpy": "2.1.0"}


def test_a_virtual_environment_with_the_packages_of_the_system(machine: Machine) -> None:
    base, venv = machine.folder / "base", machine.folder / "venv"
    interpreter = make_python(base, version="3.10.1", minor="3.10")
    packages(base / "lib/python3.10/site-packages", "a-1.dist-info", "b-1.dist-info")
    packages(venv / "lib/python3.10/site-packages", "a-2.dist-info")
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(interpreter)
    (venv / "pyvenv.cfg").write_text(
        f"home = {base}/bin\nversion_info = 3.10.1.final.0\ninclude-system-site-packages = TRUE\n"
    )
    launch = jobs.Launch(launcher="python", program=(f"{venv}/bin/python", "a.py"))
    assert machine.run(machine.render(launch=launch)).returncode == 0
    environment = recorded(machine).environment
    assert environment.packages == {"a": "2", "b": "1"}
    assert environment.python_version == "3.10.1"


def test_torchrun_shows_its_python(machine: Machine) -> None:
    prefix = machine.folder / "torch"
    make_python(prefix, version="3.12.3", minor="3.12")
    (prefix / "bin" / "torchrun").symlink_to(machine.folder / "bin" / "torchrun")
    packages(prefix / "lib/python3.12/site-packages", "torch-2.6.0.dist-info")
    launch = jobs.Launch(launcher="torchrun", script="a.py")
    path = f"{prefix}/bin:{machine.folder}/bin:/usr/bin:/bin"
    resources = jobs.Resources(nodes=2)
    script = machine.render(launch=launch, resources=resources)
    assert machine.run(script, PATH=path, SLURM_JOB_NUM_NODES="2").returncode == 0
    text = (machine.run_dir / "environment.0.0").read_text()
    # One of the two tasks wrote it.
    assert text.count("python_version\t") == 1
    assert recorded(machine).environment.packages == {"torch": "2.6.0"}


def test_variables_without_secrets(machine: Machine) -> None:
    secrets = machine.folder / "secrets"
    secrets.write_text("NCCL_HIDDEN=abc\nOTHER=def\n")
    secrets.chmod(0o600)
    environment = jobs.Environment(
        secrets_file=str(secrets), variables={"NCCL_DEBUG": "INFO", "OTHER_VARIABLE": "x"}
    )
    script = machine.render(launch=PYTHON, environment=environment)
    hidden = {"NCCL_TOKEN": "t", "UCX_URL": "https://u:p@host/", "TORCH_API_KEY": "k"}
    machine.run(script, **hidden, CUDA_HOME="/cuda\nx", SLURM_CPUS_PER_TASK="4", DATA="/d")
    text = (machine.run_dir / "environment.0.0").read_text()
    variables = recorded(machine).environment.variables
    assert variables["NCCL_DEBUG"] == "INFO"
    assert variables["CUDA_HOME"] == "/cuda x"
    assert variables["SLURM_CPUS_PER_TASK"] == variables["OMP_NUM_THREADS"] == "4"
    assert not variables.keys() & {*hidden, "NCCL_HIDDEN", "OTHER", "OTHER_VARIABLE", "DATA"}
    assert not any(value in text for value in ("abc", "def", "https://"))


def test_modules(machine: Machine) -> None:
    machine.run(machine.render(launch=PYTHON), LOADEDMODULES="gcc/13:cuda/12.4")
    assert recorded(machine).environment.modules == ("gcc/13", "cuda/12.4")


def test_a_shell_line_and_a_container(machine: Machine) -> None:
    machine.run(machine.render(launch=jobs.Launch(command="echo done")))
    assert recorded(machine).is_complete
    container = jobs.Container(runtime="apptainer", image="/image.sif")
    script = machine.render(launch=PYTHON, container=container)
    machine.run(script, SLURM_RESTART_COUNT="1")
    assert recorded(machine, attempt=1).is_complete


def test_only_the_first_rank_records(machine: Machine) -> None:
    launch = jobs.Launch(launcher="srun", script="a.py")
    script = machine.render(launch=launch, resources=jobs.Resources(ntasks_per_node=3))
    machine.run(script, SLURM_NTASKS="3", SLURM_NTASKS_PER_NODE="3")
    assert (machine.run_dir / "environment.0.0").read_text().count("\nend\t") == 1


def test_a_batch_file_has_the_part_of_the_host(machine: Machine) -> None:
    spec = jobs.JobSpec(name="job", launch=jobs.Launch(batch_file="x.sbatch"))
    origin = templates.Origin(version="0.1.0", spec="x.sbatch")
    text = "#!/bin/bash\n#SBATCH --job-name=job\necho done\n"
    script = batch_file.render(spec, text, runs_dir=machine.runs_dir, origin=origin).text
    result = machine.run(script, NCCL_DEBUG="INFO", NCCL_TOKEN="t")
    assert result.stdout.splitlines()[-1] == "done"
    record = recorded(machine)
    assert record.is_complete
    assert record.environment.kernel and not record.environment.python
    assert record.environment.variables["NCCL_DEBUG"] == "INFO"
    assert "NCCL_TOKEN" not in record.environment.variables


@pytest.mark.parametrize(
    "setup",
    [
        "set -euo pipefail",
        "set -f; shopt -s failglob",
        "mkdir $ORCHESTRATOR_RUN_DIR/environment.0.0",
        "unset HOME PYTHONPATH PATH_; IFS=/",
        "export PYTHONPATH=::/nowhere:$'a\\nb'",
    ],
)
def test_the_program_runs_whatever_happens_to_the_record(machine: Machine, setup: str) -> None:
    (machine.folder / "work" / "a.py").write_text("import os; print(sorted(os.environ)[0])\n")
    environment = jobs.Environment(setup=setup)
    result = machine.run(machine.render(launch=PYTHON, environment=environment))
    assert (result.returncode, result.stderr) == (0, "")
    assert machine.record() == {
        **{"token": TOKEN, "job_id": "41", "task": 0, "attempt": 0, "rc": 0},
        **{"outcome": "end", "done": True},
    }


def test_without_any_python(machine: Machine) -> None:
    launch = jobs.Launch(launcher="python", program=("true",))
    (machine.folder / "bin" / "true").symlink_to("/bin/true")
    for name in ("bash", "cat", "date", "ln", "mv", "readlink", "rm"):
        (machine.folder / "bin" / name).symlink_to(f"/bin/{name}")
    result = machine.run(machine.render(launch=launch), PATH=f"{machine.folder}/bin")
    assert (result.returncode, result.stderr) == (0, "")
    record = recorded(machine)
    assert record.is_complete
    assert (record.environment.python, record.environment.packages) == ("", {})


def test_the_record_of_400_packages_takes_at_most_0_3_s_of_cpu(machine: Machine) -> None:
    prefix = machine.folder / "usr"
    make_python(prefix, version="3.12.3", minor="3.12")
    names = [f"package_{number}-1.{number}.dist-info" for number in range(400)]
    packages(prefix / "lib/python3.12/site-packages", *names)
    launch = jobs.Launch(launcher="python", program=("true",))
    path = f"{prefix}/bin:{machine.folder}/bin:/usr/bin:/bin"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert machine.run(machine.render(launch=launch), PATH=path).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(recorded(machine).environment.packages) == 400
    # That of the whole script: with the record it is 0.03 s.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3
