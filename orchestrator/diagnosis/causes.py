"""Failure causes. Their titles and fixes are in causes.toml, together with the log rules."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib.resources
import tomllib
from collections.abc import Mapping
from typing import Any


class Cause(enum.StrEnum):
    """Why a job failed: the word in the database, in JSON and in `[retry]`."""

    # Slurm ended the job, or did not start it.
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
    HELD = "held"
    UNAVAILABLE = "unavailable"
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
    # The program and what it needs.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class CauseInfo:
    """What holds for every failure with one cause; causes.toml describes the keys."""

    title: str
    cures: tuple[str, ...]
    acts: str = "user"
    retry: str = "no"


def info(cause: Cause) -> CauseInfo:
    """Return the title, the fixes and the retry class of a cause."""
    table = shipped_document()["cause"][cause]
    return CauseInfo(**{**table, "cures": tuple(table["cures"])})


@functools.cache
def shipped_document() -> Mapping[str, Any]:
    """Return the contents of causes.toml."""
    file = importlib.resources.files("orchestrator").joinpath("causes.toml")
    return tomllib.loads(file.read_text("utf-8"))
