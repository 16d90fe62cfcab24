"""Build images from definition files: each once, by a job, into RUNS_DIR/.images."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import config, errors, files, images, jobs
from orchestrator.controller.images import architectures
from orchestrator.controller.refresh import refresh
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import job_scripts, submit
from orchestrator.text import escaping
from orchestrator.toml import values

#: In RUNS_DIR, which compute nodes see: NAME-DIGEST.sif, its definition and its checksums.
FOLDER = ".images"
#: Label of the jobs that build.
_LABEL = "image"
_MAX_DEFINITION_BYTES = 1024 * 1024
_PART_BYTES = 4 * 1024 * 1024
#: Drafts of jobs that were killed are removed after this time; a build may take hours.
_DRAFT_SECONDS = 2 * 24 * 3600

# A draft is never at the path of the image, so what a killed job leaves is never used. Of two jobs
# with the same digest the first one counts.
_SCRIPT = """\
set -e
stem={stem}
image=$stem.sif
draft=${{stem%/*}}/.${{stem##*/}}.$SLURM_JOB_ID.$ORCHESTRATOR_ATTEMPT.sif
finish() {{
{link}  echo "image: $image"
  exit 0
}}
if [ -e "$image" ]; then finish; fi
if ! command -v {runtime} >/dev/null; then
  echo "orchestrator: no {runtime} on $HOSTNAME: name its module in environment.modules" >&2
  exit 78
fi
if [ -s "$stem.sums" ] && ! sha256sum --quiet --check "$stem.sums"; then
  echo "orchestrator: files of the image changed after the submission: run image build again" >&2
  exit 78
