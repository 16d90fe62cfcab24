"""The environment of a program: variables, secrets, modules, conda, venv, container, launcher."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from orchestrator import errors, jobs
from tests.flow.scripts.machine import Machine

SHOW = """import json, os, sys
json.dump([sys.argv[1:], dict(os.environ), sys.prefix], open("seen", "w"))
"""


def _run(machine: Machine, *, environ: dict[str, str] | None = None, **changes: object) -> str:
    """Run a Python program in a job; return the job's stderr."""
    (machine.folder / "work" / "show.py").write_text(SHOW)
    launch = jobs.Launch(launcher="python", script="show.py")
    result = machine.run(machine.render(**{"launch": launch, **changes}), **(environ or {}))
    record = machine.record()
    assert record is not None and record["done"] is True and record["rc"] == result.returncode
    return result.stderr


def _seen(machine: Machine) -> tuple[list[str], dict[str, str], str]:
    argv, environ, prefix = json.loads((machine.folder / "work" / "seen").read_text())
    return argv, environ, prefix


def _failed(machine: Machine) -> int:
    assert not (machine.folder / "work" / "seen").exists()
    record = machine.record()
    assert record is not None
    return int(str(record["rc"]))


def test_variables_arrive_as_they_were_written(machine: Machine) -> None:
    variables = {"A": "$HOME `x` \"q\" 'q' \\ # ü", "OMP_NUM_THREADS": "3", "EMPTY": ""}
    environment = jobs.Environment(variables=variables, export="none")
    cpus = {"SLURM_CPUS_PER_TASK": "8"}
    assert _run(machine, environment=environment, environ=cpus) == ""
    _, environ, _ = _seen(machine)
    assert variables.items() <= environ.items()
    assert environ["SRUN_CPUS_PER_TASK"] == "8"
    assert environ["SLURM_EXPORT_ENV"] == "ALL"
    assert environ["PYTHONUNBUFFERED"] == "1"
    # A user's program may import modules beside it and from ~/.local.
    assert not environ.keys() & {"PYTHONSAFEPATH", "PYTHONNOUSERSITE"}


def test_one_variable_alone_selects_the_gpus_of_amd(machine: Machine) -> None:
    names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    resources = jobs.Resources(gpus_per_node=2, gpu_vendor="amd")
    _run(machine, resources=resources, environ={name: "2,3" for name in names})
    _, environ, _ = _seen(machine)
    assert {name: environ[name] for name in names if name in environ} == {names[0]: "2,3"}


TORCHRUN = jobs.Launch(launcher="torchrun", script="a.py")


@pytest.mark.parametrize(
    ("launch", "resources", "environ", "threads", "cpus"),
    [
        (jobs.Launch(script="a.py"), jobs.Resources(gpus_per_node=4), {}, "4", "16"),
        (TORCHRUN, jobs.Resources(), {}, "16", "16"),
        (TORCHRUN, jobs.Resources(), {"SLURM_GPUS_ON_NODE": "2"}, "8", "16"),
        (jobs.Launch(script="a.py", nproc_per_node=32), jobs.Resources(), {}, "1", "16"),
        (TORCHRUN, jobs.Resources(), {"OMP_NUM_THREADS": "5"}, "5", "16"),
        # Tasks of Slurm become ranks, which get the CPUs of all tasks.
        (jobs.Launch(script="a.py"), jobs.Resources(ntasks_per_node=3), {}, "16", "48"),
    ],
)
def test_ranks_share_the_cpus_of_a_task(
    machine: Machine,
    launch: jobs.Launch,
    resources: jobs.Resources,
    environ: dict[str, str],
    threads: str,
    cpus: str,
) -> None:
    script = machine.render(launch=launch, resources=resources)
    assert machine.run(script, SLURM_CPUS_PER_TASK="16", **environ).returncode == 0
    seen = json.loads((machine.folder / "fake" / "environ.json").read_text())
    assert (seen["OMP_NUM_THREADS"], seen["SRUN_CPUS_PER_TASK"]) == (threads, cpus)


def _secrets(machine: Machine, text: str, mode: int = 0o600) -> jobs.Environment:
    file = machine.folder / "my secrets"
    file.write_text(text)
    file.chmod(mode)
    return jobs.Environment(secrets_file=str(file))


