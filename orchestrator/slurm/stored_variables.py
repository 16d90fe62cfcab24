"""Which of a shell's variables may be stored for a job that starts later, and which may not.

A local job, one that waits for room, the next job of a [retry], a schedule and a graph start when
the shell is gone. What they need of its variables lies on disk or in the database until then, so
that only names are stored that say how programs run, and those that the spec names. A list of what
must not be stored would always be too short: a secret may have any name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from orchestrator import config
from orchestrator.slurm import variables

#: What the names are about -> the names, as regular expressions.
_STORED = {
    "who runs it, and where": "HOME|USER|LOGNAME|SHELL|TERM|TMPDIR|XDG_.*",
    "language and time": "LANG|LANGUAGE|LC_.*|TZ",
    "where programs and libraries are": (
        "PATH|LD_LIBRARY_PATH|LD_PRELOAD|LIBRARY_PATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|CPATH"
        "|PKG_CONFIG_PATH|CMAKE_PREFIX_PATH|MANPATH|INFOPATH|CC|CXX"
    ),
    "environment modules (Lmod, Environment Modules, EasyBuild, EESSI, Spack)": (
        "MODULEPATH|MODULEPATH_ROOT|MODULESHOME|MODULES_.*|LOADEDMODULES|_LMFILES_.*|LMOD_.*"
        "|__LMOD_.*|__MODULES_.*|_ModuleTable.*|BASH_ENV|ENV|FPATH|EB(?:ROOT|VERSION|DEVEL).*"
        "|EASYBUILD_.*|EESSI_.*|SPACK_.*"
    ),
    "the functions by which a shell calls them; of no others, whose text may hold anything": (
        r"BASH_FUNC_(?:module|ml|_module_raw|spack)(?:%%|\(\))"
    ),
    "Python and its environments": "VIRTUAL_ENV|CONDA_.*|MAMBA_.*|PYTHON.*",
    "GPUs": "CUDA_.*|CUDNN_.*|NVIDIA_.*|ROCM_.*|ROCR_.*|HIP_.*|HSA_.*|GPU_DEVICE_ORDINAL",
    "threads": "OMP_.*|MKL_.*|GOMP_.*|KMP_.*|OPENBLAS_.*|NUMEXPR_.*|TOKENIZERS_PARALLELISM",
    "frameworks": "TORCH.*|PYTORCH_.*|TRITON_.*|XLA_.*|JAX_.*|TF_.*",
    "communication": (
        "NCCL_.*|RCCL_.*|UCX_.*|FI_.*|GLOO_.*|OMPI_.*|MPICH_.*|MASTER_ADDR|MASTER_PORT"
    ),
    "caches of models and data, and whether they are all that is used": (
        "HF_HOME|HF_HUB_CACHE|HF_DATASETS_CACHE|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE"
        "|TRANSFORMERS_CACHE|TRANSFORMERS_OFFLINE|WANDB_MODE|WANDB_DIR"
    ),
    "containers": "APPTAINER_.*|APPTAINERENV_.*|SINGULARITY_.*|SINGULARITYENV_.*",
    "networks": (
        "(?:https?|ftp|all|no)_proxy|(?:HTTPS?|FTP|ALL|NO)_PROXY|SSL_CERT_(?:FILE|DIR)"
        "|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|KRB5CCNAME"
    ),
    "our own settings, and where Slurm is": "ORCHESTRATOR_.*|SLURM_CONF",
}
_IS_STORED = re.compile("|".join(_STORED.values()), re.DOTALL)
#: A user with a password in a URL, and any user in one of the web's: it may be a token.
_CREDENTIALS = re.compile(r"://\S*:\S*@|https?://[^/\s]*@", re.IGNORECASE)
#: A program of a job does not miss them: they belong to the terminal, the desktop or the login.
_OF_THE_SHELL = re.compile(
    r"_|PS[0-4]|PWD|OLDPWD|SHLVL|COLUMNS|LINES|HOST|HOSTNAME|HOSTTYPE|MACHTYPE|OSTYPE|MAIL|CDPATH"
    r"|PAGER|EDITOR|VISUAL|BROWSER|DISPLAY|XAUTHORITY|SESSION_MANAGER|STY|COLORTERM|LS_COLORS"
    r"|NO_COLOR|FORCE_COLOR|CLICOLOR(?:_FORCE)?"
    r"|(?:PROMPT|HIST|SSH|DBUS|LESS|WAYLAND|TMUX|TERM_|VTE|GNOME|GTK|QT_|KDE|DESKTOP|SUDO|GPG"
    r"|BASH(?!_FUNC)|ZSH|VSCODE|WINDOW|SYSTEMD|JOURNAL|INVOCATION|MOTD|GIT_).*",
    re.DOTALL,
)


def stored_environment(environ: Mapping[str, str], inherit: Collection[str] = ()) -> dict[str, str]:
    """Return what may be stored for a job.

    inherit: the variables that its spec names; they are taken whatever they hold.
    """
    passed = variables.submission_environment(environ, inherit)
    return {
        name: value
        for name, value in passed.items()
        if name in inherit or (_IS_STORED.fullmatch(name) and not _has_credentials(name, value))
    }


def left_out(environ: Mapping[str, str], inherit: Collection[str] = ()) -> list[str]:
    """Return the names of what is not stored and a program might miss."""
    stored = stored_environment(environ, inherit)
    return sorted(
        name
        for name in variables.scrubbed(environ)
        if name not in stored and not _OF_THE_SHELL.fullmatch(name)
    )


def _has_credentials(name: str, value: str) -> bool:
    # The database's URL may name its user.
    is_database = name == variables.DATABASE
    return config.has_password(value) if is_database else bool(_CREDENTIALS.search(value))
