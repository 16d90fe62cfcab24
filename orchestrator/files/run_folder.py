"""The folder of a submission: script, spec, logs, metrics, and files that its tasks write.

docs/design.md, "Identity and run folder", lists the files and who writes them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
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

INSTALLATION_ID_LENGTH = 4
_TOKEN_LENGTH = 12
_TOKEN_CHARACTERS = string.ascii_lowercase + string.digits
_TOKEN_NAME = re.compile(rf"(?P<name>.+)\.(?P<token>[a-z0-9]{{{_TOKEN_LENGTH}}})")
_ATTEMPT = re.compile(r"attempt\.(?P<task>\d{1,10})\.(?P<number>\d{1,10})", re.ASCII)
#: An exit record is some 150 bytes; the script does not write larger ones.
_RECORD_LIMIT_BYTES = 16 * 1024
#: The largest exit status of a shell.
_MAX_RC = 255
#: The kernel accepts at most 6 MiB of arguments and variables; JSON makes up to six times of it.
_ENVIRONMENT_LIMIT_BYTES = 64 * 1024 * 1024
_EMPTY: Mapping[str, str] = types.MappingProxyType({})
_NO_LINKS: Mapping[str, Path] = types.MappingProxyType({})
#: In the file of an attempt that must not start. Never changed: it is compared with stored files.
_CLOSED = "another job goes on with this one\n"
#: The archive of the job's snapshot of the code, what the script reads about it, and the copy.
CODE_ARCHIVE, CODE_PATHS, CODE = "code.tar", "code.paths", "code"
#: The name of the job's sweep, for trackers.
SWEEP = "sweep"
#: JSON; only while a submission is deferred.
ENVIRONMENT = "environment.json"
#: The same for a job with [retry], until its chain has ended: for the continuation job.
RETRY_ENVIRONMENT = "retry-environment.json"


def new_token(installation_id: str) -> str:
    """Return a token that nobody else has: the installation ID and random characters."""
    count = _TOKEN_LENGTH - INSTALLATION_ID_LENGTH
    return installation_id + "".join(secrets.choice(_TOKEN_CHARACTERS) for _ in range(count))


def slurm_name(name: str, token: str) -> str:
    """Return the name of a job in Slurm."""
    return f"{name}.{token}"


def name_in_slurm(job: jobs.Job) -> str:
    """Return the name of a stored job in Slurm, which may be a tracked one."""
    return job.tracked_name or slurm_name(job.name, job.token)


def split_name(slurm_job_name: str) -> tuple[str, str | None]:
    """Return (NAME, token) of a Slurm job name; the token is None if there is none."""
    match = _TOKEN_NAME.fullmatch(slurm_job_name)
    return (match["name"], match["token"]) if match else (slurm_job_name, None)


def token_of(slurm_job_name: str, stdout_path: str | None) -> str | None:
    """Return the token in a job's name in Slurm, else that in the name of its log's folder.

    A job_submit plugin may rename all jobs of a site, and a person may rename one.
    """
    token = split_name(slurm_job_name)[1]
    if token is None and stdout_path:
        token = split_name(os.path.basename(os.path.dirname(stdout_path)))[1]
    return token


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExitRecord:
    #: exit status of the program as the shell reports it: 128 + signal if a signal killed it
    rc: int
    #: end or requeue
    outcome: str


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of one submission, RUNS_DIR/NAME.TOKEN."""

    path: Path

    @property
    def script(self) -> Path:
        return self.path / "script.sbatch"

    def stdout_pattern(self, *, array: bool = False) -> str:
        """Return the value of sbatch --output, in which Slurm replaces the job ID."""
        return str(self.path / ("%A_%a.out" if array else "%j.out"))

    def metrics_file(self, task: int | None) -> Path:
        return self.path / ("metrics.jsonl" if task is None else f"metrics.{task}.jsonl")

    def checkpoints(self, task: int | None) -> Path:
        """Return the default folder for checkpoints of the job, or of a task of its array."""
        return self.path / ("checkpoints" if task is None else f"checkpoints.{task}")

    def tracking(self, task: int | None) -> Path:
        """Return the folder of trackers of the job, or of a task of its array."""
        return self.path / ("tracking" if task is None else f"tracking.{task}")

    def working_folder(self, spec: jobs.JobSpec, calling_folder: str) -> Path | None:
        """Return the folder in which the program runs; None: one of its nodes has it.

        calling_folder: where the job was submitted.
        """
        if spec.code.tree is None:
            return Path(calling_folder, spec.chdir or "")
        if spec.code.unpack == "node":
            return None
        return self.path / CODE / (spec.code.folder or "")

    def start_folder(self, spec: jobs.JobSpec, folder: Path) -> Path:
        """Return where the script starts: in `folder`, unless that is gone and the code is stored.

        The script changes to the copy of the code by itself.
        """
        is_gone = spec.code.tree is not None and not folder.is_dir()
        return self.path if is_gone else folder

    def owner(self, task: int) -> str | None:
        """Return the SLURM_JOB_ID of the only job that may run the task; None: no job has begun."""
        try:
            path = self.path / f"owner.{task}"
            text = files.read_text(path, limit_bytes=_RECORD_LIMIT_BYTES, errors="replace")
        except OSError:
            return None
        words = text.split()
        return words[0] if words and words[0].isdigit() else None

    def attempts(self) -> dict[int, list[int]]:
        """Return the numbers of the attempts that started, ascending, by task."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return {}
        attempts: dict[int, list[int]] = {}
        for match in filter(None, map(_ATTEMPT.fullmatch, names)):
            attempts.setdefault(int(match["task"]), []).append(int(match["number"]))
        return {task: sorted(numbers) for task, numbers in attempts.items()}

    def exit_record(
        self, task: int, attempt: int, *, token: str, owner: str | None
    ) -> ExitRecord | None:
        """Return what the script of an attempt recorded at its end; None unless all of it fits.

        Measured: a bare EXIT trap writes rc 0 on scancel and on the time limit. So `done` says that
        the script came to its end.
        """
        try:
            path = self.path / f"exit.{task}.{attempt}.json"
            record = json.loads(files.read_bytes(path, limit_bytes=_RECORD_LIMIT_BYTES))
            identity = tuple(str(record[name]) for name in ("token", "job_id", "task", "attempt"))
            rc, outcome, done = int(record["rc"]), str(record["outcome"]), record["done"]
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None
        if identity != (token, owner, str(task), str(attempt)):
            return None
        return ExitRecord(rc=rc, outcome=outcome) if done is True and 0 <= rc <= _MAX_RC else None

    def environment(self, file_name: str = ENVIRONMENT) -> dict[str, str] | None:
        """Return the environment of a deferred submission or a continuation job."""
        try:
            path = self.path / file_name
            stored = json.loads(files.read_bytes(path, limit_bytes=_ENVIRONMENT_LIMIT_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        return stored if isinstance(stored, dict) else None

    def keep_environment(self, environ: Mapping[str, str]) -> None:
        """Store the environment of a deferred submission unless there is one; RunFolderError."""
        try:
            _write(self.path / ENVIRONMENT, json.dumps(dict(environ)))
            files.sync(self.path / ENVIRONMENT)
        except FileExistsError:
            return
        except OSError as exc:
            raise _cannot_make(self.path, exc) from exc

    def drop_environment(self, file_name: str = ENVIRONMENT) -> None:
        with contextlib.suppress(OSError):
            (self.path / file_name).unlink()

    def close(self, task: int, attempt: int) -> bool:
        """Let no later attempt start, and this one write no more, because another job continues.

        This makes the file that the script of the next attempt would make
        (templates/prologue.sh.j2) and that trainers look for. Returns False if that attempt has
        started. Raises OSError.
        """
        path = self.path / f"attempt.{task}.{attempt + 1}"
        try:
            _write(path, _CLOSED)
        except FileExistsError:
            try:
                text = files.read_text(path, limit_bytes=_RECORD_LIMIT_BYTES, errors="replace")
            except OSError:
                return False
            return text == _CLOSED
        return True


def create(
    runs_dir: Path,
    name: str,
    token: str,
    texts: Mapping[str, str],
    links: Mapping[str, Path] | None = None,
    *,
    copies: Mapping[str, str] = _EMPTY,
    hard_links: Mapping[str, Path] = _NO_LINKS,
    shared_folders: Sequence[Path] = (),
) -> RunFolder:
    """Make RUNS_DIR/NAME.TOKEN (0700) with `texts` as its files (0600), all on disk at the end.

    `links`: symbolic links by name. `hard_links`: by name; symbolic ones where that is not
    possible. `copies`: files for people with content that is read from the
    database; they need not be on disk. `shared_folders`: folders that other users may change.
    Raises RunFolderError, also if other users can change RUNS_DIR; then no folder is left.
    """
    path = runs_dir / slurm_name(name, token)
    try:
        files.make_private_folder(runs_dir, shared_folders=shared_folders, setting="runs_dir")
        path.mkdir(mode=0o700)
    except files.PrivateFolderError as exc:
        raise errors.RunFolderError(f"{exc.strerror} Nothing was submitted.") from exc
    except OSError as exc:
        raise _cannot_make(path, exc) from exc
    try:
        for file_name, text in {**texts, **copies}.items():
            _write(path / file_name, text)
        for link_name, target in (links or {}).items():
            (path / link_name).symlink_to(target)
        for link_name, target in hard_links.items():
            _hard_link(path / link_name, target)
        # The entries of a folder are on disk once the folder is (man fsync).
        for synced in (*(path / file_name for file_name in texts), path, runs_dir):
            files.sync(synced)
    except OSError as exc:
        shutil.rmtree(path, ignore_errors=True)
        raise _cannot_make(path, exc) from exc
    return RunFolder(path)


def _hard_link(path: Path, target: Path) -> None:
    try:
        path.hardlink_to(target)
    except OSError as exc:
        # ext4 accepts 65,000 links of a file; some file systems none.
        if exc.errno not in (errno.EMLINK, errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV):
            raise
        path.symlink_to(target)


def remove(folder: RunFolder) -> None:
    """Remove the folder of a submission that was not stored."""
    shutil.rmtree(folder.path, ignore_errors=True)


def expand(pattern: str, *, job_id: str, name: str, raw_job_id: str | None = None) -> str | None:
    """Return a pattern of sbatch --output with what Slurm puts in (man sbatch, "filename pattern").

    `job_id` is "123" or "123_4"; `raw_job_id` is the array task's own number for %j. None if that
    is not known yet. Specs refuse %N, %n and %t, which name a file per node or task.
    """
    master, _, task = job_id.partition("_")
    own = raw_job_id if task else master
    if own is None and re.search(r"(?<!%)(?:%%)*%\d*[jJ]", pattern):
        return None
    values = {"A": master, "a": task or "4294967294", "j": own or "", "J": own or ""}
    values |= {"x": name, "%": "%"}

    def value(match: re.Match[str]) -> str:
        text = files.user_name() if match["letter"] == "u" else values[match["letter"]]
        return text.zfill(min(int(match["width"]), 10)) if match["width"] else text

    return re.sub(r"%(?P<width>\d*)(?P<letter>[jJAaxu%])", value, pattern)


def _cannot_make(path: Path, exc: OSError) -> errors.RunFolderError:
    return errors.RunFolderError(
        f"cannot make the run folder {path}: {exc.strerror}; nothing was submitted. "
        "Set runs_dir to a folder that you can write and that compute nodes see."
    )


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
