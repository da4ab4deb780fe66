"""Files and folders that are complete or not there."""

import contextlib
import pathlib
import shutil
import tempfile


@contextlib.contextmanager
def replacing(path, marker=None):
    """A place to write to; what is written there replaces `path` only if nothing went wrong.

    `marker` is the file by which a folder that may be replaced is known; None for a single file.
    """
    path = pathlib.Path(path)
    if marker is None and path.is_dir():
        raise ValueError(f"`path` must be a file. Received: {path}, which is a folder")
    if marker is not None and path.exists():
        empty = path.is_dir() and not any(path.iterdir())
        if not empty and not (path / marker).is_file():
            raise ValueError(
                "`path` must be new, empty or an older SavedModel, which is replaced. "
                f"Received: {path}, which holds something else"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside `path`, so that moving it there moves no data.
    work = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        (work / "new").mkdir()
        yield work / "new" / path.name
        if path.is_dir():
            path.rename(work / "old")
        try:
            for written in sorted((work / "new").iterdir(), reverse=True):  # weights, then model
                written.replace(path.with_name(written.name))
        except OSError:
            if (work / "old").exists():
                (work / "old").rename(path)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
