"""Which environment variables reach Slurm's commands, a job, and the stored record of a job."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from orchestrator import config

DATABASE = "ORCHESTRATOR_DATABASE"
#: Names of the variables that a job has for its trackers (templates/environment/tracking.sh.j2).
TRACKING = "ORCHESTRATOR_TRACKING"
# SBATCH_PARTITION overrides the script, SQUEUE_STATES empties the output with status 0 (measured
# on 22.05), and SLURM_* of a surrounding job reach the new one.
_SLURM = re.compile(
    r"(?:SLURM|SBATCH|SQUEUE|SACCT|SACCTMGR|SCANCEL|SRUN|SALLOC|SCONTROL|SINFO)_.*"
    # Identifies the processes of a surrounding local job.
    r"|ORCHESTRATOR_LOCAL_ATTEMPT",
    re.DOTALL,
)
# With --export=ALL sbatch sends the whole environment to slurmctld, and slurmdbd stores it if
# AccountingStoreFlags has job_env. TOKENIZERS_PARALLELISM is not a secret.
_SECRET = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:API|ACCESS|PRIVATE)_?KEY"
    r"|AUTHORIZATION|BEARER|WEBHOOK|CONNECTION_STRING|PGPASS(?!FILE)|(?:DB|SQL)_?PWD"
    # As the last word only: GITHUB_PAT and not PATH, OPENAI_KEY and not KEYBOARD.
    r"|(?:^|_)(?:PAT|KEYS?|DSN|AUTH|PASS|JWT|COOKIE)$"
    r"|(?:^|_)(?:DATABASE|DB|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|MYSQL|AMQP|BROKER)_UR[IL]$"
)
#: Variables that may be stored, by purpose. docs/howto/variables.md
_STORED = {
    "user and place": "HOME|USER|LOGNAME|SHELL|TERM|TMPDIR|XDG_.*",
    "language and time": "LANG|LANGUAGE|LC_.*|TZ",
    "places of programs and libraries": (
        "PATH|LD_LIBRARY_PATH|LD_PRELOAD|LIBRARY_PATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|CPATH"
        "|PKG_CONFIG_PATH|CMAKE_PREFIX_PATH|MANPATH|INFOPATH|CC|CXX"
    ),
    "environment modules (Lmod, Environment Modules, EasyBuild, EESSI, Spack)": (
        "MODULEPATH|MODULEPATH_ROOT|MODULESHOME|MODULES_.*|LOADEDMODULES|_LMFILES_.*|LMOD_.*"
        "|__LMOD_.*|__MODULES_.*|_ModuleTable.*|BASH_ENV|ENV|FPATH|EB(?:ROOT|VERSION|DEVEL).*"
        "|EASYBUILD_.*|EESSI_.*|SPACK_.*"
    ),
    "the shell functions of modules; the text of others may contain anything": (
        r"BASH_FUNC_(?:module|ml|_module_raw|spack)(?:%%|\(\))"
    ),
    "Python and its environments": "VIRTUAL_ENV|CONDA_.*|MAMBA_.*|PYTHON.*",
    "GPUs": "CUDA_.*|CUDNN_.*|NVIDIA_.*|ROCM_.*|ROCR_.*|HIP_.*|HSA_.*|GPU_DEVICE_ORDINAL",
    "threads": "OMP_.*|MKL_.*|GOMP_.*|KMP_.*|OPENBLAS_.*|NUMEXPR_.*|TOKENIZERS_PARALLELISM",
    "frameworks": "TORCH.*|PYTORCH_.*|TRITON_.*|XLA_.*|JAX_.*|TF_.*",
    "communication": (
        "NCCL_.*|RCCL_.*|UCX_.*|FI_.*|GLOO_.*|OMPI_.*|MPICH_.*|MASTER_ADDR|MASTER_PORT"
    ),
    "caches of models and data": (
        "HF_HOME|HF_HUB_CACHE|HF_DATASETS_CACHE|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE"
        "|TRANSFORMERS_CACHE|TRANSFORMERS_OFFLINE|WANDB_MODE|WANDB_DIR"
    ),
    "containers": (
        "APPTAINER_.*|APPTAINERENV_.*|SINGULARITY_.*|SINGULARITYENV_.*|PODMANHPC_.*|SQUASH_DIR"
        "|SCRATCH|CH_IMAGE_STORAGE|EDF_PATH|EDF_IMAGESTORE"
    ),
    "networks": (
        "(?:https?|ftp|all|no)_proxy|(?:HTTPS?|FTP|ALL|NO)_PROXY|SSL_CERT_(?:FILE|DIR)"
        "|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|KRB5CCNAME"
    ),
    "the orchestrator and Slurm": "ORCHESTRATOR_.*|SLURM_CONF",
}
_IS_STORED = re.compile("|".join(_STORED.values()), re.DOTALL)
#: A user with a password in any URL, and any user in a web URL: it may be a token.
_CREDENTIALS = re.compile(r"://\S*:\S*@|https?://[^/\s]*@", re.IGNORECASE)
#: Variables of the terminal, desktop or login, which no program of a job needs.
_INTERACTIVE = re.compile(
    r"_|PS[0-4]|PWD|OLDPWD|SHLVL|COLUMNS|LINES|HOST|HOSTNAME|HOSTTYPE|MACHTYPE|OSTYPE|MAIL|CDPATH"
    r"|PAGER|EDITOR|VISUAL|BROWSER|DISPLAY|XAUTHORITY|SESSION_MANAGER|STY|COLORTERM|LS_COLORS"
    r"|NO_COLOR|FORCE_COLOR|CLICOLOR(?:_FORCE)?|VIRTUAL_ENV_PROMPT"
    r"|(?:PROMPT|HIST|SSH|DBUS|LESS|WAYLAND|TMUX|TERM_|VTE|GNOME|GTK|QT_|KDE|DESKTOP|SUDO|GPG"
    r"|BASH(?!_FUNC)|ZSH|VSCODE|WINDOW|SYSTEMD|JOURNAL|INVOCATION|MOTD|GIT_).*",
    re.DOTALL,
)

#: Variables of libraries, which read them without the program naming them.
_LIBRARIES = re.compile(
    r"(?:WANDB|MLFLOW|COMET|NEPTUNE|CLEARML|TENSORBOARD|HF|HUGGING_?FACE|TRANSFORMERS|DATASETS"
    r"|ACCELERATE|DEEPSPEED|DS|LIGHTNING|PL|RAY|HYDRA|AWS|S3|GOOGLE|GCP|AZURE|KAGGLE)_.*",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def for_queries(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Slurm's commands: epoch times, uncut lists, English messages."""
    return {
        **_without_slurm(environ),
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def for_submission(environ: Mapping[str, str], inherit: Collection[str] = ()) -> dict[str, str]:
    """Return the environment for sbatch, which passes it to the job.

    `inherit`: names that the spec lists; they are passed even if they look like secrets.
    """
    secrets = secret_names(environ, inherit)
    return {name: value for name, value in _without_slurm(environ).items() if name not in secrets}


def secret_names(environ: Mapping[str, str], inherit: Collection[str] = ()) -> frozenset[str]:
    """Return the names that look like secrets, and that of a database URL with a password."""
    names = {name for name in environ if _SECRET.search(name.upper())}
    if config.has_password(environ.get(DATABASE, "")):
        names.add(DATABASE)
    return frozenset(names) - frozenset(inherit)


def stored(environ: Mapping[str, str], inherit: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that may be stored for a job that starts later.

    Local jobs, deferred submissions, continuation jobs, schedules and graphs start when the shell
    is gone. Until then their variables are stored on disk or in the database. This is a list of
    allowed names because a secret may have any name. `inherit`: names that the spec lists.
    """
    return {
        name: value
        for name, value in for_submission(environ, inherit).items()
        if name in inherit or (_IS_STORED.fullmatch(name) and not _has_credentials(name, value))
    }


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose name and value look like no secret."""
    secrets = secret_names(environ)
    return {
        name: value
        for name, value in environ.items()
        if name not in secrets and not _has_credentials(name, value)
    }


def not_stored(environ: Mapping[str, str], inherit: Collection[str] = ()) -> list[str]:
    """Return the names that are not stored although a program might need them."""
    kept = stored(environ, inherit)
    names = _without_slurm(environ)
    return sorted(name for name in names if name not in kept and not _INTERACTIVE.fullmatch(name))


def needed(names: Collection[str], texts: Iterable[str]) -> list[str]:
    """Return the names that a program with these texts plausibly reads: named, or a library's."""
    words = {word for text in texts for word in _WORD.findall(text)}
    return [name for name in names if name in words or _LIBRARIES.fullmatch(name)]


def _without_slurm(environ: Mapping[str, str]) -> dict[str, str]:
    # The run of a surrounding job is not that of the jobs that it submits.
    of_job = {TRACKING, *environ.get(TRACKING, "").split()}
    return {
        name: value
        for name, value in environ.items()
        if name not in of_job and (name == "SLURM_CONF" or not _SLURM.fullmatch(name))
    }


def _has_credentials(name: str, value: str) -> bool:
    # The database's URL may contain its user.
    return config.has_password(value) if name == DATABASE else bool(_CREDENTIALS.search(value))