def test_secrets_are_read_in_the_job_and_nowhere_shown(machine: Machine) -> None:
    environment = _secrets(machine, '# keys\nKEY=$(touch canary) "q" = #\n\nLAST=no newline')
    script = machine.render(environment=environment, launch=jobs.Launch(command="env -0 >seen"))
    assert "touch" not in script
    result = machine.run(script)
    assert "canary" not in result.stdout + result.stderr
    variables = (machine.folder / "work" / "seen").read_text().split("\0")
    assert 'KEY=$(touch canary) "q" = #' in variables
    assert "LAST=no newline" in variables
    assert sorted(os.listdir(machine.folder / "work")) == ["seen"]


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("A=1\n", 0o640, "secrets file FILE can be read by other users: run chmod 600"),
        ("A=1\n", 0o604, "secrets file FILE can be read by other users: run chmod 600"),
        ("A=1\nexport B=2\n", 0o600, "secrets file FILE, line 2: not NAME=VALUE"),
    ],
)
def test_a_secrets_file_that_is_refused(
    machine: Machine, text: str, mode: int, message: str
) -> None:
    environment = _secrets(machine, text, mode)
    stderr = _run(machine, environment=environment)
    assert stderr == f"orchestrator: {message}\n".replace("FILE", f"{machine.folder}/my secrets")
    assert _failed(machine) == 78


#: A shell function as Lmod exports it.
MODULE = {
    "BASH_FUNC_module%%": '() { printf "%s\\n" "$*" >>"$FAKE/module.log"; [ "$2" != missing ]; }'
}


def test_modules_are_loaded_in_their_order(machine: Machine) -> None:
    environment = jobs.Environment(modules=("NRIS/GPU", "a b;touch canary"))
    assert _run(machine, environment=environment, environ=MODULE) == ""
    output = (machine.folder / "fake" / "module.log").read_text()
    assert output == "purge\nload NRIS/GPU\nload a b;touch canary\n"


def test_a_module_that_is_missing_ends_the_job(machine: Machine) -> None:
    environment = jobs.Environment(modules=("missing",), module_purge=False)
    stderr = _run(machine, environment=environment, environ=MODULE)
    assert stderr == ("orchestrator: module missing cannot be loaded: see module spider missing\n")
    assert _failed(machine) == 78
    assert (machine.folder / "fake" / "module.log").read_text() == "load missing\n"


def test_a_venv_is_activated(machine: Machine) -> None:
    venv = machine.folder / "my venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    environment = jobs.Environment(venv=str(venv))
    assert _run(machine, environment=environment) == ""
    _, environ, prefix = _seen(machine)
    assert prefix == str(venv)
    assert environ["PYTHONNOUSERSITE"] == "1"


def test_a_venv_that_is_missing_ends_the_job(machine: Machine) -> None:
    stderr = _run(machine, environment=jobs.Environment(venv="/no/venv"))
    assert stderr == (
        "orchestrator: no virtual environment /no/venv on n1: make it with 'python3 -m venv'\n"
    )
    assert _failed(machine) == 78


def test_conda_is_activated_or_the_job_ends(machine: Machine) -> None:
    base = machine.folder / "conda"
    (base / "etc" / "profile.d").mkdir(parents=True)
    (base / "etc" / "profile.d" / "conda.sh").write_text(
        'conda() { [ "$1 $2" = "activate torch" ] && export CONDA_PREFIX=/envs/torch; }\n'
    )
    conda = machine.folder / "bin" / "conda"
    conda.write_text(f"#!/bin/sh\necho {base}\n")
    conda.chmod(0o755)
    assert _run(machine, environment=jobs.Environment(conda="torch")) == ""
    assert _seen(machine)[1]["CONDA_PREFIX"] == "/envs/torch"


def test_without_conda_the_job_ends(machine: Machine) -> None:
    environ = {"CONDA_EXE": "/no/conda"}
    stderr = _run(machine, environment=jobs.Environment(conda="torch"), environ=environ)
    assert stderr == "orchestrator: no conda on n1: name its module in environment.modules\n"
    assert _failed(machine) == 78


