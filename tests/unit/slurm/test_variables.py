"""Environment variables of Slurm's commands and, through sbatch, of the job."""

from orchestrator.slurm import variables

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


def test_environment_of_queries():
    assert variables.for_queries({**HOSTILE, "HF_TOKEN": "x"}) == {
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
    assert variables.for_submission(HOSTILE, inherit=["HF_TOKEN"]) == {
        "PATH": "/usr/bin",
        "SLURM_CONF": "/etc/slurm/other.conf",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "ja_JP.UTF-8",
        "HF_TOKEN": "x",
        "TOKENIZERS_PARALLELISM": "false",
    }
    assert variables.secret_names(HOSTILE, inherit=["HF_TOKEN"]) == {
        "WANDB_API_KEY",
        "my_password",
        "AWS_SECRET_ACCESS_KEY",
    }


def test_a_database_with_a_password_stays_here():
    url = "postgresql://alice{}@db/alice"
    harmless = {"ORCHESTRATOR_DATABASE": url.format("")}
    assert variables.for_submission(harmless) == harmless
    secret = {"ORCHESTRATOR_DATABASE": url.format(":x")}
    assert variables.for_submission(secret) == {}
    assert variables.for_submission(secret, inherit=["ORCHESTRATOR_DATABASE"]) == secret


def test_the_run_of_a_surrounding_job_is_not_passed_on():
    environ = {
        "ORCHESTRATOR_TRACKING": "ORCHESTRATOR_RUN_ID WANDB_RUN_ID",
        "ORCHESTRATOR_RUN_ID": "abc",
        "WANDB_RUN_ID": "abc",
        "WANDB_PROJECT": "mine",
    }
    assert variables.for_submission(environ) == {"WANDB_PROJECT": "mine"}


def test_secrets_by_their_names_and_ordinary_names_like_them():
    secrets = "GITHUB_PAT OPENAI_KEY SSH_KEYS DATABASE_URL REDIS_URL SENTRY_DSN BASIC_AUTH DB_PASS"
    extra = "PGPASSWORD DB_PWD SLACK_WEBHOOK_URL SESSION_COOKIE OPENAI_API_KEY HF_TOKEN AZURE_JWT"
    names = [*secrets.split(), *extra.split()]
    assert variables.secret_names(dict.fromkeys(names, "x")) == set(names)
    ordinary = "PATH MANPATH PATTERN KEYBOARD KEYMAP MONKEY PWD OLDPWD PGPASSFILE SSH_AUTH_SOCK"
    extra = "XAUTHORITY TOKENIZERS_PARALLELISM COMPASS AUTHOR DSNAME TURKEY_SIZE BASE_URL"
    assert variables.secret_names(dict.fromkeys([*ordinary.split(), *extra.split()], "x")) == set()


def test_stored_variables_are_an_allow_list():
    kept = {
        "PATH": "/usr/bin",
        "LD_LIBRARY_PATH": "/lib",
        "LC_ALL": "C",
        "MODULEPATH": "/m",
        "_ModuleTable001_": "x",
        "BASH_FUNC_module%%": "() { :; }",
        "CONDA_PREFIX": "/c",
        "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_DEBUG": "INFO",
        "HF_HOME": "/h",
        "http_proxy": "http://proxy:3128",
        "ORCHESTRATOR_DATABASE": "postgresql://alice@db/alice",
    }
    dropped = {
        "AWS_PROFILE": "x",
        "HF_TOKEN": "x",
        "CONDA_TOKEN": "x",
        "APPTAINER_DOCKER_PASSWORD": "x",
        "BASH_FUNC_deploy%%": "() { :; }",
        "https_proxy": "http://u:p@proxy:3128",
        "HTTPS_PROXY": "https://token@proxy",
        "MODULES_SOURCE": "s3://u:p@bucket",
        "MY_OWN": "x",
    }
    shell_only = {"PS1": "$", "HISTSIZE": "1", "SSH_TTY": "x", "OLDPWD": "/", "BASH_VERSION": "5"}
    shell_only["VIRTUAL_ENV_PROMPT"] = "(.venv) "
    environ = {**kept, **dropped, **shell_only, "SLURM_JOB_ID": "7"}
    assert variables.stored(environ) == kept
    assert variables.not_stored(environ) == sorted(dropped)
    texts = ["torchrun train.py --data ${MY_OWN}", "# MY_OTHER, OLDPWD"]
    assert variables.needed(variables.not_stored(environ), texts) == [
        *("AWS_PROFILE", "HF_TOKEN", "MY_OWN")
    ]
    named = variables.stored(environ, ["MY_OWN", "https_proxy", "SLURM_JOB_ID"])
    assert named == {**kept, "MY_OWN": "x", "https_proxy": dropped["https_proxy"]}


def test_the_database_of_a_controller_is_stored_without_a_password():
    url = {"ORCHESTRATOR_DATABASE": "postgresql://alice:x@db/alice"}
    assert variables.stored(url) == {}
