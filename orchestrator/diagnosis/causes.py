"""The words for why jobs fail."""

from __future__ import annotations

import dataclasses
import enum


class Cause(enum.StrEnum):
    """Why a job failed: one word, in the database, in JSON and in recovery rules."""

    # Slurm ended it, or never ran it.
    TIME_LIMIT = "time_limit"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    DEPENDENCY = "dependency"
    LAUNCH_FAILED = "launch_failed"
    BAD_ACCOUNT = "bad_account"
    BAD_PARTITION = "bad_partition"
    BAD_QOS = "bad_qos"
    BAD_RESOURCES = "bad_resources"
    LIMIT_REACHED = "limit_reached"
    #: it waits until somebody releases it
    HELD = "held"
    #: its partition or the nodes that it names are down
    UNAVAILABLE = "unavailable"
    #: another job with its token runs or ran
    DUPLICATE = "duplicate"
    NOT_SUBMITTED = "not_submitted"
    LOST = "lost"
    # Memory and disks.
    OOM_DEVICE = "oom_device"
    OOM_HOST = "oom_host"
    SHARED_MEMORY = "shared_memory"
    DISK_QUOTA = "disk_quota"
    DISK_FULL = "disk_full"
    IO_ERROR = "io_error"
    TOO_MANY_FILES = "too_many_files"
    # Ranks that do not find or follow each other.
    NCCL_TIMEOUT = "nccl_timeout"
    GLOO_TIMEOUT = "gloo_timeout"
    NCCL_ERROR = "nccl_error"
    COLLECTIVE_MISMATCH = "collective_mismatch"
    UNUSED_PARAMETERS = "unused_parameters"
    PEER_LOST = "peer_lost"
    ADDRESS_IN_USE = "address_in_use"
    RENDEZVOUS = "rendezvous"
    # GPUs.
    DEVICE_FAULT = "device_fault"
    CUDA_MISMATCH = "cuda_mismatch"
    NO_DEVICE = "no_device"
    DEVICE_ASSERT = "device_assert"
    DEVICE_ERROR = "device_error"
    # What the program needs, and what it does.
    SETUP_FAILED = "setup_failed"
    RUN_FOLDER = "run_folder"
    CONTAINER = "container"
    MISSING_MODULE = "missing_module"
    MISSING_LIBRARY = "missing_library"
    MISSING_FILE = "missing_file"
    MISSING_PROGRAM = "missing_program"
    PERMISSION = "permission"
    NETWORK = "network"
    BAD_ARGUMENTS = "bad_arguments"
    CHECKPOINT = "checkpoint"
    DIVERGED = "diverged"
    PYTHON_EXCEPTION = "python_exception"
    SEGFAULT = "segfault"
    ILLEGAL_INSTRUCTION = "illegal_instruction"
    ABORTED = "aborted"
    KILLED = "killed"
    NONZERO_EXIT = "nonzero_exit"
    UNKNOWN = "unknown"


class Acts(enum.StrEnum):
    """Who can do something against a cause."""

    USER = "user"
    SITE = "site"
    NOBODY = "nobody"


class Retry(enum.StrEnum):
    """Whether the same job can do better when it is sent again."""

    #: it will, as it stands
    YES = "yes"
    #: it may: the cause comes and goes
    MAYBE = "maybe"
    #: when it is asked for otherwise: more memory, more time
    CHANGED = "changed"
    NO = "no"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CauseKind:
    """What is true of every failure of one cause."""

    #: what happened, in a few words: "the GPU ran out of memory"
    title: str
    #: what to do, the most likely cure first; JOB stands for the job
    cures: tuple[str, ...]
    acts: Acts = Acts.USER
    retry: Retry = Retry.NO