#: Scripts that environments source: with unset variables and commands that fail on the way.
ACTIVATE = """\
unset_is_empty=$nothing
false
[ -n "$nothing" ] && echo never
_activate() { return 1; }
_activate
export ACTIVATED=$1
"""


@pytest.mark.parametrize(
    "setup",
    [
        "cd /nonexistent || true",
        "cd /nonexistent || cd / && cd -",
        "if ! cd /nonexistent; then echo other; fi",
        "while false; do :; done; until true; do :; done; ! false",
        '[ -n "$nothing" ] && echo never',
        "f() { false; true; }\nf",
        "(false; true)\nfalse | true\nhome=$(false; echo /)",
        "set +e\ncd /nonexistent\nset -e\ntrue",
        "set +o errexit; false\nfalse",
        "set +eu\n echo $nothing\n false",
        "source ./activate yes",
        "set -u; unset nothing; set +u\n. ./activate yes",
        "IFS=,\ntrap 'echo bye' USR2\nf() {\n  ./no-such\n  :\n}\nf",
        "cat >../text <<'END'\nset -e\nit's $(unbalanced\nEND",
        "set -E\nf() { false; true; }\nf",
        "set -euo pipefail\ntrue # its options hold for the program only",
        "# only a comment \\",
    ],
)
def test_setup_that_handles_its_errors(machine: Machine, setup: str) -> None:
    work = machine.folder / "work"
    (work / "activate").write_text(ACTIVATE)
    launch = jobs.Launch(launcher="python", command="touch begun; exit 3")
    script = machine.render(launch=launch, environment=jobs.Environment(setup=setup))
    result = machine.run(script)
    assert (work / "begun").exists(), result.stderr
    record = machine.record()
    assert record is not None and (record["rc"], record["done"]) == (3, True)
    assert "orchestrator: " not in result.stderr


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ("cd /nonexistent", "failed in line 1: 'cd /nonexistent' ended with exit code 1"),
        (
            "echo one\n\n  cd /nonexistent # my data\ntouch begun",
            "failed in line 3: 'cd /nonexistent # my data' ended with exit code 1",
        ),
        ("no-such-tool --x", "failed in line 1: 'no-such-tool --x' ended with exit code 127"),
        ("source ./none.sh", "failed in line 1: 'source ./none.sh' ended with exit code 1"),
        ("f() { true; return 5; }\nf", "failed in line 2: 'f' ended with exit code 5"),
        ("(exit 6)", "failed in line 1: '(exit 6)' ended with exit code 6"),
        ("set +e\nfalse\nset -e\nfalse", "failed in line 4: 'false' ended with exit code 1"),
        ("true | false", "failed in line 1: 'true | false' ended with exit code 1"),
        ("for i in 1 2; do\n  false\ndone", "failed in line 2: 'false' ended with exit code 1"),
        ("x=$(false)", "failed in line 1: 'x=$(false)' ended with exit code 1"),
        ("IFS=,\nfalse", "failed in line 2: 'false' ended with exit code 1"),
        ("echo 'it is\nfi", "is not valid shell code: see the message above"),
        ("fi\ntouch begun", "is not valid shell code: see the message above"),
    ],
)
def test_setup_that_fails_ends_the_job(machine: Machine, setup: str, message: str) -> None:
    launch = jobs.Launch(launcher="python", command="touch begun")
    script = machine.render(launch=launch, environment=jobs.Environment(setup=setup))
    result = machine.run(script)
    assert not (machine.folder / "work" / "begun").exists()
    hint = " (append || true if it may fail)" if message.startswith("failed") else ""
    last = result.stderr.splitlines()[-1]
    assert last == f"orchestrator: environment.setup {message}{hint}"
    record = machine.record()
    assert record is not None and (record["rc"], record["done"]) == (78, True)
    assert result.returncode == 78


