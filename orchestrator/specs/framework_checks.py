"""Checks of jobs whose ranks would wait for each other: wrong shapes, and launchers of frameworks.

Few specs name a framework or several nodes, so this is loaded only then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TypeAlias

from orchestrator import jobs
from orchestrator.specs import frameworks, programs, ranks
from orchestrator.toml.key_paths import KeyPath

Finding: TypeAlias = tuple[tuple[KeyPath, ...], str]

#: Options of sbatch that hide the GPUs of other tasks.
_HIDING = ("gpus-per-task", "ntasks-per-gpu", "gpu-bind")
#: Before an option of Lightning's Trainer: `--trainer.devices`, but not `--eval.devices`.
_TRAINER = re.compile(r"(?:(?:\w+\.)*trainer\.)?")
#: What the batch script's shell does not expand. In double quotes it does.
_NOT_EXPANDED = re.compile(r"""("(?:\\.|[^"\\])*")|'[^']*'|\\\$""")
_NODE_RANK = re.compile(r"--(?:machine|node)[_-]rank[= ]\"?\$\{?(SLURM_(?:NODEID|PROCID))\b")
#: Starts a program on other nodes, or on each of them.
_ON_NODES = re.compile(r"\b(?:srun|mpirun|mpiexec|pdsh|ssh|clush)\b")
#: `deepspeed --launcher slurm` and `--no_ssh` do without pdsh. Who names a host file has pdsh.
_KNOWS_NODES = re.compile(r"--no_ssh\b|--launcher[= ](?!pdsh\b)|--hostfile\b|(?<!\S)-H\b")
#: Before a command, such as in `cd code && X=1 exec deepspeed`. Its name is an argument elsewhere.
_BEFORE_COMMAND = r"(?:^|[;&|(\n])[ \t]*(?:\w+=\S*\s+)*(?:(?:exec|nohup|srun|time)\s+)*(?:\S*/)?"


def findings(spec: jobs.JobSpec) -> Iterator[Finding]:
    """Yield why ranks of this job would wait for each other."""
    if spec.launch.batch_file is not None:
        return
    if (name := ranks.framework_name(spec.launch)) is not None:
        yield from _framework(spec, name)
    elif spec.resources.nodes > 1:
        yield from _own_launcher(spec)


def _own_launcher(spec: jobs.JobSpec) -> Iterator[Finding]:
    """Find a framework's launcher that the batch script starts on the first node alone."""
    launch, nodes = spec.launch, spec.resources.nodes
    if ranks.acts_like(launch) not in ("auto", "python"):
        # Each task expands and starts it.
        return
    text, key = launch.command, "command"
    if text is None:
        text, key = " ".join(programs.words(launch)), "program"
    paths = ("launch", key), ("resources", "nodes")
    if rank := _NODE_RANK.search(_NOT_EXPANDED.sub(r"\1", text)):
        advice = "set launch.script and launch.framework instead, or quote it: srun bash -c '...'"
        yield (
            paths,
            f"${rank[1]} is expanded once, on the first node: every node would get rank 0, and "
            f"wait for the others: {advice}",
        )
    elif (name := _launcher_in(text)) == "deepspeed" and not _KNOWS_NODES.search(text):
        yield (
            paths,
            f"the launcher deepspeed uses {nodes} nodes only with a host file, by pdsh and ssh: "
            'set launch.script and launch.framework = "deepspeed" instead',
        )
    elif name == "accelerate" and not _ON_NODES.search(text):
        yield (
            paths,
            f"accelerate launch runs only on the first of {nodes} nodes, and may wait for the "
            'others: set launch.script and launch.framework = "accelerate" instead',
        )


def _launcher_in(text: str) -> str | None:
    """Return the framework whose own launcher a shell line starts."""
    pattern = (
        r"(?:^|[\s;&|(/])(?:(accelerate)\s+launch|-m\s+(accelerate)\.commands\.launch"
        rf"|-m\s+(deepspeed)\.launcher\.\w+)|{_BEFORE_COMMAND}(deepspeed)(?=\s)"
    )
    found = re.search(pattern, text)
    return next(filter(None, found.groups()), None) if found else None


