"""What each cause means, who can act, and what helps.

Sources: PyTorch's and NCCL's own troubleshooting pages, and the lists of the tutorials that the
trainers follow. What Slurm tells stands in slurm_kinds.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.diagnosis import slurm_kinds
from orchestrator.diagnosis.causes import Acts, Cause, CauseKind, Retry


def kind_of(cause: Cause) -> CauseKind:
    """Return what is true of every failure of this cause."""
    return _KINDS[cause]


_RANKS_AGREE = (
    "every rank must make the same collective calls in the same order: no barrier, all_reduce or "
    "save inside `if rank == 0`, the same number of batches on each rank (drop_last=True, or "
    "`with model.join():`)"
)

_KINDS: Mapping[Cause, CauseKind] = {
    **slurm_kinds.KINDS,
    Cause.OOM_DEVICE: CauseKind(
        title="a GPU ran out of memory",
        cures=(
            "a smaller batch a GPU, and accumulate gradients to keep the global batch: "
            "of our trainers --per-device-batch-size halved, --batch-size as it is",
            "use less: bf16 (--precision bf16), activation checkpointing, or FSDP",
            'if much is "reserved but unallocated": [environment.variables] '
            'PYTORCH_CUDA_ALLOC_CONF = "expandable_segments:True"',
            "see that each rank uses its own GPU (torch.cuda.set_device(local_rank)) and that no "
            "other process is on it: nvidia-smi",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.OOM_HOST: CauseKind(
        title="the node's memory that it may use ran out",
        cures=(
            "ask for more: [resources] mem (or mem_per_gpu, mem_per_cpu); `sacct -j JOB "
            "-o jobid,reqmem,maxrss` tells what was used",
            "use less: fewer data loader workers (--num-workers), no whole data set a rank",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.SHARED_MEMORY: CauseKind(
        title="the data loader's workers ran out of shared memory",
        cures=(
            "fewer workers (--num-workers 0 needs no shared memory), smaller batches",
            "more memory: [resources] mem, as /dev/shm counts into it; df -h /dev/shm on the node",
            "in the program: torch.multiprocessing.set_sharing_strategy('file_system')",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.DISK_QUOTA: CauseKind(
        title="the disk quota is used up",
        cures=(
            "see it (quota -s, or the site's command) and delete what is not needed",
            "write elsewhere: --runs-dir, or runs_dir of the profile",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.DISK_FULL: CauseKind(
        title="a disk is full",
        cures=(
            "see which: df -h on the node, /tmp and the run folder's disk",
            "write elsewhere, or ask for local disk: [resources] tmp",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.IO_ERROR: CauseKind(
        title="a file system failed",
        cures=(slurm_kinds.AGAIN, slurm_kinds.TELL_SITE),
        acts=Acts.SITE,
        retry=Retry.MAYBE,
    ),
    Cause.TOO_MANY_FILES: CauseKind(
        title="it opened more files than one process may",
        cures=(
            "ulimit -n $(ulimit -Hn), as [environment] setup",
            "fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.NCCL_TIMEOUT: CauseKind(
        title="a collective of NCCL timed out: a rank did not come",
        cures=(
            "look at the rank that is missing first: it failed, hung, or did something else",
            _RANKS_AGREE,
            "if a rank is only slow (loading, saving): init_process_group(timeout=...)",
            '[environment.variables] NCCL_DEBUG = "INFO", TORCH_NCCL_TRACE_BUFFER_SIZE = "2000"',
        ),
        retry=Retry.MAYBE,
    ),
    Cause.GLOO_TIMEOUT: CauseKind(
        title="a collective of gloo timed out: a rank did not come",
        cures=(
            "look at the rank that is missing first: it failed, hung, or did something else",
            _RANKS_AGREE,
            "if a rank is only slow (loading, saving): init_process_group(timeout=...)",
        ),
        retry=Retry.MAYBE,
    ),
    Cause.NCCL_ERROR: CauseKind(
        title="NCCL could not set up or use the connections between GPUs",
        cures=(
            '[environment.variables] NCCL_DEBUG = "INFO" tells which link or host',
            'name the network: NCCL_SOCKET_IFNAME = "hsn0" (ip -br addr lists them); '
            'NCCL_IB_DISABLE = "1" tells whether InfiniBand is at fault',
            "the same NCCL and CUDA on all nodes",
        ),
        retry=Retry.MAYBE,
    ),
    Cause.COLLECTIVE_MISMATCH: CauseKind(
        title="the ranks called different collectives",
        cures=(
            _RANKS_AGREE,
            '[environment.variables] TORCH_DISTRIBUTED_DEBUG = "DETAIL" names rank and call',
        ),
    ),
    Cause.UNUSED_PARAMETERS: CauseKind(
        title="parameters of the model took no part in the loss",
        cures=(
            "use or remove them, or DistributedDataParallel(..., find_unused_parameters=True)",
            '[environment.variables] TORCH_DISTRIBUTED_DEBUG = "DETAIL" names them',
        ),
    ),
    Cause.PEER_LOST: CauseKind(
        title="a rank lost its connection to another one, which ended first",
        cures=("look at the other ranks' logs and nodes for what came before", slurm_kinds.AGAIN),
        retry=Retry.MAYBE,
    ),
    Cause.ADDRESS_IN_USE: CauseKind(
        title="the port for the ranks to meet was taken",
        cures=(
            "leave the port to the launcher: [launch] with torchrun takes one of the job's own",
            "in a script: MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",
            "see that no older run of yours is left on the node; end it with scancel, and never "
            "with pkill",
        ),
        retry=Retry.YES,
    ),
    Cause.RENDEZVOUS: CauseKind(
        title="the ranks did not find each other",
        cures=(
            "MASTER_ADDR (or --rdzv-endpoint) must be a node of the job that all others reach, "
            "and every node must start: one task a node, the same port",
            "a rank that fails at once keeps the others waiting: look at the first error",
            "the right network: [environment.variables] GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME = "
            '"hsn0"',
        ),
        retry=Retry.MAYBE,
    ),
    Cause.DEVICE_FAULT: CauseKind(
        title="a GPU, or the link to it, is broken",
        cures=(
            "leave the node out: exclude (--exclude NODE)",
            slurm_kinds.TELL_SITE,
        ),
        acts=Acts.SITE,
        retry=Retry.YES,
    ),
    Cause.CUDA_MISMATCH: CauseKind(
        title="PyTorch, CUDA and the driver do not fit together",
        cures=(
            "nvidia-smi on the node tells the newest CUDA that the driver can; install a PyTorch "
            "made for that or an older one",
            "for another kind of GPU or machine: a PyTorch or image made for it",
        ),
    ),
    Cause.NO_DEVICE: CauseKind(
        title="it found no GPU",
        cures=(
            "ask for GPUs: [resources] gpus_per_node; see a GPU partition: sinfo -o '%P %G'",
            'in a container: [container] gpu = "nv"',
            "a PyTorch with CUDA: python -c 'import torch; print(torch.version.cuda)'",
            "no more ranks a node than GPUs",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.DEVICE_ASSERT: CauseKind(
        title="a check in a GPU's program failed",
        cures=(
            "labels or token numbers out of range are the usual cause: check them against the "
            "number of classes or the vocabulary",
            'the true place: [environment.variables] CUDA_LAUNCH_BLOCKING = "1", or on the CPU',
        ),
    ),
    Cause.DEVICE_ERROR: CauseKind(
        title="a GPU's program failed",
        cures=(
            'the true place: [environment.variables] CUDA_LAUNCH_BLOCKING = "1", or '
            "compute-sanitizer",
            "if it comes on one node only, tell the site's support",
        ),
        retry=Retry.MAYBE,
    ),
    Cause.SETUP_FAILED: CauseKind(
        title="its environment could not be set up",
        cures=(
            "see what failed: orchestrator logs JOB; check modules, conda, venv and setup of "
            "[environment]",
            "module avail, conda env list on the compute node's partition",
        ),
    ),
    Cause.RUN_FOLDER: CauseKind(
        title="its run folder is not seen from the compute node",
        cures=("use a folder that all nodes share: --runs-dir; orchestrator doctor",),
        retry=Retry.CHANGED,
    ),
    Cause.CONTAINER: CauseKind(
        title="its container could not be started",
        cures=(
            "[container] image must be a file that is seen from the compute nodes; try it: "
            "apptainer exec IMAGE true",
            "[container] binds: each folder on the left must be there",
        ),
    ),
    Cause.MISSING_MODULE: CauseKind(
        title="a Python module is missing",
        cures=(
            "install it into the environment that the job uses (pip install), or name the right "
            "one: [environment] venv, conda, modules, or [container] image",
            "of the program's own folder: chdir, or PYTHONPATH in [environment.variables]",
        ),
    ),
    Cause.MISSING_LIBRARY: CauseKind(
        title="a shared library is missing or does not fit",
        cures=(
            "load the module that has it: [environment] modules",
            "ldd on the file that is named tells what is missing",
        ),
    ),
    Cause.MISSING_FILE: CauseKind(
        title="a file or folder is missing",
        cures=(
            "check the path from a compute node: srun ls PATH; is it on a disk that nodes share?",
            "in a container: [container] binds",
            "nodes often have no internet: download data before, on a login node",
        ),
    ),
    Cause.MISSING_PROGRAM: CauseKind(
        title="a program was not found, or may not be executed",
        cures=(
            "[environment] modules, conda or venv bring programs onto PATH",
            "chmod +x for a script of your own",
        ),
    ),
    Cause.PERMISSION: CauseKind(
        title="it may not read or write a file",
        cures=(
            "check with ls -l, and groups; write into the run folder",
            "of a program of your own: chmod +x",
        ),
    ),
    Cause.NETWORK: CauseKind(
        title="it could not reach another machine",
        cures=(
            "compute nodes often have no internet: download models and data before, on a login "
            'node, and set HF_HUB_OFFLINE = "1" in [environment.variables]',
            "or use the site's proxy: https_proxy in [environment.variables]",
        ),
        retry=Retry.MAYBE,
    ),
    Cause.BAD_ARGUMENTS: CauseKind(
        title="the program did not take its arguments",
        cures=("check [args] against the program's --help; orchestrator show JOB lists them",),
    ),
    Cause.CHECKPOINT: CauseKind(
        title="a checkpoint could not be read",
        cures=(
            "go on from an older checkpoint; one that was being written when a job ended is cut",
            "of another model: keys with or without module. tell DDP's wrapper; load into the "
            "model before it is wrapped",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.DIVERGED: CauseKind(
        title="the training diverged: its loss is no number any more",
        cures=(
            "a lower learning rate or a longer warm-up, gradient clipping; the rate counts for the "
            "global batch, which grows with the number of GPUs",
            "bf16 in place of fp16",
            "go on from a checkpoint before it: orchestrator metrics JOB --name loss",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.PYTHON_EXCEPTION: CauseKind(
        title="the program raised an exception",
        cures=("see the traceback; the innermost line of your own code comes last",),
    ),
    Cause.SEGFAULT: CauseKind(
        title="the program crashed on a bad address (SIGSEGV)",
        cures=(
            'the place: [environment.variables] PYTHONFAULTHANDLER = "1"',
            "mixed libraries are the usual cause: one environment, made anew",
        ),
        retry=Retry.MAYBE,
    ),
    Cause.ILLEGAL_INSTRUCTION: CauseKind(
        title="the program was made for another processor (SIGILL)",
        cures=("build or install it on the node's own kind of machine; lscpu",),
    ),
    Cause.ABORTED: CauseKind(
        title="the program ended itself (SIGABRT)",
        cures=("the lines before the end of the log tell why: orchestrator logs JOB",),
        retry=Retry.MAYBE,
    ),
    Cause.KILLED: CauseKind(
        title="the program was killed from outside",
        cures=(
            "SIGKILL is mostly want of memory: ask for more, [resources] mem",
            "see the end of the log: orchestrator logs JOB",
        ),
        retry=Retry.MAYBE,
    ),
    Cause.NONZERO_EXIT: CauseKind(
        title="the program ended with an error",
        cures=("see the end of the log: orchestrator logs JOB",),
    ),
    Cause.UNKNOWN: CauseKind(
        title="nothing tells why it failed",
        cures=("see its history and its log: orchestrator show JOB, orchestrator logs JOB",),
    ),
}
