"""What lies in a job's folder: script, spec, claims, logs, exit record, metrics.

The names and who writes them are listed in docs/design.md, "Identity and the run folder".
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import shutil
import string
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import errors, files, jobs
from orchestrator.files import users

TOKEN_CHARACTERS = string.ascii_lowercase + string.digits
INSTALLATION_ID_LENGTH = 4
TOKEN_LENGTH = 12

_TOKEN_NAME = re.compile(rf"(?P<name>.+)\.(?P<token>[a-z0-9]{{{TOKEN_LENGTH}}})")
_ATTEMPT = re.compile(r"attempt\.(?P<task>\d{1,10})\.(?P<number>\d{1,10})", re.ASCII)
#: An exit record is some 150 bytes; what is larger was not written by the script.
_RECORD_LIMIT_BYTES = 16 * 1024
#: A shell knows no larger exit status.
_MOST_RC = 255
#: The kernel takes 6 MiB of arguments and variables at most; JSON makes up to six times of it.
_ENVIRONMENT_LIMIT_BYTES = 64 * 1024 * 1024
_NO_LINKS: Mapping[str, Path] = types.MappingProxyType({})
_NO_COPIES: Mapping[str, str] = types.MappingProxyType({})
#: In a claim: no job ID, for no job may have it.
_CLOSED = "another job goes on with this one\n"
#: JSON; only while a submission waits for room.
ENVIRONMENT = "environment.json"
#: The same, of a job under [retry] until its chain has ended: for the job that goes on with it.
RETRY_ENVIRONMENT = "retry-environment.json"


def new_token(installation_id: str) -> str:
    """Return a token nobody else has: the installation's 4 characters and 8 random ones."""
    count = TOKEN_LENGTH - INSTALLATION_ID_LENGTH
    return installation_id + "".join(secrets.choice(TOKEN_CHARACTERS) for _ in range(count))


def slurm_name(name: str, token: str) -> str:
    """Return what Slurm sees as the job's name."""
    return f"{name}.{token}"


def name_in_slurm(job: jobs.Job) -> str:
    """Return the whole name that Slurm was given for a job."""
    return job.tracked_name or slurm_name(job.name, job.token)


def split_name(slurm_job_name: str) -> tuple[str, str | None]:
    """Return (NAME, token) of a Slurm job name; the token is None where there is none."""
    match = _TOKEN_NAME.fullmatch(slurm_job_name)
    return (match["name"], match["token"]) if match else (slurm_job_name, None)


