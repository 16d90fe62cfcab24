"""The configuration of the Slurm cluster: slurm.conf and related files."""

from __future__ import annotations

import dataclasses

LOGIN_HOST = "ctl"
NODES = ("n1", "n2", "n3", "n4")
HOSTS = (LOGIN_HOST, *NODES)
GPUS_PER_NODE = 4
CPUS_PER_NODE = 8
MEMORY_PER_NODE_MIB = 20000
#: Folder of all files that the daemons write, on every host.
LAB = "/var/lab"
#: Ordinary users and their user IDs. `carol` has no association in the accounting.
USERS = {"alice": 2001, "bob": 2002, "carol": 2003}
ACCOUNT = "proj"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What may differ from one cluster to the next, and while it runs."""

    #: Slurm release, `22.05`, `24.11` or `26.05`.
    release: str = "24.11"
    #: slurmdbd keeps records; off, Slurm forgets a job when its age passes.
    accounting: bool = True
    #: Seconds that slurmctld keeps a finished job: tests requeue some that ended a while ago.
    min_job_age_seconds: int = 120
    #: No job gets a smaller ID.
    first_job_id: int = 1
    #: Seconds that Slurm's commands wait for a reply before they try again.
    message_timeout_seconds: int = 5
    #: cgroup v1 hierarchies can be used, so that memory limits are real.
    cgroups: bool = True
    #: More lines for slurm.conf, in its own syntax; a key given here wins over ours.
    extra: tuple[str, ...] = ()
    #: More lines for slurmdbd.conf.
    dbd_extra: tuple[str, ...] = ()
    #: Text of job_submit.lua, with which a site changes submissions; empty: none.
    job_submit_lua: str = ""


def address(host: str) -> str:
    """The IPv4 address of a host on the lab's bridge."""
    return f"10.77.0.{1 if host == LOGIN_HOST else 10 + int(host.removeprefix('n'))}"


