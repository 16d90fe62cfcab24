"""The environment of Slurm's commands: the user's, without what would change their answers."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from orchestrator import config

# SBATCH_PARTITION overrides the script, SQUEUE_STATES empties an answer with status 0 (measured
# on 22.05), and SLURM_* of a surrounding job reach the new one.
_SCRUBBED = re.compile(
    r"(?:SLURM|SBATCH|SQUEUE|SACCT|SACCTMGR|SCANCEL|SRUN|SALLOC|SCONTROL|SINFO)_.*"
    # Of a local job that this is called in: by it the job's own processes are known.
    r"|ORCHESTRATOR_LOCAL_ATTEMPT",
    re.DOTALL,
)
_KEPT = frozenset({"SLURM_CONF"})
# With --export=ALL the whole environment is sent to slurmctld, and stored in its database where
# AccountingStoreFlags has job_env. TOKENIZERS_PARALLELISM is no secret.
_SECRET = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:API|ACCESS|PRIVATE)_?KEY"
    r"|AUTHORIZATION|BEARER|WEBHOOK|CONNECTION_STRING|PGPASS(?!FILE)|(?:DB|SQL)_?PWD"
    # As whole words only, and the last: GITHUB_PAT and not PATH, OPENAI_KEY and not KEYBOARD.
    r"|(?:^|_)(?:PAT|KEYS?|DSN|AUTH|PASS|JWT|COOKIE)$"
    r"|(?:^|_)(?:DATABASE|DB|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|MYSQL|AMQP|BROKER)_UR[IL]$"
)
DATABASE = "ORCHESTRATOR_DATABASE"


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for commands that ask: epoch times, uncut lists, plain English."""
    return {
        **scrubbed(environ),
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def submission_environment(
    environ: Mapping[str, str], keep: Collection[str] = ()
) -> dict[str, str]:
    """Return the environment for sbatch, which hands it to the job.

    keep: names of secrets that are meant to reach the job.
    """
    secret = secret_names(environ, keep)
    return {name: value for name, value in scrubbed(environ).items() if name not in secret}


def secret_names(environ: Mapping[str, str], keep: Collection[str] = ()) -> frozenset[str]:
    """Return the names that look like secrets and are not named in keep.

    The database's URL is one where it holds a password.
    """
    found = {name for name in environ if _SECRET.search(name.upper())}
    if config.has_password(environ.get(DATABASE, "")):
        found.add(DATABASE)
    return frozenset(found) - frozenset(keep)


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that would change Slurm's answers."""
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT or not _SCRUBBED.fullmatch(name)
    }