fi
trap 'rm -f "$draft"' EXIT
{build} "$draft" "$stem.def"
if [ ! -e "$image" ]; then mv -T "$draft" "$image"; fi
finish
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """An image that may be built already."""

    #: of the image, without .sif
    stem: Path
    text: str
    #: program and options
    builder: Sequence[str]
    copied: Sequence[images.CopiedFile]
    digest: str

    @property
    def image(self) -> Path:
        return self.stem.with_name(f"{self.stem.name}.sif")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image in the folder of images."""

    name: str
    path: str
    #: built, or the state of the job that builds it, or NOT_BUILT
    state: str
    size_bytes: int | None = None
    architecture: str | None = None
    changed_at: float | None = None
    job_id: str | None = None


def recipe(
    context: contexts.Context,
    path: Path,
    *,
    runtime: str,
    options: Sequence[str],
    partition: str | None,
) -> Recipe:
    """Read a definition and the files that it copies; raises DefinitionError.

    Nodes of different architectures build different images.
    """
    shown = escaping.visible(str(path))
    try:
        text = files.read_text(path, limit_bytes=_MAX_DEFINITION_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise images.DefinitionError(f"{shown} cannot be read: {reason}") from error
    definition = images.parse(text, shown)
    builder = [runtime, "build", *options]
    with context.reporter.activity("Reading the files of the image"):
        copied = [
            each
            for number, source in definition.sources
            for each in _read(context.calling_folder, source, f"{shown}:{number}")
        ]
    is_local = job_scripts.is_local(context.configuration, context.environ)
    context = context.with_scheduler("local" if is_local else "slurm")
    cluster = clusters.facts(context).cluster
    nodes = architectures.of_partition(context, cluster, partition or context.profile.partition)
    # Without "", the nodes that did not register yet.
    digest = images.digest(text, [*builder, *sorted(filter(None, nodes))], copied)
    name = values.fitting_name(path.stem) or "image"
    folder = context.configuration.runs_dir / FOLDER
    return Recipe(
        stem=folder / f"{name}-{digest}",
        text=text,
        builder=builder,
        copied=copied,
        digest=digest,
    )


def build(
    context: contexts.Context,
    recipe: Recipe,
    changes: jobs.JobSpec,
    *,
    link: Path | None,
    argv: Sequence[str],
) -> jobs.Job | None:
    """Return the job that builds the image; None: it is there already.

    changes: the job's own settings. link: a symbolic link to the image to make.
    """
    folder = recipe.stem.parent
    try:
        # Before an image is used that is there: it could be of another user.
        files.make_private_folder(
            folder, shared_folders=context.configuration.shared_folders, setting="runs_dir"
        )
        _remove_old_drafts(folder)
    except files.PrivateFolderError as error:
        raise errors.RunFolderError(f"{error.strerror} Nothing was submitted.") from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    if link is not None and link.exists() and not link.is_symlink():
        raise errors.ConflictError(f"{escaping.visible(str(link))} exists and is no link: move it")
    if link is not None and not link.parent.is_dir():
        raise errors.RequestError(f"no such folder: {escaping.visible(str(link.parent))}")
    job = None if recipe.image.exists() else _live_job(context, recipe.digest)
    if link is not None and (job is not None or recipe.image.exists()):
        _link(recipe.image, link)
    if job is not None or recipe.image.exists():
        return job
    _write(context, recipe)
    spec = dataclasses.replace(
        changes,
        name=values.fitting_name(f"image-{recipe.stem.name.rpartition('-')[0]}"),
        launch=jobs.Launch(launcher="python", command=_script(recipe, link)),
        # What a profile sets for trainings.
        code=jobs.Code(snapshot=False),
        tracking=jobs.Tracking(trackers=()),
        labels=(f"{_LABEL}={recipe.digest}",),
    )
    spec = config.with_profile(spec, context.profile)
    request = job_scripts.Request(spec=spec, source="image build", argv=argv)
    return submit.submit(context, request)


def stored(context: contexts.Context) -> list[StoredImage]:
    """Return the images, newest first, and those that are being built or could not be."""
    folder = context.configuration.runs_dir / FOLDER
    found = [_stored(context, path) for path in sorted(folder.glob("*-*.def"))]
    return sorted(found, key=lambda image: -(image.changed_at or time.time()))


def remove(context: contexts.Context, name: str) -> Path:
    """Remove an image; raises NotFoundError, or ConflictError while a job builds it."""
    stem = context.configuration.runs_dir / FOLDER / Path(name).name.removesuffix(".sif")
    definition = stem.with_name(f"{stem.name}.def")
    if not definition.exists():
        raise errors.NotFoundError(f"There is no image {escaping.visible(name)}: see image list")
    if job := _live_job(context, stem.name.rpartition("-")[2]):
        raise errors.ConflictError(f"Job {job.job_id} builds it: cancel that job first")
    for suffix in (".sif", ".sums", ".def"):
        stem.with_name(stem.name + suffix).unlink(missing_ok=True)
    return stem.with_name(f"{stem.name}.sif")


def _stored(context: contexts.Context, definition: Path) -> StoredImage:
    name = definition.name.removesuffix(".def")
    path = definition.with_suffix(".sif")
    query = jobs.JobQuery(labels=[f"{_LABEL}={name.rpartition('-')[2]}"], limit=1)
    with context.store.reading() as work:
        newest = next(iter(work.jobs.find(query)), None)
    image = StoredImage(
        name=name,
        path=str(path),
        state="NOT_BUILT" if newest is None or newest.ended else str(newest.state),
        job_id=None if newest is None else newest.job_id,
    )
    with contextlib.suppress(OSError):
        status = path.stat()
        image = dataclasses.replace(
            image,
            state="built",
            size_bytes=status.st_size,
            changed_at=status.st_mtime,
            architecture=architectures.of_image(path),
        )
    return image


def _live_job(context: contexts.Context, digest: str) -> jobs.Job | None:
    """Return the job that builds the image, after a look into Slurm."""
    query = jobs.JobQuery(labels=[f"{_LABEL}={digest}"], live=True)
    for is_fresh in (False, True):
        with context.store.reading() as work:
            live = work.jobs.find(query)
        if not live:
            return None
        if not is_fresh:
            refresh.refresh(context)
    return live[0]


def _read(folder: Path, source: str, where: str) -> Iterator[images.CopiedFile]:
    """Yield the files of an entry of %files, which may be a pattern or a folder."""
    paths = sorted(glob.glob(str(folder / source)))
    if not paths:
        raise images.DefinitionError(
            f"{where}: no such file: {escaping.visible(source)}. Relative paths begin in {folder}"
        )
    for path in paths:
        if not os.path.isdir(path):
            yield _file(Path(path), folder, where)
            continue
        for parent, folders, names in os.walk(path, followlinks=True):
            folders.sort()
            for name in sorted(names):
                yield _file(Path(parent, name), folder, where)


def _file(path: Path, folder: Path, where: str) -> images.CopiedFile:
    digest = hashlib.sha256()
    try:
        with files.open_regular(path) as file:
            while part := file.read(_PART_BYTES):
                digest.update(part)
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        shown = escaping.visible(str(path))
        raise images.DefinitionError(f"{where}: {shown}: {error.strerror}") from error
    return images.CopiedFile(
        # Another folder with the same files has the same image.
        path=str(path.relative_to(folder) if path.is_relative_to(folder) else path),
        is_executable=bool(mode & 0o100),
        sha256=digest.hexdigest(),
    )


def _write(context: contexts.Context, recipe: Recipe) -> None:
    """Write what the job reads: the definition may be edited while it is pending."""
    try:
        sums = images.checksums(recipe.copied).encode(errors="surrogateescape")
        files.replace(recipe.stem.with_name(f"{recipe.stem.name}.sums"), sums)
        files.replace(recipe.stem.with_name(f"{recipe.stem.name}.def"), recipe.text.encode())
    except OSError as error:
        raise _unwritable(recipe.stem.parent, error) from error


def _remove_old_drafts(folder: Path) -> None:
    for draft in folder.glob(".*.sif"):
        # The job that wrote it may have finished now.
        with contextlib.suppress(FileNotFoundError):
            if time.time() - draft.stat().st_mtime > _DRAFT_SECONDS:
                draft.unlink()


def _unwritable(folder: Path, error: OSError) -> errors.RunFolderError:
    return errors.RunFolderError(
        f"cannot write {folder}: {error.strerror}; nothing was submitted. "
        "Set runs_dir to a folder that you can write and that compute nodes see."
    )


def _script(recipe: Recipe, link: Path | None) -> str:
    words = "" if link is None else f'  ln -sfnT "$image" {shlex.quote(str(link))}\n'
    return _SCRIPT.format(
        stem=shlex.quote(str(recipe.stem)),
        runtime=shlex.quote(recipe.builder[0]),
        build=shlex.join(recipe.builder),
        link=words,
    )


def _link(image: Path, link: Path) -> None:
    draft = link.with_name(f".{link.name}.{os.urandom(4).hex()}")
    try:
        draft.symlink_to(image)
        os.replace(draft, link)
    except OSError as error:
        shown = escaping.visible(str(link))
        raise errors.RequestError(f"cannot make the link {shown}: {error.strerror}") from error
