"""What reaches Slurm's commands, and through sbatch the job."""

from orchestrator import slurm

HOSTILE = {
    "PATH": "/usr/bin",
    "SLURM_CONF": "/etc/slurm/other.conf",
    "SLURM_JOB_ID": "7",
    "SLURM_CLUSTERS": "bogus",
    "SBATCH_PARTITION": "scavenge",
    "SQUEUE_USERS": "root",
    "SACCT_FORMAT": "JobID",
    "SCANCEL_STATE": "RUNNING",
    "SRUN_DEBUG": "3",
    "TZ": "Asia/Tokyo",
    "LC_ALL": "ja_JP.UTF-8",
    "WANDB_API_KEY": "x",
    "HF_TOKEN": "x",
    "my_password": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "TOKENIZERS_PARALLELISM": "false",
}


def test_questions():
    assert slurm.environment({**HOSTILE, "HF_TOKEN": "x"}) == {
        "PATH": "/usr/bin",
        "SLURM_CONF": "/etc/slurm/other.conf",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
        "LC_ALL": "C",
        "TZ": "UTC",
        "WANDB_API_KEY": "x",
        "HF_TOKEN": "x",
        "my_password": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "TOKENIZERS_PARALLELISM": "false",
    }


def test_submission_keeps_the_users_own_and_no_secret():
    assert slurm.submission_environment(HOSTILE, keep=["HF_TOKEN"]) == {
        "PATH": "/usr/bin",
        "SLURM_CONF": "/etc/slurm/other.conf",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "ja_JP.UTF-8",
        "HF_TOKEN": "x",
        "TOKENIZERS_PARALLELISM": "false",
    }
    assert slurm.secret_names(HOSTILE, keep=["HF_TOKEN"]) == {
        "WANDB_API_KEY",
        "my_password",
        "AWS_SECRET_ACCESS_KEY",
    }


def test_a_database_with_a_password_stays_here():
    url = "postgresql://alice{}@db/alice"
    harmless = {"ORCHESTRATOR_DATABASE": url.format("")}
    assert slurm.submission_environment(harmless) == harmless
    secret = {"ORCHESTRATOR_DATABASE": url.format(":x")}
    assert slurm.submission_environment(secret) == {}
    assert slurm.submission_environment(secret, keep=["ORCHESTRATOR_DATABASE"]) == secret
