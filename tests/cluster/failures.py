"""Failures that tests produce on the test cluster, and what `explain` must show for each.

The table in docs/explain.md is generated from this list.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterator, Mapping

from tests.cluster import environment, root

PROGRAMS = f"{environment.CHECKOUT_PLACE}/tests/cluster/failing"
#: The host whose network is disconnected and on which jobs are preempted.
TROUBLED = "n4"
#: The host with a small /dev/shm and a small disk.
SMALL = "n3"
#: The partition for whose jobs the prolog fails.
BAD_PROLOG = "scavenge"
#: A folder of the login host's own disk.
LOGIN_ONLY = "/tmp/login"


class End(enum.Enum):
    """The outcome of a case's job."""

    #: it runs and ends
    ENDED = "ended"
    #: it is pending
    WAITS = "waits"
    #: sbatch rejects it
    REFUSED = "refused"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One failure."""

    #: also the name of the job
    name: str
    #: how it was produced, for the table
    how: str
    #: None: nothing is wrong
    cause: str | None
    #: part of the summary or of the evidence
    evidence: str
    #: keys of the spec by table
    tables: Mapping[str, str]
    #: options of submit
    flags: tuple[str, ...] = ()
    end: End = End.ENDED
    #: the first failing rank that `explain` must show
    rank: int | None = None
    #: Slurm releases that accept it and leave it pending, and then part of the evidence
    accepted: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: with --long only, because several processes import PyTorch
    long: bool = False

    @property
    def spec(self) -> str:
        """The spec; {home} and {parent} are to be put in."""
        tables = {"job": "", **self.tables}
        job = [f'name = "{self.name}"', tables["job"]]
        if "time_limit" not in tables["job"]:
            job.append('time_limit = "5"')
        if "nodelist" not in tables["job"]:
            job.append(f'exclude = "{SMALL},{TROUBLED}"')
        tables["job"] = "\n".join(job)
        return "".join(f"[{name}]\n{keys}\n" for name, keys in tables.items())


def _shell(command: str, **tables: str) -> dict[str, str]:
    # Bare `python` is the environment's.
    return {**tables, "launch": f'launcher = "python"\ncommand = {json.dumps(command)}'}


def _program(file: str, how: str, **tables: str) -> dict[str, str]:
    launch = f'launcher = "python"\nscript = "{PROGRAMS}/{file}.py"'
    return {**_environment(tables), "launch": launch, "args": f'how = "{how}"'}


def _ranks(how: str, **tables: str) -> dict[str, str]:
    launch = f'launcher = "torchrun"\nnproc_per_node = 2\nscript = "{PROGRAMS}/ranks.py"'
    tables = {"resources": 'mem = "3G"', **tables}
    return {**_environment(tables), "launch": launch, "args": f'how = "{how}"'}


def _environment(tables: Mapping[str, str]) -> dict[str, str]:
    venv = f'venv = "{environment.PLACE}"'
    own = tables.get("environment", 'variables = { OMP_NUM_THREADS = "1" }')
    return {**tables, "environment": f"{venv}\n{own}"}


def _image(path: str) -> str:
    return f'runtime = "apptainer"\nimage = "{path}"\ngpu = "none"'


def _on(node: str, requeue: str) -> str:
    return f'nodelist = "{node}"\npartition = "{BAD_PROLOG}"\nrequeue = {requeue}'


def _ended_by_slurm() -> Iterator[Case]:
    yield Case(
        name="over-time",
        how="`sleep 300`; root sets its end time to now, which acts like its time limit",
        cause="time_limit",
        evidence="of its time limit of",
        tables=_shell("echo begun; sleep 300"),
    )
    yield Case(
        name="memory-kill",
        how="a step that needs 600 MiB under `mem = 200M`, killed by its cgroup",
        cause="oom_host",
        evidence="kill event",
        tables=_shell(
            f"srun {environment.PLACE}/bin/python {PROGRAMS}/plain.py --how hog",
            resources='mem = "200M"',
        ),
    )
    yield Case(
        name="memory-kill-of-a-step",
        how="the same, in a script that continues and exits with 1",
        cause="oom_host",
        evidence="kill event",
        tables=_shell(
            f"srun {environment.PLACE}/bin/python {PROGRAMS}/plain.py --how hog || exit 1",
            resources='mem = "200M"',
        ),
    )
    yield Case(
        name="node-lost",
        how="its host is disconnected from the network",
        cause="node_fail",
        evidence=TROUBLED,
        tables=_shell(
            "sleep 300",
            job=f'requeue = false\nnodelist = "{TROUBLED}"',
        ),
    )
    yield Case(
        name="preempted",
        how="a job of higher priority needs its host, in a partition with PreemptMode=CANCEL",
        cause="preempted",
        evidence="partition spot",
        tables=_shell("sleep 300", job=f'partition = "spot"\nnodelist = "{TROUBLED}"'),
    )
    yield Case(
        name="preempted-step",
        how="the same, and its step ends at the SIGTERM with which the grace time begins",
        cause="preempted",
        evidence="partition spot",
        tables=_shell(
            "srun sh -c 'echo begun; exec sleep 300'",
            job=f'partition = "spot"\nnodelist = "{TROUBLED}"',
        ),
    )
    yield Case(
        name="cancelled-by-us",
        how="`orchestrator cancel`",
        cause="cancelled",
        evidence="you cancelled it with orchestrator cancel",
        tables=_shell("sleep 300"),
    )
    yield Case(
        name="cancelled-by-hand",
        how="`scancel` by its own user",
        cause="cancelled",
        evidence="you (alice) or your program cancelled it with scancel",
        tables=_shell("sleep 300"),
    )
    yield Case(
        name="cancelled-by-root",
        how="`scancel` by root",
        cause="cancelled",
        evidence="root",
        tables=_shell("sleep 300"),
    )
    yield Case(
        name="cancelled-by-operator",
        how="`scancel` by bob, an operator of the site",
        cause="cancelled",
        evidence="bob",
        tables=_shell("sleep 300"),
    )
    yield Case(
        name="cancelled-while-waiting",
        how="`scancel` by its own user, before it started",
        cause="cancelled",
        evidence="while it was pending",
        tables=_shell("true", sbatch="hold = true"),
    )
    yield Case(
        name="deadline",
        how="its time limit ends after its deadline, which root brings forward",
        cause="deadline",
        evidence="deadline",
        tables=_shell(
            "true", job='time_limit = "1"', sbatch='hold = true\ndeadline = "now+2hours"'
        ),
    )
    yield Case(
        name="no-log",
        how="the folder of its log is not writable when it starts",
        cause="launch_failed",
        evidence="0:53",
        tables=_shell("true", job='output = "{home}/closed/%j.out"', sbatch="hold = true"),
    )
    yield Case(
        name="prolog",
        how="the site's prolog fails on its host; `requeue = false`",
        cause="launch_failed",
        evidence="before its script began",
        tables=_shell("true", job=_on(TROUBLED, "false"), sbatch="hold = true"),
    )
    yield Case(
        name="no-run-folder",
        how="its run folder is removed while it is pending",
        cause="run_folder",
        evidence="nothing was run",
        tables=_shell("true", job='output = "{home}/%j.out"', sbatch="hold = true"),
    )


def _set_up() -> Iterator[Case]:
    yield Case(
        name="no-module-command",
        how="`modules` on hosts without the command `module`",
        cause="setup_failed",
        evidence="no 'module' on n",
        tables=_shell("true", environment='modules = ["NRIS/GPU"]'),
    )
    yield Case(
        name="no-conda",
        how="`conda` on hosts without conda",
        cause="setup_failed",
        evidence="no conda on n",
        tables=_shell("true", environment='conda = "torch"'),
    )
    yield Case(
        name="no-venv",
        how="`venv` names a folder that does not exist",
        cause="setup_failed",
        evidence="no virtual environment /home/alice/nosuch",
        tables=_shell("true", environment='venv = "/home/alice/nosuch"'),
    )
    yield Case(
        name="no-secrets",
        how="a secrets file that only the login host has",
        cause="setup_failed",
        evidence=f"secrets file {LOGIN_ONLY}/secrets cannot be read",
        tables=_shell("true", environment=f'secrets_file = "{LOGIN_ONLY}/secrets"'),
    )
    yield Case(
        name="bad-setup",
        how="a line of `setup` that fails",
        cause="setup_failed",
        evidence="environment.setup failed in line 1: 'cd /cluster/projects/nosuch'",
        tables=_shell("true", environment='setup = "cd /cluster/projects/nosuch"'),
    )
    yield Case(
        name="no-image",
        how="a container image that only the login host has",
        cause="container",
        evidence=f"{LOGIN_ONLY}/model.sif",
        tables=_shell("true", container=_image(f"{LOGIN_ONLY}/model.sif")),
    )
    yield Case(
        name="bad-image",
        how="a container image that was truncated by a copy",
        cause="container",
        evidence="cut.sif",
        tables=_shell("true", container=_image("{home}/cut.sif")),
    )
    yield Case(
        name="no-bind",
        how="`binds` with a folder that only the login host has",
        cause="container",
        evidence=f"{LOGIN_ONLY}/data",
        tables=_shell(
            "true", container=f'{_image(root.IMAGE)}\nbinds = ["{LOGIN_ONLY}/data:/data"]'
        ),
    )
    yield Case(
        name="no-pyxis",
        how="`runtime = pyxis` on a cluster without it",
        cause="container",
        evidence="container-image",
        tables=_shell("true", container='runtime = "pyxis"\nimage = "docker://pytorch/pytorch"'),
    )
    yield Case(
        name="image-without-program",
        how="a program that is on the host but not in the image",
        cause="missing_file",
        evidence=f"{PROGRAMS}/plain.py",
        tables=_shell(
            f"python3 {PROGRAMS}/plain.py --how raises",
            container=_image(root.IMAGE),
        ),
    )


def _programs() -> Iterator[Case]:
    yield Case(
        name="exception",
        how="raise",
        cause="python_exception",
        evidence="KeyError: 'dog'",
        tables=_program("plain", "raises"),
    )
    plain = (
        ("module", "a Python module that is not installed", "missing_module", "flash_attn"),
        ("library", "a missing shared library", "missing_library", "libcudnn.so.8"),
        ("file", "a missing data file", "missing_file", "imagenet/train.txt"),
        (
            "forbidden",
            "a file that is not writable",
            "permission",
            "/home/bob/results.csv",
        ),
        ("memory", "more address space than `ulimit -v` allows", "oom_host", "MemoryError"),
        ("files", "more files than `ulimit -n` allows", "too_many_files", "Too many open files"),
        ("port", "a port that is in use", "address_in_use", "Address already in use"),
        ("internet", "a download on a node without internet", "network", "Temporary failure in"),
        ("proxy", "a proxy that does not answer", "network", "Connection refused"),
        ("segfault", "a read from a bad address", "segfault", "139"),
        ("aborts", "`abort()`", "aborted", "134"),
        (
            "illegal",
            "an instruction unknown to the processor",
            "illegal_instruction",
            "132",
        ),
        ("diverges", "a learning rate of 1e30", "diverged", "Loss is nan"),
    )
    for name, how, cause, evidence in plain:
        yield Case(
            name=name, how=how, cause=cause, evidence=evidence, tables=_program("plain", name)
        )
    small = f'nodelist = "{SMALL}"'
    yield Case(
        name="full",
        how="a checkpoint larger than the disk (a tmpfs of 1 MiB)",
        cause="disk_full",
        evidence="No space left on device",
        tables=_program("plain", "full", job=small),
    )
    with_torch = 'mem = "2G"'
    yield Case(
        name="loader",
        how="batches of a DataLoader worker larger than /dev/shm (1 MiB)",
        cause="shared_memory",
        evidence="shared memory",
        tables=_program("alone", "loader", job=small, resources=with_torch),
    )
    torch = (
        ("cuda", "PyTorch uses CUDA on a host without a GPU", "no_device", "NVIDIA driver"),
        ("address", "two TCPStores on one port", "address_in_use", "EADDRINUSE"),
    )
    for name, how, cause, evidence in torch:
        tables = _program("alone", name, resources=with_torch)
        yield Case(name=name, how=how, cause=cause, evidence=evidence, tables=tables, long=True)
    yield Case(
        name="bad-argument",
        how="an unknown argument",
        cause="bad_arguments",
        evidence="unrecognized arguments: --epochs 3",
        tables=_shell(f"python3 {PROGRAMS}/plain.py --how raises --epochs 3"),
    )


def _shells() -> Iterator[Case]:
    yield Case(
        name="exit-3",
        how="`exit 3` without any output",
        cause="nonzero_exit",
        evidence="exit code 3",
        tables=_shell("exit 3"),
    )
    yield Case(
        name="no-program",
        how="a missing program (127)",
        cause="missing_program",
        evidence="trian: command not found",
        tables=_shell("trian --epochs 3"),
    )
    yield Case(
        name="not-executable",
        how="a script that is not executable (126)",
        cause="permission",
        evidence="Permission denied",
        tables=_shell("{home}/plain.sh"),
    )
    yield Case(
        name="bad-interpreter",
        how="a script with a missing interpreter in its `#!` line (126)",
        cause="missing_program",
        evidence="required file not found",
        tables=_shell("{home}/interpreter.sh"),
    )
    yield Case(
        name="shot",
        how="the batch script is killed by SIGKILL",
        cause="killed",
        evidence="SIGKILL",
        tables=_shell("kill -9 $$"),
    )
    yield Case(
        name="terminated",
        how="the program ends by SIGTERM (143)",
        cause="killed",
        evidence="SIGTERM",
        tables=_shell("sh -c 'kill -TERM $$'"),
    )
    yield Case(
        name="bus-error",
        how="the program ends by SIGBUS (135)",
        cause="shared_memory",
        evidence="SIGBUS",
        tables=_shell("sh -c 'kill -BUS $$'"),
    )
    yield Case(
        name="syntax",
        how="a syntax error in a Python program",
        cause="python_exception",
        evidence="SyntaxError",
        tables=_shell("python3 {home}/syntax.py"),
    )
    yield Case(
        name="bad-exit-kills",
        how="one of two tasks exits with 3 under `srun --kill-on-bad-exit`",
        cause="nonzero_exit",
        evidence="task 1: Exited with exit code 3",
        tables=_shell(
            "srun -n 2 --overcommit --kill-on-bad-exit=1"
            " sh -c '[ $SLURM_PROCID = 0 ] && sleep 60; exit 3'",
        ),
        rank=1,
    )


def _distributed() -> Iterator[Case]:
    yield Case(
        name="rank-raises",
        how="rank 1 of two raises an exception, rank 0 waits in an all_reduce",
        cause="python_exception",
        evidence="ValueError: sample 7 has no label",
        tables=_ranks("raises"),
        rank=1,
    )
    yield Case(
        name="rank-exits",
        how="rank 1 of two exits with 4 under torchrun, which exits with 1",
        cause="nonzero_exit",
        evidence="ended with exit code 4, the first failure that torchrun observed",
        tables=_ranks("exits"),
        rank=1,
    )
    redirected = 'variables = { OMP_NUM_THREADS = "1", PET_REDIRECTS = "3" }'
    yield Case(
        name="rank-log",
        how="rank 1 of two raises an exception, and torchrun writes the ranks' output to files",
        cause="python_exception",
        evidence="ValueError: sample 7 has no label",
        tables=_ranks("raises", environment=redirected),
        rank=1,
    )
    yield Case(
        name="separate-stderr",
        how="rank 1 of two exits with 4, with stderr in a file of its own",
        cause="nonzero_exit",
        evidence="ended with exit code 4, the first failure that torchrun observed",
        long=True,
        tables=_ranks("exits", job='error = "{home}/%j.err"'),
        rank=1,
    )
    yield Case(
        name="rank-late",
        how="rank 1 of two is too late for an all_reduce of gloo",
        cause="gloo_timeout",
        evidence="Timed out waiting 4000ms",
        long=True,
        tables=_ranks("late"),
        rank=0,
    )
    detail = 'variables = { OMP_NUM_THREADS = "1", TORCH_DISTRIBUTED_DEBUG = "DETAIL" }'
    yield Case(
        name="mismatch",
        how="rank 0 calls all_reduce, rank 1 broadcast",
        cause="collective_mismatch",
        evidence="mismatch between collectives",
        long=True,
        tables=_ranks("mismatch", environment=detail),
    )
    yield Case(
        name="rank-shot",
        how="rank 1 of two is killed by SIGKILL under torchrun",
        cause="killed",
        evidence="exitcode: -9",
        long=True,
        tables=_ranks("shot"),
        rank=1,
    )
    alone = (
        "torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-id=1"
        " --rdzv-endpoint=127.0.0.1:29871 --rdzv-conf=join_timeout=5"
        f" {PROGRAMS}/ranks.py --how raises"
    )
    yield Case(
        name="no-second-node",
        how="torchrun for two nodes, of which the second never joins",
        cause="rendezvous",
        evidence="RendezvousTimeoutError",
        tables=_shell(alone, **_environment({"resources": 'mem = "2G"'})),
    )


def _refused() -> Iterator[Case]:
    configuration = "Requested node configuration is not available"
    # man slurm.conf, EnforcePartLimits=NO (default): a job that exceeds the partition's number of
    # nodes is accepted and stays pending. 22.05.8 and 26.05.5 do that, 24.11.5 rejects it.
    accepted = {"nodes": dict.fromkeys(("22.05", "26.05"), "PartitionConfig")}
    for name, how, cause, evidence, flag in (
        ("account", "an unknown account", "bad_account", "Invalid account", "account=x"),
        (
            *("partition", "an unknown partition", "bad_partition"),
            *("Invalid partition name", "partition=x"),
        ),
        ("qos", "an unknown QOS", "bad_qos", "Invalid qos", "qos=x"),
        ("nodes", "99 nodes of 4", "bad_resources", configuration, "nodes=99"),
        (
            *("gpus", "9 GPUs of a node that has 4", "bad_resources"),
            *(configuration, "gpus-per-node=9"),
        ),
        (
            *("memory", "999 GiB of a node that has 20", "bad_resources"),
            *("Memory specification can not be satisfied", "mem=999G"),
        ),
        (
            *("feature", "a feature that no node has", "bad_resources"),
            *("Invalid feature", "constraint=h200"),
        ),
        (
            *("reservation", "an unknown reservation", "bad_resources"),
            *("Requested reservation is invalid", "reservation=x"),
        ),
    ):
        yield Case(
            name=f"refused-{name}",
            how=how,
            cause=cause,
            evidence=evidence,
            tables=_shell("true"),
            flags=(f"--{flag}",),
            end=End.REFUSED,
            accepted=accepted.get(name, {}),
        )


def _waiting() -> Iterator[Case]:
    waits = End.WAITS
    yield Case(
        name="too-long",
        how="five minutes in a partition that allows one",
        cause="bad_resources",
        evidence="it requests 00:05:00, partition short allows 00:01:00",
        tables=_shell("true", job='partition = "short"\ntime_limit = "00:05:00"'),
        end=waits,
    )
    yield Case(
        name="never-satisfied",
        how="`afterok` of a job that was cancelled",
        cause="dependency",
        evidence="DependencyNeverSatisfied",
        tables=_shell("true", job='time_limit = "1"\ndependency = "afterok:{parent}"'),
        end=waits,
    )
    yield Case(
        name="held",
        how="`hold = true`",
        cause="held",
        evidence="JobHeldUser",
        tables=_shell("true", sbatch="hold = true"),
        end=waits,
    )
    yield Case(
        name="held-by-root",
        how="`scontrol hold` by root",
        cause="held",
        evidence="JobHeldAdmin",
        tables=_shell("true", sbatch='begin = "now+1hour"'),
        end=waits,
    )
    yield Case(
        name="prolog-requeued",
        how="the site's prolog fails on its host; `requeue = true`",
        cause="launch_failed",
        evidence="launch failed requeued held",
        tables=_shell("true", job=_on(SMALL, "true"), sbatch="hold = true"),
        end=waits,
    )
    yield Case(
        name="more-than-a-job-may",
        how="4 CPUs in a QOS that allows 2 per job",
        cause="limit_reached",
        evidence="QOS small allows cpu=2 per job, it requests cpu=4",
        tables=_shell("true", job='qos = "small"', resources="cpus_per_task = 4"),
        end=waits,
    )
    yield Case(
        name="longer-than-a-job-may",
        how="an hour in a QOS that allows ten minutes",
        cause="limit_reached",
        evidence="QOS small allows 00:10:00 per job, it requests 01:00:00",
        tables=_shell("true", job='qos = "small"\ntime_limit = "01:00:00"'),
        end=waits,
    )
    yield Case(
        name="group-is-full",
        how="a second job in a QOS with GrpJobs=1",
        cause=None,
        evidence="QOS single allows 1 job at one time, 1 is running",
        tables=_shell("true", job='qos = "single"'),
        end=waits,
    )
    yield Case(
        name="begins-later",
        how="`begin = now+1hour`",
        cause=None,
        evidence="BeginTime",
        tables=_shell("true", sbatch='begin = "now+1hour"'),
        end=waits,
    )
    yield Case(
        name="reserved",
        how="a reservation that begins in an hour",
        cause=None,
        evidence="reservation later begins",
        tables=_shell("true", job='reservation = "later"'),
        end=waits,
    )
    yield Case(
        name="partition-down",
        how="a partition that is down",
        cause="unavailable",
        evidence="partition spot is DOWN",
        tables=_shell("true", job='partition = "spot"', sbatch="hold = true"),
        end=waits,
    )
    yield Case(
        name="node-is-gone",
        how="the only host that it requests is down",
        cause="unavailable",
        evidence=TROUBLED,
        tables=_shell("true", job=f'nodelist = "{TROUBLED}"', sbatch="hold = true"),
        end=waits,
    )


CASES: tuple[Case, ...] = (
    *_ended_by_slurm(),
    *_distributed(),
    *_programs(),
    *_set_up(),
    *_shells(),
    *_refused(),
    *_waiting(),
)


def table() -> str:
    """The table of docs/explain.md."""
    lines = [
        f"| {case.name} | {case.how} | {case.cause or 'none: it will start'} | {case.evidence} |"
        for case in CASES
    ]
    head = ["| case | how it was produced | cause | what shows it |", "|---|---|---|---|"]
    return "".join(f"{line}\n" for line in [*head, *lines])