@pytest.mark.parametrize(
    "setup",
    [
        "exit 4",
        "cd /nonexistent || exit 4",
        "set -e\nf() { (exit 4); }\nf",
        "f() { exit 4; }; f",
        ": ${DATA_DIR:?set it}",
        "set -u; echo $nothing",
    ],
)
def test_setup_that_ends_the_script(machine: Machine, setup: str) -> None:
    launch = jobs.Launch(launcher="python", command="touch begun")
    script = machine.render(launch=launch, environment=jobs.Environment(setup=setup))
    result = machine.run(script)
    assert not (machine.folder / "work" / "begun").exists()
    # bash exits with 127 or 1 for an unset variable.
    assert result.returncode == 4 if "4" in setup else result.returncode in (1, 127)
    last = result.stderr.splitlines()[-1]
    code = result.returncode
    assert last == f"orchestrator: environment.setup ended the job with exit code {code}"


def test_setup_that_exits_without_an_error(machine: Machine) -> None:
    launch = jobs.Launch(launcher="python", command="touch begun")
    script = machine.render(launch=launch, environment=jobs.Environment(setup="exit 0"))
    assert machine.run(script).returncode == 0
    assert not (machine.folder / "work" / "begun").exists()


def test_scancel_during_the_setup_is_not_a_failed_setup(machine: Machine) -> None:
    launch = jobs.Launch(launcher="python", command="touch begun")
    setup = "kill -TERM $$; sh -c 'kill -TERM $$'"
    script = machine.render(launch=launch, environment=jobs.Environment(setup=setup))
    result = machine.run(script)
    assert (result.returncode, "orchestrator: " in result.stderr) == (143, False)
    assert not (machine.folder / "work" / "begun").exists()


def test_a_container_sees_the_run_folder_and_our_trainer(machine: Machine) -> None:
    environment = jobs.Environment(variables={"NCCL_SOCKET_IFNAME": "hsn0,hsn1"})
    container = jobs.Container(
        runtime="apptainer", image="/images/a b.sif", gpu="nv", binds=("/my data:/data:ro",)
    )
    script = machine.render(
        environment=environment,
        container=container,
        launch=jobs.Launch(module="trainers.train", nproc_per_node=2),
    )
    assert machine.run(script, PYTHONPATH="/site").returncode == 0
    (words,) = machine.calls("apptainer")
    trainers = Path(__file__).resolve().parents[3] / "trainers"
    assert words[: words.index("bash")] == [
        *["exec", "--nv", "--bind", str(machine.run_dir), "--bind", str(machine.folder / "work")],
        *["--bind", f"{trainers}:/opt/orchestrator/trainers:ro", "--bind", "/my data:/data:ro"],
        "/images/a b.sif",
    ]
    environ = json.loads((machine.folder / "fake" / "environ.json").read_text())
    expected = {
        "PYTHONPATH": "/opt/orchestrator",
        "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1",
        "APPTAINERENV_PYTHONUNBUFFERED": "1",
        "APPTAINERENV_NCCL_SOCKET_IFNAME": "hsn0,hsn1",
        "ORCHESTRATOR_RUN_DIR": str(machine.run_dir),
    }
    assert expected.items() <= environ.items()
    assert "APPTAINERENV_OMP_NUM_THREADS" not in environ


_OTHER_RUNTIMES: dict[str, tuple[str, str]] = {
    "charliecloud": ("/images/a b", "ch-run"),
    "podman-hpc": ("me/torch:2", "podman-hpc"),
    "edf": ("torch.toml", "srun"),
    "pyxis": ("nvcr.io#x/y", "srun"),
}


