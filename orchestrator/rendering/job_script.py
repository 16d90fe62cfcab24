"""JobSpec -> job script: a pure function of spec, profile and templates.

The script is parsed as sbatch would parse it before it is returned, so that no value of a spec can
add, remove or change a directive.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
import typing
from collections.abc import Collection, Sequence

from orchestrator import errors, jobs
from orchestrator.config import profiles
from orchestrator.rendering import directives, shell, templates
from orchestrator.specs import arguments, programs, ranks
from orchestrator.toml import schema

if typing.TYPE_CHECKING:
    from orchestrator import fabrics

#: The trainers package, beside this package wherever it is installed; bound into containers.
TRAINERS = templates.PACKAGE.parent / "trainers"
#: Its folder in a container.
TRAINERS_MOUNT = "/opt/orchestrator"
TEMPLATE = "job.sbatch.j2"
#: Before the name of a variable of the image (apptainer and singularity).
_IMAGE_PREFIXES = ("APPTAINERENV_", "SINGULARITYENV_")


def render(
    spec: jobs.JobSpec,
    profile: profiles.Profile,
    *,
    runs_dir: pathlib.Path,
    templates_dir: pathlib.Path | None = None,
    shared_folders: Sequence[pathlib.Path] = (),
    trainers_dir: pathlib.Path = TRAINERS,
    local: bool = False,
    origin: templates.Origin,
    fabric: fabrics.Fabric | None = None,
) -> templates.Script:
    """Return the script of a job; `local`: for use without Slurm.

    `fabric` is what environment.fabric names.

    Raises TemplateError as templates.render does, or if its directives are not those of the spec.
    """
    # It does not matter whether the profile was merged into the spec before.
    spec = profiles.with_defaults(spec, profile)
    modules = list(spec.environment.modules or ())
    variables = dict(spec.environment.variables or {})
    purge = spec.environment.module_purge
    runtime = spec.container.runtime
    binds = list(dict.fromkeys(spec.container.binds or ()))
    has_container = runtime != "none"
    if spec.container.gpu is None:
        gpu = jobs.CONTAINER_GPU.get(spec.resources.gpu_vendor or "", "none")
        spec = dataclasses.replace(spec, container=dataclasses.replace(spec.container, gpu=gpu))
    if has_container:
        _check_bind_names([str(runs_dir), str(trainers_dir)], ",:")
        _check_bind_names(binds, ",")
    image_variables = ["PYTHONUNBUFFERED", "PYTHONSAFEPATH", "PYTHONNOUSERSITE", "OMP_NUM_THREADS"]
    intended = directives.intended(spec, profile)
    choice = ranks.choose(spec)
    if spec.tracking.trackers:
        from orchestrator.trackers import variables as tracker_variables

        image_variables += tracker_variables.names(spec.tracking)
    framework = ranks.framework_of(spec.launch)
    framework_variables = {} if framework is None else dict(framework.variables)
    fabric_variables = {} if fabric is None else _fabric_variables(fabric, variables)
    # docs/howto/templates.md describes these variables.
    context = {
        "spec": spec,
        "origin": origin,
        "local": local,
        "never_run": _never_run(spec),
        "directives": intended,
        "runs_dir": str(runs_dir),
        "modules": modules,
        "purge_modules": bool(modules) if purge is None else purge,
        "variables": variables,
        "framework_variables": framework_variables,
        "fabric": fabric,
        "fabric_variables": fabric_variables,
        "fabric_binds": [] if fabric is None else _fabric_binds(fabric, spec),
        "fabric_library_path": [] if fabric is None else _fabric_library_path(fabric, spec),
        "ignored_signal": framework.requeue_signal if framework and spec.retry.is_on else "",
        "image_variables": list(
            dict.fromkeys([*image_variables, *framework_variables, *fabric_variables, *variables])
        ),
        "runtime": runtime,
        "container_part": f"container/{runtime}.sh.j2" if has_container else None,
        "binds": binds,
        "mounts": [_mount(bind) for bind in binds],
        "trainer_is_ours": _is_trainer(spec.launch),
        "trainers_dir": str(trainers_dir),
        "trainers_mount": TRAINERS_MOUNT,
        "launch_part": f"launch/{_launch_part(spec, choice, local=local)}.sh.j2",
        "launcher_reason": choice.reason,
        "torchrun": _torchrun(spec.launch),
        "pythons": _pythons(spec.launch, choice),
        "sets_one_rank": _sets_one_rank(spec, choice),
        "needs_srun": spec.container.properties.needs_srun,
        "image_path": spec.container.image_path,
        "nproc_per_node": ranks.ranks_per_node(spec),
        "ranks_per_task": _ranks_per_task(spec, choice),
        "joined_tasks": ranks.ranks_per_node(spec) if ranks.is_set_by_tasks(spec) else 1,
        "rank_options": _rank_options(spec),
        "program": _program(spec, choice),
        "task_arguments": arguments.of_tasks(spec),
        "setup_delimiter": shell.delimiter("ORCHESTRATOR_SETUP_END", spec.environment.setup or ""),
        "delimiter": shell.delimiter("ORCHESTRATOR_TASK_END", spec.launch.command or ""),
    }
    script = templates.render(
        TEMPLATE,
        context,
        templates_dir=templates_dir,
        shared_folders=shared_folders,
        plugin_templates=_plugin_templates(spec),
    )
    _check(script.text, intended)
    if spec.code.snapshot:
        templates.require_code(script.text)
    return script


def _never_run(spec: jobs.JobSpec) -> list[str]:
    vendor = spec.resources.gpu_vendor
    parts = ["--rocm"] if spec.container.runtime != "none" and spec.container.gpu == "rocm" else []
    return parts + ([f"GPUs of {vendor}"] if vendor in ("amd", "intel") else [])


def _fabric_variables(fabric: fabrics.Fabric, variables: Collection[str]) -> dict[str, str]:
    """Return the variables of a fabric, without those that the job sets."""
    own = {name.removeprefix(prefix) for name in variables for prefix in ("", *_IMAGE_PREFIXES)}
    return {name: line.value for name, line in fabric.variables.items() if name not in own}


def _fabric_binds(fabric: fabrics.Fabric, spec: jobs.JobSpec) -> list[tuple[str, str]]:
    """Return the variable at the beginning of each bind of a fabric, or "", and what follows it.

    Binds of the job win.
    """
    if not _has_fabric_files(spec):
        return []
    from orchestrator import fabrics

    own = {profiles.bind_target(bind) for bind in spec.container.binds or ()}
    binds = [line.value for line in fabric.containers.binds]
    return [
        fabrics.variable_and_rest(_mount(bind))
        for bind in binds
        if profiles.bind_target(bind) not in own
    ]


def _fabric_library_path(fabric: fabrics.Fabric, spec: jobs.JobSpec) -> list[str]:
    lines = fabric.containers.library_path if _has_fabric_files(spec) else ()
    return [line.value for line in lines]


def _has_fabric_files(spec: jobs.JobSpec) -> bool:
    """Return whether the files of a fabric are for the job's container.

    Ranks on one node do not use the network, and an empty list of binds means none.
    """
    return spec.resources.nodes != 1 and spec.container.binds != ()


def _check_bind_names(names: Sequence[str], separators: str) -> None:
    # The runtimes split binds at commas and colons, and cannot quote them.
    for name in names:
        if any(separator in name for separator in separators):
            raise errors.TemplateError(
                f"{name} cannot be bound into a container: its name contains one of {separators!r}"
            )


def _mount(bind: str) -> str:
    """Return a bind with its folder in the container: `/data` is `/data:/data`."""
    return bind if ":" in bind else f"{bind}:{bind}"


def _launch_part(spec: jobs.JobSpec, choice: ranks.Choice, *, local: bool) -> str:
    launch = spec.launch
    if launch.command is not None and choice.launcher in ("torchrun", "python"):
        # A shell line starts its programs itself; in a container it needs the container.
        return "command" if spec.container.runtime == "none" else "python"
    if choice.launcher != "torchrun":
        return choice.launcher
    if local:
        # One machine, and no scontrol that knows its address.
        return "torchrun_standalone"
    if launch.rendezvous == "auto":
        return "torchrun_standalone" if spec.resources.nodes == 1 else "torchrun_c10d"
    return f"torchrun_{launch.rendezvous}"


def _plugin_templates(spec: jobs.JobSpec) -> dict[str, str]:
    """Return the texts of the parts that plugins have, by name."""
    named = {
        "launch": (spec.launch.launcher, jobs.Launch),
        "container": (spec.container.runtime, jobs.Container),
    }
    texts = {}
    for part, (name, record) in named.items():
        hint = schema.fields_of(record)["launcher" if part == "launch" else "runtime"]
        if name in schema.choices(hint):
            continue
        from orchestrator import plugins

        kind: type[plugins.Launcher | plugins.ContainerRuntime] = plugins.ContainerRuntime
        if part == "launch":
            kind = plugins.Launcher
        texts[f"{part}/{name}.sh.j2"] = plugins.load(kind, name).template
    return texts


def _torchrun(launch: jobs.Launch) -> list[str]:
    """Return the command: that of the program's interpreter, if it is given by its path."""
    program = programs.python_program(launch)
    if program is not None and "/" in (program.interpreter or ""):
        return [str(program.interpreter), "-m", "torch.distributed.run"]
    return ["torchrun"]


