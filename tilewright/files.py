"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tilewright.errors import UsageError


@contextlib.contextmanager
def whole(target: Path) -> Iterator[IO[bytes]]:
    """A file to write to that becomes `target` once it is complete. Raises `UsageError` when it cannot be written."""
    part = new_part(target)
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        part.unlink(missing_ok=True)


def new_part(target: Path) -> Path:
    """A new file beside `target` that is to become it. Raises as `part_of` does."""
    return part_of(target, uuid.uuid4().hex[:8])


def part_of(target: Path, name: str) -> Path:
    """The file that is to become `target`.

    Raises `UsageError` for a target that is no file, such as a device: it would be replaced.
    """
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is not a file", fix="name a file")
    return target.with_name(f".{target.name}.{name}.part")


def unwritable(target: Path, error: OSError) -> UsageError:
    """What is said where `target` cannot be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    fix = "free some disk space, or name a file on another disk" if full else "name a file in a folder that is there"
    return UsageError(f"cannot write {target}: {error.strerror or error}", fix=fix)
