"""A node: runs one job's script and records how it ended. Argument: the job ID."""

from __future__ import annotations

import _signal
import os
import sys

import fake


def expanded(pattern: str, job: fake.Job) -> str:
    """Fill in %j, %A, %a and %x."""
    values = {
        "%j": str(job["job_id"]),
        "%A": str(job["array_job_id"] or job["job_id"]),
        "%a": str(job["array_task_id"]),
        "%x": job["name"],
    }
    for letter, value in values.items():
        pattern = pattern.replace(letter, value)
    return pattern


def environment(job: fake.Job, data: dict) -> dict[str, str]:
    """Return what slurmd sets, and what the submitter had."""
    environ = dict(os.environ)
    environ.update(
        SLURM_JOB_ID=str(job["job_id"]),
        SLURM_JOBID=str(job["job_id"]),
        SLURM_JOB_NAME=job["name"],
        SLURM_JOB_PARTITION=job["partition"],
        SLURM_JOB_NODELIST=job["node_list"],
        SLURM_JOB_NUM_NODES=str(job["nodes"]),
        SLURM_NNODES=str(job["nodes"]),
        SLURM_NODEID="0",
        SLURM_PROCID="0",
        SLURM_LOCALID="0",
        SLURM_SUBMIT_DIR=job["workdir"],
        SLURM_CLUSTER_NAME=data["config"]["ClusterName"],
        SLURMD_NODENAME="n1",
    )
    if job["restarts"]:
        environ["SLURM_RESTART_COUNT"] = str(job["restarts"])
    if job["array_task_id"] is not None:
        environ["SLURM_ARRAY_JOB_ID"] = str(job["array_job_id"])
        environ["SLURM_ARRAY_TASK_ID"] = str(job["array_task_id"])
    if job["gpus_per_node"]:
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(job["gpus_per_node"])))
        environ["SLURM_GPUS_ON_NODE"] = str(job["gpus_per_node"])
    return environ


def main(job_id: str) -> None:
    where = fake.folder()
    with fake.state(where) as data:
        job = data["jobs"][job_id]
        if job["state"] != "PENDING":
            return
        fake.change(data, job, "RUNNING", runner=os.getpid())
        environ = environment(job, data)
    # scancel signals the whole session; the runner itself survives to record the end.
    _signal.signal(_signal.SIGTERM, lambda number, frame: None)
    try:
        how = os.O_APPEND if job["append"] or job["restarts"] else os.O_TRUNC
        log = os.open(expanded(job["stdout"], job), os.O_WRONLY | os.O_CREAT | how, 0o666)
        os.chdir(job["workdir"])
        command = ["bash", f"{where}/script.{job_id}", *job["arguments"]]
        outputs = [(os.POSIX_SPAWN_DUP2, log, number) for number in (1, 2)]
        status = fake.call(command, environ, file_actions=outputs)
    except OSError:
        # slurmd's exit code if it could not open the log.
        status = -53
    with fake.state(where) as data:
        job = data["jobs"][job_id]
        if job["runner"] != os.getpid():
            return
        job["runner"] = None
        if job["state"] in ("RUNNING", "COMPLETING"):
            new = "COMPLETED" if status == 0 else "FAILED"
            ended = [0, -status] if status < 0 else [status, 0]
            reason = "None" if status == 0 else "NonZeroExitCode"
            fake.change(data, job, new, exit=ended, reason=reason)


if __name__ == "__main__":
    main(sys.argv[1])
