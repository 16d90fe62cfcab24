"""Slurm's commands: build an argv, run it, read the answer; three functions each.

The one place that knows what squeue, sacct, scontrol and sbatch print. Checked on 22.05.8,
24.11.5 and 26.05.5; tests/unit/slurm/recorded holds what they said.
"""

import typing

from orchestrator import lazily

if typing.TYPE_CHECKING:
    from orchestrator.slurm.client import Client, Steps
    from orchestrator.slurm.failures import AccountingDisabled, Unreachable, failure
    from orchestrator.slurm.job_ids import expand_tasks, words_of_tasks
    from orchestrator.slurm.process import (
        Answer,
        CommandNotFound,
        TooMuchOutputError,
        run,
        stream,
    )
    from orchestrator.slurm.sacct import (
        MOST_JOB_IDS,
        parse_sacct,
        sacct_by_name_command,
        sacct_command,
        sacct_steps_command,
    )
    from orchestrator.slurm.sbatch import (
        SbatchKind,
        SbatchOutcome,
        classify_sbatch,
        parse_test_only,
        sbatch_command,
        sbatch_test_only_command,
    )
    from orchestrator.slurm.scontrol import (
        ClusterConfig,
        parse_scontrol_config,
        parse_scontrol_job,
    )
    from orchestrator.slurm.sinfo import Association, NodeKind
    from orchestrator.slurm.squeue import parse_squeue, squeue_command
    from orchestrator.slurm.states import cancelled_by, parse_state, read_state
    from orchestrator.slurm.stored_variables import left_out, stored_environment
    from orchestrator.slurm.variables import environment, secret_names, submission_environment

__all__ = [
    "MOST_JOB_IDS",
    "AccountingDisabled",
    "Answer",
    "Association",
    "Client",
    "ClusterConfig",
    "CommandNotFound",
    "NodeKind",
    "SbatchKind",
    "SbatchOutcome",
    "Steps",
    "TooMuchOutputError",
    "Unreachable",
    "cancelled_by",
    "classify_sbatch",
    "environment",
    "expand_tasks",
    "failure",
    "left_out",
    "parse_sacct",
    "parse_scontrol_config",
    "parse_scontrol_job",
    "parse_squeue",
    "parse_state",
    "parse_test_only",
    "read_state",
    "run",
    "sacct_by_name_command",
    "sacct_command",
    "sacct_steps_command",
    "sbatch_command",
    "sbatch_test_only_command",
    "secret_names",
    "squeue_command",
    "stored_environment",
    "stream",
    "submission_environment",
    "words_of_tasks",
]

__getattr__ = lazily.names_of(
    __name__,
    {
        "client": ("Client", "Steps"),
        "stored_variables": ("left_out", "stored_environment"),
        "variables": ("environment", "secret_names", "submission_environment"),
        "failures": ("AccountingDisabled", "Unreachable", "failure"),
        "job_ids": ("expand_tasks", "words_of_tasks"),
        "process": ("Answer", "CommandNotFound", "Held", "TooMuchOutputError", "run", "stream"),
        "sacct": (
            "MOST_JOB_IDS",
            "parse_sacct",
            "sacct_by_name_command",
            "sacct_command",
            "sacct_steps_command",
        ),
        "sbatch": (
            "SbatchKind",
            "SbatchOutcome",
            "classify_sbatch",
            "parse_test_only",
            "sbatch_command",
            "sbatch_test_only_command",
        ),
        "scontrol": ("ClusterConfig", "parse_scontrol_config", "parse_scontrol_job"),
        "sinfo": ("Association", "NodeKind"),
        "squeue": ("parse_squeue", "squeue_command"),
        "states": ("cancelled_by", "parse_state", "read_state"),
    },
)
