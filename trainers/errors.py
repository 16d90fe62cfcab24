"""Expected errors before and during a run."""

import math


class TrainerError(Exception):
    """The run cannot continue; the message names a fix."""

    #: Exit code of the process.
    exit_code = 1


class UsageError(TrainerError):
    """The run cannot start with these arguments or in this environment."""

    exit_code = 2


class SupersededError(TrainerError):
    """A newer attempt of this job has started, so this attempt must not write any more."""

    # EX_TEMPFAIL of sysexits.h. The job script uses the same exit code for this case.
    exit_code = 75


class DataError(UsageError):
    """A data set is missing, damaged, or cannot be downloaded."""


class CheckpointError(TrainerError):
    """A checkpoint cannot be written, read, or used for this run."""


class LostRankError(TrainerError):
    """Another rank has exited or cannot be reached."""


class StoppedError(TrainerError):
    """The run was stopped before its end and will not be requeued."""

    # 128 + SIGTERM, as a shell reports it. The job script ends with it as well.
    exit_code = 143


class DivergedError(TrainerError):
    """A loss or a weight is NaN or infinite."""

    # EX_DATAERR of sysexits.h.
    exit_code = 65

    def __init__(self, what: str) -> None:
        super().__init__(
            f"training diverged: {what}. Use a lower --base-lr, a longer --warmup-epochs or"
            " --max-gradient-norm; earlier checkpoints are kept."
        )


def check_loss(value: float, where: str) -> None:
    """Raise DivergedError if a loss, which is the same on all ranks, is NaN or infinite."""
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "infinite"
        raise DivergedError(f"the loss became {name} in {where}")