def _pythons(launch: jobs.Launch, choice: ranks.Choice) -> list[str]:
    """Return the commands of which the first that exists shows which Python runs the program."""
    program = programs.python_program(launch)
    interpreter = (program and program.interpreter) or "python3"
    if choice.launcher == "torchrun" and "/" not in interpreter:
        return ["torchrun", interpreter]
    return list(dict.fromkeys([interpreter, "python3"]))


def _sets_one_rank(spec: jobs.JobSpec, choice: ranks.Choice) -> bool:
    """Return whether a program without launcher gets torchrun's variables for one rank.

    A distributed program then runs on one GPU as well. If the spec does not ask for a rank, the
    program may start processes itself: libraries take the variables for those of a launcher.
    """
    resources = spec.resources
    asked = (resources.gpus_per_node, resources.gres, resources.ntasks, resources.ntasks_per_node)
    return (
        spec.launch.launcher == "auto"
        and choice.launcher == "python"
        and ranks.has_ranks(spec)
        and (any(asked) or spec.launch.nproc_per_node != "auto")
    )


def _ranks_per_task(spec: jobs.JobSpec, choice: ranks.Choice) -> int | None:
    """Return how many ranks share the CPUs of a Slurm task; None: as many as GPUs; 0: unknown."""
    launch = spec.launch
    if launch.command is not None and ranks.acts_like(launch) != "srun":
        return 0
    if (launch.launcher == "auto" and not ranks.has_ranks(spec)) or choice.launcher == "ray":
        # Ray sets the threads of each worker.
        return 0
    is_per_node = "torchrun" in (choice.launcher, ranks.acts_like(launch))
    if not is_per_node or ranks.is_set_by_tasks(spec):
        return 1
    return ranks.ranks_per_node(spec)