def hosts_file() -> str:
    """`/etc/hosts` of every host."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    return "\n".join([*lines, *(f"{address(host)} {host}" for host in HOSTS)]) + "\n"


def slurm_conf(settings: Settings) -> str:
    """`slurm.conf`, the same on all hosts."""
    kind = "cgroup" if settings.cgroups else None
    keys = {
        "ClusterName": "lab",
        "SlurmctldHost": f"{LOGIN_HOST}({address(LOGIN_HOST)})",
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        # A requeued job waits until its old credential has expired, by default 120 s.
        "AuthInfo": "cred_expire=10",
        "StateSaveLocation": f"{LAB}/ctld",
        "SlurmdSpoolDir": f"{LAB}/spool/%n",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid",
        "SlurmctldLogFile": f"{LAB}/log/slurmctld.log",
        "SlurmdLogFile": f"{LAB}/log/slurmd-%n.log",
        "SlurmctldDebug": "info",
        "ProctrackType": f"proctrack/{kind or 'linuxproc'}",
        "TaskPlugin": f"task/{kind or 'none'}",
        "JobAcctGatherType": f"jobacct_gather/{kind or 'linux'}",
        "JobAcctGatherFrequency": "2",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        # The nodes have more CPUs and memory than the machine that they are on.
        "SlurmdParameters": "config_overrides",
        "MpiDefault": "none",
        "ReturnToService": "2",
        "SlurmdTimeout": "20",
        "InactiveLimit": "0",
        "KillWait": "5",
        "MinJobAge": str(settings.min_job_age_seconds),
        "FirstJobId": str(settings.first_job_id),
        "MessageTimeout": str(settings.message_timeout_seconds),
        "MaxArraySize": "1001",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "GresTypes": "gpu",
        # Without it a job takes all memory of its nodes, and jobs queue one behind another.
        "DefMemPerCPU": "500",
        "SchedulerParameters": "sched_interval=1,bf_interval=2,batch_sched_delay=0",
    }
    if not settings.cgroups:
        keys["JobAcctGatherParams"] = "OverMemoryKill"
    if settings.accounting:
        keys |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": LOGIN_HOST,
            "AccountingStorageTRES": "gres/gpu",
            "AccountingStoreFlags": "job_comment,job_script,job_env",
            "AccountingStorageEnforce": "associations,limits,qos",
        }
    if settings.job_submit_lua:
        keys["JobSubmitPlugins"] = "lua"
    for line in settings.extra:
        key, _, value = line.partition("=")
        keys[key] = value
    nodes = f"n[1-{len(NODES)}]"
    return "\n".join(
        [
            *(f"{key}={value}" for key, value in keys.items()),
            f"NodeName={nodes} NodeAddr=10.77.0.[11-{10 + len(NODES)}] CPUs={CPUS_PER_NODE}"
            f" Boards=1 SocketsPerBoard=1 CoresPerSocket={CPUS_PER_NODE} ThreadsPerCore=1"
            f" RealMemory={MEMORY_PER_NODE_MIB} Gres=gpu:{GPUS_PER_NODE} State=UNKNOWN",
            f"PartitionName=gpu Nodes={nodes} Default=YES MaxTime=INFINITE State=UP"
            " PriorityTier=10 PreemptMode=OFF",
            # Without GraceTime: 24.11.5 puts a job that was preempted with one back into the queue
            # once more after its good end.
            f"PartitionName=scavenge Nodes={nodes} MaxTime=1:00:00 State=UP PriorityTier=1"
            " PreemptMode=REQUEUE",
            f"PartitionName=spot Nodes={nodes} MaxTime=1:00:00 State=UP PriorityTier=1"
            " PreemptMode=CANCEL GraceTime=4",
            f"PartitionName=short Nodes={nodes} MaxTime=1 State=UP",
            "",
        ]
    )


def gres_conf() -> str:
    """`gres.conf`: character devices that stand for GPUs (the hosts make them in /dev).

    A regular file does not work: slurmd then only logs "not a valid character or block device", and
    does not set CUDA_VISIBLE_DEVICES.
    """
    devices = f"/dev/nvidia[0-{GPUS_PER_NODE - 1}]"
    return f"NodeName=n[1-{len(NODES)}] Name=gpu File={devices} Flags=nvidia_gpu_env\n"


def cgroup_conf(settings: Settings) -> str:
    """`cgroup.conf`; real memory limits where cgroup v1 is there."""
    if settings.cgroups:
        return "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n"
    # 22.05 has no `disabled`; this plugin does nothing until another plugin needs a cgroup.
    return f"CgroupPlugin={'cgroup/v1' if settings.release == '22.05' else 'disabled'}\n"


def slurmdbd_conf(settings: Settings) -> str:
    """`slurmdbd.conf`; its mode must be 0600."""
    return (
        f"AuthType=auth/munge\nDbdHost={LOGIN_HOST}\nSlurmUser=root\nPidFile=/run/slurmdbd.pid\n"
        "StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStorageUser=slurm\n"
        "StoragePass=lab\nStorageLoc=slurm_acct_db\nMessageTimeout=10\n"
        f"LogFile={LAB}/log/slurmdbd.log\n" + "".join(f"{line}\n" for line in settings.dbd_extra)
    )


def database_statements() -> str:
    """SQL that makes slurmdbd's database and its user."""
    text = "CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n"
    for host in ("localhost", "127.0.0.1"):
        text += f"CREATE USER IF NOT EXISTS slurm@'{host}' IDENTIFIED BY 'lab';\n"
        text += f"GRANT ALL ON slurm_acct_db.* TO slurm@'{host}';\n"
    return text


def accounting_commands() -> list[list[str]]:
    """sacctmgr calls that make the cluster, the account, its users and the QOS."""
    users = [user for user in USERS if user != "carol"]
    return [
        ["sacctmgr", "-iQ", *words]
        for words in (
            ["add", "cluster", "lab"],
            ["add", "account", ACCOUNT, "Description=lab", "Organization=lab"],
            ["add", "qos", "tiny"],
            ["modify", "qos", "tiny", "set", "MaxSubmitJobsPerUser=3"],
            *(["add", "user", user, f"Account={ACCOUNT}"] for user in ("root", *users)),
            *(["modify", "user", user, "set", "qos+=tiny"] for user in users),
        )
    ]


def files(settings: Settings) -> dict[str, str]:
    """The files of /etc/slurm by name."""
    return {
        "slurm.conf": slurm_conf(settings),
        "gres.conf": gres_conf(),
        "cgroup.conf": cgroup_conf(settings),
        "slurmdbd.conf": slurmdbd_conf(settings),
        "job_submit.lua": settings.job_submit_lua,
    }
