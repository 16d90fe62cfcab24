"""JobSpec -> the text of a Slurm script: a pure function of spec, profile and templates.

The text is read back as sbatch would read it before it is returned, so that no value of a spec can
add, lose or change a directive.
"""

from __future__ import annotations

import pathlib
import re
import typing
from collections.abc import Sequence

from orchestrator import errors, jobs
from orchestrator.rendering import directives, shell, templates
from orchestrator.specs import arguments, ranks

if typing.TYPE_CHECKING:
    from orchestrator import config

gpus_of_gres = ranks.gpus_of_gres
TEMPLATES = templates.TEMPLATES
Origin = templates.Origin
Script = templates.Script
#: The trainers package, bound into containers; a sibling of this package wherever it is installed.
TRAINERS = templates.PACKAGE.parent / "trainers"
#: Where a container sees it.
TRAINERS_MOUNT = "/opt/orchestrator"
#: The template that is rendered; a user's own says {% extends "orchestrator/job.sbatch.j2" %}.
TEMPLATE = "job.sbatch.j2"
#: slurmctld takes scripts of 4 MiB, unless the site lets it take more (max_script_size).
SCRIPT_LIMIT_BYTES = 64 * 1024 * 1024
#: Sources whose lines have not been run on a real system, and what the script's head calls them.
NEVER_RUN = {
    "container/pyxis.sh.j2": "pyxis",
    "environment/conda.sh.j2": "conda",
}


def render(
    spec: jobs.JobSpec,
    profile: config.Profile,
    *,
    runs_dir: pathlib.Path,
    templates_dir: pathlib.Path | None = None,
    shared_folders: Sequence[pathlib.Path] = (),
    trainers_dir: pathlib.Path = TRAINERS,
    local: bool = False,
    origin: Origin,
) -> Script:
    """Return the script of a job.

    `templates_dir` is the user's folder: its files win over ours of the same name. `local`: it
    runs without Slurm. Raises TemplateError when a template cannot be rendered, when other users
    can change one of the user's (but for those below `shared_folders`), or when its directives
    are not those of the spec.
    """
    context = _context(spec, profile, runs_dir=runs_dir, trainers_dir=trainers_dir, local=local)
    context["origin"] = origin
    renderer = templates.Templates(templates_dir, shared_folders=shared_folders)
    # The first lines name the sources, and those are known once they were used: mostly they are
    # those of the script before. One task of an array uses what a thousand do, but in a template
    # that counts them: that is rendered again.
    tasks = context["task_arguments"]
    one = tasks[:1] if isinstance(tasks, list) else tasks
    used = renderer.of_the_last(TEMPLATE)
    if used is None:
        _, used = renderer.render(TEMPLATE, {**context, "task_arguments": one})
    text, digest, known = "", "", list[templates.Source]()
    while known != used:
        known = used
        context["template_hash"] = digest = templates.digest(known)
        context["user_templates"] = [source.name for source in known if source.users]
        context["never_run"] = _never_run(spec, known)
        text, used = renderer.render(TEMPLATE, context)
    _check(text, directives.intended(spec, profile))
    return Script(text=text, template=TEMPLATE, template_hash=digest)


def _context(
    spec: jobs.JobSpec,
    profile: config.Profile,
    *,
    runs_dir: pathlib.Path,
    trainers_dir: pathlib.Path,
    local: bool,
) -> dict[str, object]:
    # Whether the profile was merged into the spec before makes no difference.
    modules = list(spec.environment.modules or profile.modules)
    variables = {**profile.variables, **spec.environment.variables}
    purge = spec.environment.module_purge
    runtime = spec.container.runtime
    binds = list(dict.fromkeys([*profile.binds, *spec.container.binds]))
    if runtime != "none":
        _refuse_separators(runs_dir, trainers_dir, binds)
    launch_part = _launch_part(spec, local=local)
    nproc_per_node = ranks.ranks_per_node(spec)
    return {
        "spec": spec,
        "local": local,
        "origin": Origin(version="", spec=""),
        "template_name": TEMPLATE,
        "template_hash": "",
        "user_templates": [],
        "never_run": [],
        "directives": directives.intended(spec, profile),
        "runs_dir": str(runs_dir),
        "modules": modules,
        "purge_modules": bool(modules) if purge is None else purge,
        "variables": variables,
        "image_variables": ["PYTHONUNBUFFERED", "PYTHONSAFEPATH", "PYTHONNOUSERSITE"]
        + [name for name in ["OMP_NUM_THREADS"] if name not in variables]
        + list(variables),
        "runtime": runtime,
        "container_part": {
            "none": None,
            "apptainer": "container/apptainer.sh.j2",
            "singularity": "container/apptainer.sh.j2",
            "pyxis": "container/pyxis.sh.j2",
        }[runtime],
        "binds": binds,
        "trainer_is_ours": _is_ours(spec.launch),
        "trainers_dir": str(trainers_dir),
        "trainers_mount": TRAINERS_MOUNT,
        "launch_part": f"launch/{launch_part}.sh.j2",
        "needs_srun": runtime == "pyxis",
        "nproc_per_node": nproc_per_node,
        "ranks_per_task": _ranks_per_task(spec),
        "rank_options": _rank_options(spec),
        "program": _program(spec),
        "task_arguments": arguments.of_tasks(spec),
        "delimiter": shell.delimiter("ORCHESTRATOR_TASK_END", spec.launch.command or ""),
    }