@pytest.mark.parametrize("runtime", _OTHER_RUNTIMES)
def test_the_words_of_other_runtimes(machine: Machine, runtime: str) -> None:
    image, command = _OTHER_RUNTIMES[runtime]
    work, run_dir = str(machine.folder / "work"), str(machine.run_dir)
    trainers = f"{Path(__file__).resolve().parents[3] / 'trainers'}:/opt/orchestrator/trainers"
    script = machine.render(
        environment=jobs.Environment(variables={"NCCL_DEBUG": "it's"}),
        container=jobs.Container(
            runtime=runtime,  # type: ignore[arg-type]
            image=image,
            binds=("/my data",),
        ),
        resources=jobs.Resources(ntasks=2),
        launch=jobs.Launch(launcher="srun", module="trainers.train"),
    )
    machine.run(script, NCCL_DEBUG="host")
    words = machine.calls(command)[-1]
    binds = ["/my data:/my data", f"{trainers}:ro", f"{run_dir}:{run_dir}", f"{work}:{work}"]
    if runtime == "edf":
        (option,) = [word for word in words if word.startswith("--environment=")]
        edf = tomllib.loads(Path(option.partition("=")[2]).read_text())
        assert edf == {"base_environment": f"{work}/torch.toml", "workdir": work, "mounts": binds}
        return
    names = ["PYTHONUNBUFFERED", "PYTHONSAFEPATH", "PYTHONNOUSERSITE", "OMP_NUM_THREADS"]
    if runtime == "pyxis":
        assert words[: words.index("bash")][-4:] == [
            f"--container-image={image}",
            f"--container-mounts={','.join(binds)}",
            f"--container-env={','.join([*names, 'NCCL_DEBUG'])}",
            f"--container-workdir={work}",
        ]
        return
    expected = {
        "charliecloud": [
            *("--write-fake", "--unset-env=LD_LIBRARY_PATH"),
            "--set-env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            *("--set-env", f"--cd={work}"),
            *(f"--bind={bind.removesuffix(':ro')}" for bind in binds),
            *(image, "--"),
        ],
        "podman-hpc": [
            *("shared-run", "--rm", "--pull=never", "--network=host", "--ipc=host"),
            f"--workdir={work}",
            *(f"--volume={bind}" for bind in binds),
            *("--env-host", "--env=TMPDIR=/tmp"),
            *(f"--env={name}" for name in (*names, "NCCL_DEBUG")),
            image,
        ],
    }
    assert words[: words.index("bash")] == expected[runtime]


@pytest.mark.parametrize("runtime", ["charliecloud", "edf"])
def test_the_image_does_not_override_variables(machine: Machine, runtime: str) -> None:
    """What the image sets is replaced by the job's values, and all else stays."""
    line = 'printf "%s\\n" "$NCCL_DEBUG" "$SECRET" "${FROM_IMAGE:-}" >values'
    (machine.folder / "secrets").write_text("SECRET=a b\n")
    (machine.folder / "secrets").chmod(0o600)
    script = machine.render(
        environment=jobs.Environment(
            variables={"NCCL_DEBUG": "it's $1"}, secrets_file=str(machine.folder / "secrets")
        ),
        container=jobs.Container(runtime=runtime, image="/image"),  # type: ignore[arg-type]
        launch=jobs.Launch(launcher="python", command=line),
    )
    assert machine.run(script).returncode == 0
    own = "image" if runtime == "charliecloud" else ""
    values = (machine.folder / "work" / "values").read_text()
    assert values == f"it's $1\na b\n{own}\n"


def _torchrun(machine: Machine, launch: jobs.Launch, nodes: int) -> list[list[str]]:
    resources = jobs.Resources(nodes=nodes, gpus_per_node=2)
    script = machine.render(launch=launch, resources=resources, args={"a_b": -1.5, "c": True})
    result = machine.run(script, SLURM_JOB_NUM_NODES=str(nodes), SLURM_JOB_ID="1234567")
    assert result.returncode == 0, result.stderr
    return sorted(machine.calls("torchrun"))


def test_torchrun_on_one_node(machine: Machine) -> None:
    (words,) = _torchrun(machine, jobs.Launch(module="trainers.train"), nodes=1)
    assert words == [
        *["--standalone", "--nnodes=1", "--nproc-per-node=2", "--local-addr=127.0.0.1"],
        *["--max-restarts=0", f"--log-dir={machine.run_dir}/torchrun/0.0"],
        *["-m", "trainers.train", "--a-b", "-1.5", "--c"],
    ]
    assert machine.calls("scontrol") == []


def test_torchrun_on_several_nodes_meets_at_the_first(machine: Machine) -> None:
    launch = jobs.Launch(launcher="torchrun", program=("./train", "-x"))
    client, host = _torchrun(machine, launch, nodes=2)
    assert host == [
        *["--nnodes=2", "--nproc-per-node=2", "--local-addr=localhost", "--rdzv-backend=c10d"],
        *["--rdzv-id=1234567.0", "--rdzv-endpoint=localhost:24567"],
        *["--rdzv-conf=is_host=1,join_timeout=600", "--max-restarts=0"],
        f"--log-dir={machine.run_dir}/torchrun/0.0",
        *["--no-python", "./train", "-x", "--a-b", "-1.5", "--c"],
    ]
    assert client == [word.replace("is_host=1", "is_host=0") for word in host]
    (srun,) = machine.calls("srun")
    assert srun[:5] == [
        *["--nodes=2", "--ntasks=2", "--ntasks-per-node=1"],
        *["--kill-on-bad-exit=1", "--wait=60"],
    ]


