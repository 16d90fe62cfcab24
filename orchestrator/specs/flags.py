"""The command line's flags for a spec: one for every key of `[job]` and `[resources]`, and more.

Plain records: the options are created without reading a spec.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from orchestrator.specs import toml_tables
from orchestrator.toml import schema


class Flag(NamedTuple):
    """One flag, and the key of the spec that it sets."""

    #: dotted, "resources.gpus_per_node"
    key: str
    help: str
    #: without the leading dashes, separated by spaces; empty: the key's own name
    other_names: str = ""
    #: the value in the help: NAME=VALUE
    metavar: str | None = None

    @property
    def names(self) -> list[str]:
        return (self.other_names or self.key.rpartition(".")[2].replace("_", "-")).split()

    @property
    def parameter(self) -> str:
        """Return the name of the Python parameter, "resources_gpus_per_node"."""
        return self.key.replace(".", "_")

    @property
    def kind(self) -> Any:
        """Return the key's type; str if it has several."""
        hint = schema.bare(schema.hint_at(toml_tables.FILE, tuple(self.key.split("."))))
        return str if len(schema.kinds_of(hint)) > 1 else hint


#: In the order of the help.
FLAGS = (
    Flag("job.name", "Name of the job. Default: the name of the program."),
    Flag("job.partition", "Partition, or several separated by commas. Default: the profile's."),
    Flag("job.account", "Account to charge. Default: the profile's."),
    Flag("job.qos", "Quality of service. Default: the profile's."),
    Flag("job.reservation", "Reservation to run in."),
    Flag("job.constraint", "Features that the nodes must have."),
    Flag("job.time_limit", "Time limit as Slurm accepts it: 30 (minutes), 1:30:00, 2-00."),
    Flag("job.comment", "Comment, visible to everybody on the cluster."),
    Flag("job.mail_type", "Events to send mail about: END,FAIL."),
    Flag("job.mail_user", "Receiver of the mail."),
    Flag("job.dependency", "Start after other jobs: afterok:123."),
    Flag("job.requeue", "Whether Slurm may requeue the job."),
    Flag("job.signal_seconds", "Send the job a signal this many seconds before its time limit."),
    Flag("job.exclusive", "Do not share the nodes with other jobs."),
    Flag("job.nodelist", "Hosts that must be among the nodes."),
    Flag("job.exclude", "Hosts to exclude."),
    Flag("job.output", "Log file; must contain %j. Default: in the run folder."),
    Flag("job.error", "File for stderr; must contain %j. Default: the log file."),
    Flag("job.chdir", "Working directory of the job. Default: the current folder."),
    Flag("job.labels", "Label of the job, not passed to Slurm.", "labels label", "KEY=VALUE"),
    Flag("resources.nodes", "Number of nodes."),
    Flag("resources.ntasks", "Total number of tasks."),
    Flag("resources.ntasks_per_node", "Tasks per node."),
    Flag("resources.cpus_per_task", "CPUs per task."),
    Flag("resources.mem", "Memory per node: 440G; a number without unit is megabytes."),
    Flag("resources.mem_per_cpu", "Memory per CPU."),
    Flag("resources.mem_per_gpu", "Memory per GPU."),
    Flag("resources.gpus_per_node", "GPUs per node."),
    Flag("resources.gpu_type", "Type of GPU: a100."),
    Flag("resources.gpu_vendor", "Maker of the GPUs. Default: the profile's."),
    Flag(
        "resources.gres", "Generic resources in Slurm's form: gpu:a100:4. Not with --gpus-per-node."
    ),
    Flag("resources.tmp", "Local disk space per node: 100G."),
    Flag("environment.modules", "Environment module to load.", "module"),
    Flag("environment.conda", "Conda environment: a name or a path."),
    Flag("environment.venv", "Path of a Python virtual environment."),
    Flag(
        "environment.fabric",
        "Network between the nodes: a name of `orchestrator config fabrics`, or a file.",
    ),
    Flag("environment.variables", "Environment variable of the job.", "variable", "NAME=VALUE"),
    Flag(
        "environment.inherit",
        "Variable of this shell to pass to the job, even if its name looks like a secret.",
        metavar="NAME",
    ),
    Flag(
        "container.runtime",
        "Container runtime.",
        "container-runtime",
        "[none|apptainer|singularity|pyxis|podman-hpc|charliecloud|edf|PLUGIN]",
    ),
    Flag("container.image", "Path of the container image; podman-hpc: its name; edf: the EDF."),
    Flag("container.binds", "Folder to bind into the container.", "bind", "/HOST:/INSIDE[:ro]"),
    Flag("container.gpu", "GPU support in the container.", "container-gpu"),
    Flag("launch.framework", "Training framework: chooses launcher, tasks and variables."),
    Flag(
        "launch.launcher",
        "Program launcher. auto: torchrun for Python with several ranks, otherwise none.",
        metavar="[auto|torchrun|srun|python|ray|PLUGIN]",
    ),
    Flag("launch.rendezvous", "Rendezvous of torchrun's nodes."),
    Flag(
        "launch.nproc_per_node",
        "Ranks per node: a number, or auto for one per GPU.",
        metavar="[N|auto]",
    ),
    Flag("launch.command", "Shell line to run unchanged, instead of a program after --."),
    Flag(
        "array.size",
        "Run the job as an array of this many tasks, which read SLURM_ARRAY_TASK_ID.",
        "array-size",
    ),
    Flag("array.max_running", "Maximum number of array tasks that run at the same time."),
    Flag("metrics.patterns", "Pattern that finds metrics in the log.", "pattern"),
    Flag("metrics.gpu_csv", "File with nvidia-smi's CSV of the job's GPUs."),
)
