"""Parsing of scontrol's output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import errors
from orchestrator.slurm import scontrol


def test_config(recorded):
    config = scontrol.parse_config(recorded.text("scontrol-config.txt"))
    assert config.cluster_name == "lab"
    assert config.slurm_version.startswith(recorded.name)
    assert (config.message_timeout_seconds, config.min_job_age_seconds) == (5, 300)
    assert (config.max_array_size, config.accounting) == (1001, True)
    assert config.counts_gpus
    assert config.answered_at is not None
    assert config.settings["KillWait"] == "3 sec"


@pytest.mark.parametrize("storage", ["accounting_storage/none", "(null)"])
def test_a_cluster_without_accounting(storage):
    text = f"ClusterName = a\nSLURM_VERSION = 24.11.5\nAccountingStorageType = {storage}\n"
    config = scontrol.parse_config(text)
    assert not (config.accounting or config.counts_gpus)


def test_output_without_a_configuration():
    with pytest.raises(errors.SlurmError, match="ClusterName"):
        scontrol.parse_config("Slurmctld(primary) at ctl is DOWN\n")


def test_job(recorded):
    job = scontrol.parse_record(recorded.text("scontrol-job.txt"))
    assert job["JobName"].endswith(f".{job['Comment']}")
    assert job["StdOut"] == f"/home/alice/runs/{job['JobName']}/{job['JobId']}.out"
    assert job["Restarts"].isdigit()
    assert job["MCS_label"] == "N/A"
    assert job["UserId"] == "alice(2001)"
    assert job["CPUs/Task"] == "1"


def test_values_with_spaces():
    job = scontrol.parse_record("JobId=1 JobName=my job a=b Comment= WorkDir=/a b\n")
    assert job == {"JobId": "1", "JobName": "my job a=b", "Comment": "", "WorkDir": "/a b"}


@given(st.text())
def test_any_text(text):
    scontrol.parse_record(text)
    try:
        scontrol.parse_config(text)
    except errors.SlurmError as problem:
        assert "ClusterName" in str(problem)


@pytest.mark.parametrize(
    ("task", "last"),
    [("99999_1", "slurm_suspend error: No error"), ("99999_[1]", "slurm_suspend error")],
    ids=["22.05 and 24.11", "26.05"],
)
def test_refusals(task, last):
    # scontrol release 1,99999,7,4,99999_1
    stderr = (
        "Invalid job id specified for job 99999\n"
        "Job has already finished for job 7\n"
        f"{task}: Invalid job id specified\n"
        f"{last}\n"
    )
    assert scontrol.parse_refusals(stderr) == {
        "99999": "Invalid job id specified",
        "7": "Job has already finished",
        "99999_1": "Invalid job id specified",
    }


@given(st.text())
def test_refusals_are_those_of_jobs(text):
    for job_id, why in scontrol.parse_refusals(text).items():
        assert job_id.replace("_", "").isdigit() and why in text


def test_the_architectures_of_each_partition() -> None:
    text = (
        "NodeName=n1 Arch=x86_64 CoresPerSocket=1 OS=Linux 6.1 Partitions=cpu,all Comment=a b\n"
        "NodeName=n2 Arch=aarch64 Partitions=gh,all \nNodeName=n3 CPUTot=4 Partitions=all\n"
        "NodeName=n4 Arch=x86_64\nNo nodes\n"
    )
    assert scontrol.parse_architectures(text) == {
        "cpu": ["x86_64"],
        "all": ["", "aarch64", "x86_64"],
        "gh": ["aarch64"],
    }