def _framework(spec: jobs.JobSpec, name: str) -> Iterator[Finding]:
    framework, launch = frameworks.TABLE[name], spec.launch
    own = ("launch", "framework" if launch.framework else "launcher")
    if launch.command is not None:
        message = "needs launch.script or module: shell text starts its programs itself"
        yield (own, ("launch", "command")), message
        return
    words = programs.words(launch)
    started = programs.python_program(launch)
    is_starter = bool(words) and os.path.basename(words[0]) in programs.STARTERS
    if is_starter or (started is not None and not programs.is_rank(launch)):
        shown = started.shown if started is not None else words[0]
        yield (
            (("launch", "program"), own),
            f"{shown} starts the ranks itself, but {framework.launchers[0]} starts those of "
            f"{name}: name only the script and its arguments",
        )
        return
    launcher = ranks.launcher_of(launch)
    if launcher in ("torchrun", "srun", "python", "ray") and launcher not in framework.launchers:
        if launcher != "python" or _tasks(spec) > 1:
            yield (
                (("launch", "launcher"), own),
                f"ranks of {name} do not find each other with {launcher}: remove it, and "
                f"{framework.launchers[0]} is used",
            )
        return
    if launcher == "ray":
        yield from _one_task_per_node(spec, own)
    if launcher == "srun" and framework.is_task_per_gpu:
        yield from _task_per_gpu(spec, name)
    if framework.size_options is not None and launcher != "python":
        yield from _sizes(spec, name, framework.size_options)


def _tasks(spec: jobs.JobSpec) -> int:
    resources = spec.resources
    per_node = resources.ntasks_per_node or 1
    return max(resources.ntasks or 1, resources.nodes * per_node)


def _one_task_per_node(spec: jobs.JobSpec, own: KeyPath) -> Iterator[Finding]:
    resources = spec.resources
    for key, count, one in (
        ("ntasks_per_node", resources.ntasks_per_node, 1),
        ("ntasks", resources.ntasks, resources.nodes),
    ):
        if count not in (None, one):
            message = f"ray is one task per node (got {count}): remove it, and set cpus_per_task"
            yield (("resources", key), own), message


def _task_per_gpu(spec: jobs.JobSpec, name: str) -> Iterator[Finding]:
    resources, gpus = spec.resources, ranks.gpus_per_node(spec)
    for key in _HIDING:
        if spec.sbatch.get(key) not in (None, "none"):
            yield (
                (("sbatch", key), ("launch", "framework")),
                f"hides GPUs of the node from ranks of {name}, which then wait or fail: remove it "
                "(resources.gpus_per_node gives each rank one GPU, and lets it see all)",
            )
    if resources.ntasks is not None and resources.ntasks_per_node is None:
        # SLURM_NTASKS_PER_NODE is not set then, and Slurm may spread the tasks unevenly.
        if resources.ntasks > 1:
            advice = f"set ntasks_per_node = {max(1, resources.ntasks // resources.nodes)}"
            message = f"{name} needs the tasks of each node: {advice} instead"
            yield (("resources", "ntasks"), ("launch", "framework")), message
    elif gpus and resources.ntasks_per_node not in (None, gpus):
        message = (
            f"{name} uses one GPU per task, but {resources.ntasks_per_node} tasks and {gpus} GPUs "
            "per node are requested: remove it, and there is a task per GPU"
        )
        yield (("resources", "ntasks_per_node"), ("resources", "gpus_per_node")), message


def _sizes(spec: jobs.JobSpec, name: str, options: tuple[str, str]) -> Iterator[Finding]:
    """Find arguments with another number of ranks or nodes than Slurm starts."""
    per_node = ranks.tasks_per_node(spec)
    if ranks.acts_like(spec.launch) == "torchrun":
        per_node = ranks.ranks_per_node(spec)
    given = [
        (("args", key), _TRAINER.sub("", key).replace("-", "_"), value)
        for key, value in spec.args.items()
    ]
    program = programs.python_program(spec.launch)
    line = " ".join(program.arguments if program is not None else ())
    for option in options:
        pattern = rf"(?:^| )-*{_TRAINER.pattern}{option}[= ](\d+)(?= |$)"
        for found in re.finditer(pattern, line):
            given.append((("launch", "program"), option, int(found[1])))
    expected = dict(zip(options, (per_node, spec.resources.nodes), strict=True))
    for path, option, value in given:
        count = expected.get(option)
        if count is not None and type(value) is int and value not in (count, -1):
            what = "ranks per node" if option == options[0] else "nodes"
            message = f"{option} is {value}, but the job has {count} {what}: use {count}"
            yield (path, ("launch", "framework")), f"ranks of {name} would wait: {message}"