def token_of(slurm_job_name: str, stdout_path: str | None) -> str | None:
    """Return the token of a job that Slurm shows: that of its name, else of its log's folder.

    A site's job_submit plugin may give all jobs names of its own, and a person may rename one.
    """
    token = split_name(slurm_job_name)[1]
    if token is None and stdout_path:
        token = split_name(os.path.basename(os.path.dirname(stdout_path)))[1]
    return token


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExitRecord:
    """What the script wrote when it ended (docs/design.md); believed only when all of it fits."""

    token: str
    job_id: str
    task: int
    attempt: int
    #: exit status of the program as the shell gives it: 128 + signal when killed by one
    rc: int
    #: end or requeue
    outcome: str
    #: the body came to its end: false when only the EXIT trap ran (scancel, time limit)
    done: bool

    def fits(self, *, token: str, owner: str | None, task: int, attempt: int) -> bool:
        """Return whether this is the finished record of that very attempt.

        Measured: a bare EXIT trap writes 0 on scancel and on the time limit, hence `done`.
        """
        return (
            self.done
            and self.token == token
            and self.job_id == owner
            and self.task == task
            and self.attempt == attempt
        )


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of one submission, RUNS_DIR/NAME.TOKEN."""

    path: Path

    @property
    def script(self) -> Path:
        return self.path / "script.sbatch"

    def stdout_pattern(self, *, array: bool = False) -> str:
        """Return what goes to sbatch --output: Slurm fills in the job ID."""
        return str(self.path / ("%A_%a.out" if array else "%j.out"))

    def owner(self, task: int) -> str | None:
        """Return the SLURM_JOB_ID that the task is bound to, or None while nobody claimed it."""
        try:
            path = self.path / f"owner.{task}"
            claim = files.read_text(path, limit_bytes=_RECORD_LIMIT_BYTES, errors="replace")
        except OSError:
            return None
        text = claim.split()
        return text[0] if text and text[0].isdigit() else None

    def attempts(self) -> dict[int, list[int]]:
        """Return for each task the numbers of the attempts that began, ascending."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return {}
        found: dict[int, list[int]] = {}
        for claim in filter(None, map(_ATTEMPT.fullmatch, names)):
            found.setdefault(int(claim["task"]), []).append(int(claim["number"]))
        return {task: sorted(numbers) for task, numbers in found.items()}

    def environment(self) -> dict[str, str] | None:
        """Return the environment that a submission which waits for room is sent with."""
        return _environment(self.path / ENVIRONMENT)

    def keep_environment(self, environ: Mapping[str, str]) -> None:
        """Store it until the submission is sent, unless there is one; RunFolderError."""
        try:
            _write(self.path / ENVIRONMENT, json.dumps(dict(environ)))
            files.sync(self.path / ENVIRONMENT)
        except FileExistsError:
            return
        except OSError as exc:
            raise errors.RunFolderError(_cannot_make(self.path, exc)) from exc

    def drop_environment(self) -> None:
        with contextlib.suppress(OSError):
            (self.path / ENVIRONMENT).unlink()

    def retry_environment(self) -> dict[str, str] | None:
        """Return the environment for the job that goes on with this one."""
        return _environment(self.path / RETRY_ENVIRONMENT)

    def drop_retry_environment(self) -> None:
        with contextlib.suppress(OSError):
            (self.path / RETRY_ENVIRONMENT).unlink()

    def close(self, task: int, attempt: int) -> bool:
        """Let no later attempt begin, and this one write no more, as another job goes on.

        By the claim that the next attempt's script would make (templates/prologue.sh.j2), which
        trainers look at too. False where that attempt has begun. Raises OSError.
        """
        claim = self.path / f"attempt.{task}.{attempt + 1}"
        try:
            _write(claim, _CLOSED)
        except FileExistsError:
            try:
                text = files.read_text(claim, limit_bytes=_RECORD_LIMIT_BYTES, errors="replace")
            except OSError:
                return False
            return text == _CLOSED
        return True

    def checkpoints(self, task: int, *, array: bool = False) -> Path:
        """Return the folder that the job, or a task of its array, saves into by default."""
        return self.path / (f"checkpoints.{task}" if array else "checkpoints")

    def exit_record(self, task: int, attempt: int) -> ExitRecord | None:
        """Return the exit record of an attempt; None when absent, torn or not of our making."""
        try:
            path = self.path / f"exit.{task}.{attempt}.json"
            data = json.loads(files.read_bytes(path, limit_bytes=_RECORD_LIMIT_BYTES))
            if not 0 <= int(data["rc"]) <= _MOST_RC:
                return None
            return ExitRecord(
                token=str(data["token"]),
                job_id=str(data["job_id"]),
                task=int(data["task"]),
                attempt=int(data["attempt"]),
                rc=int(data["rc"]),
                outcome=str(data["outcome"]),
                done=data["done"] is True,
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def metrics_file(self, task: int, *, array: bool = False) -> Path:
        return self.path / (f"metrics.{task}.jsonl" if array else "metrics.jsonl")


def create(
    runs_dir: Path,
    name: str,
    token: str,
    texts: Mapping[str, str],
    links: Mapping[str, Path] = _NO_LINKS,
    *,
    copies: Mapping[str, str] = _NO_COPIES,
    shared_folders: Sequence[Path] = (),
) -> RunFolder:
    """Make RUNS_DIR/NAME.TOKEN (0700) with `texts` as its files (0600), all on disk at the end.

    `links`: symbolic links, by their names. `copies`: files for people, of what the database holds
    and is read from: the disk is not waited for. `shared_folders`: where others may write.
    Raises RunFolderError when that cannot be done, or when other users can change RUNS_DIR; then
    nothing is left behind.
    """
    path = runs_dir / slurm_name(name, token)
    try:
        files.make_private_folder(runs_dir, shared_folders=shared_folders, setting="runs_dir")
        path.mkdir(mode=0o700)
    except files.PrivateFolderError as exc:
        raise errors.RunFolderError(f"{exc.strerror} Nothing was submitted.") from exc
    except OSError as exc:
        raise errors.RunFolderError(_cannot_make(path, exc)) from exc
    try:
        for file_name, text in {**texts, **copies}.items():
            _write(path / file_name, text)
        for link_name, target in links.items():
            (path / link_name).symlink_to(target)
        for file_name in texts:
            files.sync(path / file_name)
        # The entries of a folder are on disk once the folder is (man fsync).
        files.sync(path)
        files.sync(runs_dir)
    except OSError as exc:
        shutil.rmtree(path, ignore_errors=True)
        raise errors.RunFolderError(_cannot_make(path, exc)) from exc
    return RunFolder(path)


def remove(folder: RunFolder) -> None:
    """Remove a folder whose submission came to nothing before anybody knew of it."""
    shutil.rmtree(folder.path, ignore_errors=True)


def expand(pattern: str, *, job_id: str, name: str, raw_job_id: str | None = None) -> str | None:
    """Return sbatch's --output pattern with what Slurm fills in (man sbatch, "filename pattern").

    `job_id` is "123" or "123_4"; `raw_job_id` is the array task's own number, which %j needs: None
    while that is not known. %N, %n and %t name a file per node or task and are refused by specs.
    """
    master, _, task = job_id.partition("_")
    own = raw_job_id if task else master
    if own is None and re.search(r"(?<!%)(?:%%)*%\d*[jJ]", pattern):
        return None
    values = {"A": master, "a": task or "4294967294", "x": name, "%": "%"}
    values.update(j=own or "", J=own or "")

    def fill(match: re.Match[str]) -> str:
        value = users.user_name() if match["letter"] == "u" else values.get(match["letter"])
        if value is None:
            return match[0]
        return value.zfill(min(int(match["width"]), 10)) if match["width"] else value

    return re.sub(r"%(?P<width>\d*)(?P<letter>[jJAaxu%])", fill, pattern)


def _environment(path: Path) -> dict[str, str] | None:
    try:
        found = json.loads(files.read_bytes(path, limit_bytes=_ENVIRONMENT_LIMIT_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _cannot_make(path: Path, exc: OSError) -> str:
    return (
        f"cannot make the run folder {path}: {exc.strerror}; nothing was submitted. "
        "Set runs_dir to a folder that you can write and that compute nodes see."
    )


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
