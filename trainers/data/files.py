"""Files of data sets, which are unpacked or downloaded once per folder."""

import contextlib
import fcntl
import pathlib
import tempfile
from collections.abc import Callable

from trainers import errors

OTHER_FOLDER = "set another folder with --data-dir FOLDER (or DATA_DIR in the environment)"


def add(folder: pathlib.Path, populate: Callable[[pathlib.Path], object], advice: str) -> None:
    """Move the files that `populate` writes to a temporary folder into `folder`.

    A file with its final name is complete. Raises DataError with `advice` if anything fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            (folder / ".staging.lock").open("a") as lock,
            tempfile.TemporaryDirectory(dir=folder, prefix=".staging-") as name,
        ):
            # Not supported by Lustre without flock and some FUSE file systems: the renames suffice.
            with contextlib.suppress(OSError):
                fcntl.lockf(lock, fcntl.LOCK_EX)
            temporary = pathlib.Path(name)
            populate(temporary)
            for source in list(temporary.rglob("*")):
                if source.is_file() and not source.is_symlink():
                    target = folder / source.relative_to(temporary)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source.replace(target)
    # Archives and downloads fail in many ways.
    except Exception as error:
        raise errors.DataError(f"cannot stage data in {folder} ({error}). {advice}") from error