def _rank_options(spec: jobs.JobSpec) -> list[str]:
    per_node = ranks.tasks_per_node(spec)
    options = [] if spec.resources.ntasks is None else [f"--ntasks={spec.resources.ntasks}"]
    return options + ([] if per_node is None else [f"--ntasks-per-node={per_node}"])


def _is_trainer(launch: jobs.Launch) -> bool:
    program = programs.python_program(launch)
    return program is not None and (program.module or "").split(".")[0] == "trainers"


def _program(spec: jobs.JobSpec, choice: ranks.Choice) -> list[tuple[str, ...]]:
    """Return the words of the program, then those of each option that follows."""
    if spec.launch.command is not None:
        return []
    words, program = programs.words(spec.launch), programs.python_program(spec.launch)
    head = ("python3", *words) if programs.is_for_python(words) else words
    if choice.launcher == "torchrun":
        # torchrun starts Python itself, with -u.
        if program is None or program.options:
            head = ("--no-python", *head)
        else:
            head = (*program.target, *program.arguments)
    starts = [index for index, word in enumerate(head) if index and word.startswith("--")]
    parts = [head[start:end] for start, end in itertools.pairwise([0, *starts, len(head)])]
    return [*parts, *arguments.shared(spec)]


def _check(script: str, intended: Sequence[directives.Option]) -> None:
    """Raise TemplateError unless the script's directives are those of the spec."""
    if bad := re.search(r"[^\n\t\x20-\x7e\x80-\U0010ffff]", script):
        line = script.count("\n", 0, bad.start()) + 1
        raise errors.TemplateError(f"control character {bad[0]!a} in line {line} of the script")
    actual = directives.parse(script)
    if actual == list(intended):
        return
    changes = [f"{directives.quote(o)} added" for o in actual if o not in intended]
    changes += [f"{directives.quote(o)} lost" for o in intended if o not in actual]
    raise errors.TemplateError(
        "the script's #SBATCH lines are not those of the spec: "
        f"{', '.join(changes) or 'their order differs'}. Templates cannot add options: put them "
        "into the spec, those without a key into [sbatch]."
    )