def test_without_a_first_node_the_job_ends(machine: Machine) -> None:
    script = machine.render(resources=jobs.Resources(nodes=2), launch=jobs.Launch(script="a.py"))
    result = machine.run(script, FAKE_HEAD="")
    assert result.returncode == 78
    assert result.stderr == ("orchestrator: scontrol on n1 does not name the nodes of this job\n")
    assert machine.calls("srun") == []


def test_srun_gives_each_rank_its_numbers(machine: Machine) -> None:
    (machine.folder / "work" / "rank.py").write_text(
        "import os\nnames = 'RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT'.split()\n"
        "os.write(1, (' '.join(os.environ[name] for name in names) + '\\n').encode())\n"
    )
    script = machine.render(
        resources=jobs.Resources(nodes=2, gpus_per_node=2),
        launch=jobs.Launch(launcher="srun", script="rank.py"),
    )
    result = machine.run(script, SLURM_JOB_NUM_NODES="2")
    assert sorted(result.stdout.splitlines()[1:]) == [
        "0 0 4 localhost 20041",
        "1 1 4 localhost 20041",
        "2 0 4 localhost 20041",
        "3 1 4 localhost 20041",
    ]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (("show.py", "-x"), ["-x"]),
        (("python3", "-u", "show.py", "-x"), ["-x"]),
        (("-c", "exec(open('show.py').read())", "-x"), ["-x"]),
        (("bash", "-c", 'exec python3 show.py "$@"', "bash", "-x"), ["-x"]),
    ],
)
def test_a_program_is_started_as_it_was_given(
    machine: Machine, program: tuple[str, ...], words: list[str]
) -> None:
    (machine.folder / "work" / "show.py").write_text(SHOW)
    script = machine.render(launch=jobs.Launch(launcher="python", program=program))
    assert machine.run(script).returncode == 0
    assert _seen(machine)[0] == words


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("bash", "-c", "exit 4"), 4),
        (("python3", "-c", "import os; os.kill(os.getpid(), 9)"), 137),
        (("rank.py", "5"), 5),
    ],
)
def test_a_program_keeps_its_exit_code(machine: Machine, words: tuple[str, ...], code: int) -> None:
    (machine.folder / "work" / "rank.py").write_text("import sys; sys.exit(int(sys.argv[1]))")
    script = machine.render(
        launch=jobs.Launch(program=words), resources=jobs.Resources(gpus_per_node=1)
    )
    assert machine.run(script).returncode == code
    assert machine.calls("torchrun") == machine.calls("srun") == []


@pytest.mark.parametrize(
    ("launch", "reported"),
    [
        (
            jobs.Launch(program=("no-such-program", "-x")),
            "no-such-program: command not found on n1",
        ),
        (jobs.Launch(program=("./no such/prog",)), "./no such/prog: command not found on n1"),
        (jobs.Launch(program=("/no/python", "a.py")), "/no/python: command not found on n1"),
        (
            jobs.Launch(program=("/no/python", "a.py"), nproc_per_node=2),
            "/no/python: command not found on localhost. It comes with PyTorch: set "
            "environment.venv, conda or modules",
        ),
    ],
)
def test_a_missing_program_is_named(machine: Machine, launch: jobs.Launch, reported: str) -> None:
    result = machine.run(machine.render(launch=launch))
    assert (result.returncode, result.stderr) == (127, f"orchestrator: {reported}\n")


def test_without_torch_torchrun_is_named(machine: Machine) -> None:
    (machine.folder / "bin" / "torchrun").unlink()
    script = machine.render(launch=jobs.Launch(program=("a.py",), nproc_per_node=2))
    path = ":".join(
        position
        for position in machine.environ()["PATH"].split(":")
        if not Path(position, "torchrun").exists()
    )
    result = machine.run(script, PATH=path)
    assert result.returncode == 127
    assert result.stderr.startswith("orchestrator: torchrun: command not found on localhost. It c")


