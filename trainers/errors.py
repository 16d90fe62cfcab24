"""What can go wrong before or during a run, other than a bug."""


class TrainerError(Exception):
    """The run can't go on; the message names the cure."""

    #: What the process exits with.
    exit_code = 1


class UsageError(TrainerError):
    """The run can't start as it was asked to."""

    exit_code = 2


class SupersededError(TrainerError):
    """A newer attempt of this job exists, so this one must not write any more."""

    # 75 is EX_TEMPFAIL of sysexits.h, and what the job script itself ends with for the same cause.
    exit_code = 75


class DataError(UsageError):
    """A data set is missing, damaged, or can't be fetched."""


class CheckpointError(TrainerError):
    """A checkpoint can't be written, read, or used for this run."""


class LostRankError(TrainerError):
    """Another rank of the run has ended or can't be reached."""


class StoppedError(TrainerError):
    """The run was asked to stop before its end, and nobody will start it again."""

    # What a shell gives a command that SIGTERM ended; the job script ends with it as well.
    exit_code = 143