def _refuse_separators(
    runs_dir: pathlib.Path, trainers_dir: pathlib.Path, binds: Sequence[str]
) -> None:
    # The runtimes split binds at commas and colons, and know no quotes for them.
    for text, separators in [(str(runs_dir), ",:"), (str(trainers_dir), ",:")] + [
        (bind, ",") for bind in binds
    ]:
        if any(separator in text for separator in separators):
            raise errors.TemplateError(
                f"{text} cannot be bound into a container: its name holds one of {separators!r}"
            )


def _launch_part(spec: jobs.JobSpec, *, local: bool) -> str:
    launch = spec.launch
    if launch.launcher == "srun":
        return "srun"
    if launch.command is not None:
        # A shell line starts what it wants by itself; in a container it needs the container.
        return "command" if spec.container.runtime == "none" else "python"
    if launch.launcher == "python":
        return "python"
    if local:
        # One machine, and no scontrol to name its address.
        return "torchrun_standalone"
    if launch.rendezvous == "auto":
        return "torchrun_standalone" if spec.resources.nodes == 1 else "torchrun_c10d"
    return f"torchrun_{launch.rendezvous}"


def _ranks_per_task(spec: jobs.JobSpec) -> int | None:
    """Return how many ranks share the CPUs of a Slurm task; None: the GPUs found; 0: not known."""
    if spec.launch.launcher == "srun":
        return 1
    if spec.launch.command is not None:
        return 0
    return 1 if spec.launch.launcher == "python" else ranks.ranks_per_node(spec)


def _rank_options(spec: jobs.JobSpec) -> list[str]:
    per_node = ranks.tasks_per_node(spec)
    options = [] if spec.resources.ntasks is None else [f"--ntasks={spec.resources.ntasks}"]
    return options + ([] if per_node is None else [f"--ntasks-per-node={per_node}"])


def _is_ours(launch: jobs.Launch) -> bool:
    module = launch.module
    if module is None and launch.program[:1] == ("-m",):
        module = "".join(launch.program[1:2])
    return module is not None and module.split(".")[0] == "trainers"


def _program(spec: jobs.JobSpec) -> list[tuple[str, ...]]:
    """Return the words of the program, then those of each of its arguments."""
    launch = spec.launch
    if launch.command is not None:
        return []
    if launch.module is not None:
        head: tuple[str, ...] = ("-m", launch.module)
    else:
        head = (launch.script,) if launch.script is not None else launch.program
    is_python = head[0].endswith(".py") or head[0].startswith("-")
    if launch.launcher == "torchrun":
        head = head if is_python else ("--no-python", *head)
    elif is_python:
        head = ("python3", *head)
    return [head, *arguments.shared(spec)]


def _check(script: str, intended: Sequence[directives.Option]) -> None:
    """Raise TemplateError unless the script asks sbatch for what the spec asks for."""
    if bad := re.search(r"[^\n\t\x20-\x7e\x80-\U0010ffff]", script):
        line = script.count("\n", 0, bad.start()) + 1
        raise errors.TemplateError(f"control character {bad[0]!a} in line {line} of the script")
    found = directives.parse(script)
    if found == list(intended):
        return
    changes = [f"{directives.quote(o)} added" for o in found if o not in intended]
    changes += [f"{directives.quote(o)} lost" for o in intended if o not in found]
    raise errors.TemplateError(
        f"the script's #SBATCH lines are not those of the spec:"
        f" {', '.join(changes) or 'their order'}. Options belong into the spec, those without"
        " a key of their own into [sbatch]; a template adds none."
    )


def _never_run(spec: jobs.JobSpec, used: Sequence[templates.Source]) -> list[str]:
    parts = [NEVER_RUN[s.name] for s in used if s.name in NEVER_RUN and not s.users]
    if spec.container.runtime == "singularity":
        parts.append("singularity")
    if spec.container.runtime != "none" and spec.container.gpu == "rocm":
        parts.append("--rocm")
    return parts