def test_a_program_that_is_not_executable_is_not_called_missing(machine: Machine) -> None:
    (machine.folder / "work" / "prog").write_text("#!/bin/sh\n")
    result = machine.run(machine.render(launch=jobs.Launch(program=("./prog",))))
    assert result.returncode == 126
    assert "/prog: Permission denied" in result.stderr


HOSTILE = (
    "x --partition=evil;touch canary $(touch canary) `touch canary` && touch canary | cat"
    " 'single' \"double\" # comment \\ \\' %j %% ${HOME} !! * ~ ünïcödé 🙂"
)


def _text_fields() -> list[tuple[str, str]]:
    tables = {
        "": jobs.JobSpec,
        "resources": jobs.Resources,
        "environment": jobs.Environment,
        "container": jobs.Container,
        "launch": jobs.Launch,
    }
    return [
        (table, field.name)
        for table, record in tables.items()
        for field in dataclasses.fields(record)
        # What a person writes as shell is shell. Names to inherit and the name of the fabric are no
        # part of the script.
        if ("str" in str(field.type) or "Mapping" in str(field.type))
        and "Literal" not in str(field.type)
        and field.name
        not in {"setup", "command", "labels", "name", "batch_file", "inherit", "fabric"}
    ]


def _hostile(table: str, key: str, text: str) -> jobs.JobSpec:
    value: object = text
    if key in {"modules", "binds", "program"}:
        value = (text,)
    elif key in {"variables", "args"}:
        value = {"KEY": text}
    elif key == "sbatch":
        value = {"hint": text}
    spec = jobs.JobSpec(
        name="job",
        resources=jobs.Resources(gpus_per_node=None if key == "gres" else 1),
        launch=jobs.Launch(launcher="python", script="show.py"),
        container=jobs.Container(runtime="apptainer" if table == "container" else "none"),
    )
    if table == "container":
        image = jobs.Container(runtime="apptainer", image="/image.sif")
        return dataclasses.replace(spec, container=dataclasses.replace(image, **{key: value}))  # type: ignore[arg-type]
    if table == "launch" and key != "script":
        return dataclasses.replace(spec, launch=jobs.Launch(launcher="python", **{key: value}))  # type: ignore[arg-type]
    if table:
        return dataclasses.replace(
            spec, **{table: dataclasses.replace(getattr(spec, table), **{key: value})}
        )
    return dataclasses.replace(spec, **{key: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("table", "key"), _text_fields())
def test_hostile_text_is_text(machine: Machine, table: str, key: str) -> None:
    (machine.folder / "work" / "show.py").write_text(SHOW)
    spec = _hostile(table, key, HOSTILE)
    changes = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    script = machine.render(**changes)
    # That it has exactly the directives of the spec was checked by `render` itself.
    machine.run(script, **MODULE)
    left = {path.name for path in machine.folder.rglob("*") if "canary" in path.name}
    assert left == set()
    if key == "args":
        assert _seen(machine)[0] == ["--KEY", HOSTILE]
    if key == "variables":
        assert _seen(machine)[1]["KEY"] == HOSTILE


@pytest.mark.parametrize(("table", "key"), _text_fields())
def test_a_control_character_is_refused(machine: Machine, table: str, key: str) -> None:
    spec = _hostile(table, key, "a\n#SBATCH --partition=evil\ntouch canary")
    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    with pytest.raises(errors.TemplateError, match=r"^control character '\\n' in "):
        machine.render(**fields)


def test_arguments_arrive_through_torchrun_as_they_were_written(machine: Machine) -> None:
    args = {"message": HOSTILE, "list": ("a b", "", "$x"), "small": 1e-05, "no": False}
    resources = jobs.Resources(nodes=2)
    script = machine.render(launch=jobs.Launch(script="a.py"), resources=resources, args=args)
    assert machine.run(script, SLURM_JOB_NUM_NODES="2").returncode == 0
    for words in machine.calls("torchrun"):
        assert words[words.index("a.py") + 1 :] == [
            *["--message", HOSTILE],
            *["--list", "a b", "--list", "", "--list", "$x", "--small", "1e-05"],
        ]
