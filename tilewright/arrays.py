"""Arrays by name, as .npz files (a zip of .npy, as `numpy.savez` writes it), and one array in JSON.

numpy is loaded when it is needed: most commands and programs that import the client need none.
"""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tilewright.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_npz(source: Path | IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of a file, by name; nothing is unpickled. Raises `UsageError`."""
    import numpy as np

    try:
        if not zipfile.is_zipfile(source):
            raise zipfile.BadZipFile("it is no zip of .npy files")
        if not isinstance(source, Path):
            source.seek(0)
        with np.load(source, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        name = source if isinstance(source, Path) else "the answer"
        raise UsageError(f"cannot read {name}: {error}", fix="give an .npz file, as numpy.savez writes it") from error


def write_npz(target: Path | IO[bytes], arrays: Mapping[str, Any]) -> None:
    """What `numpy.savez` does, for names that are any string: `savez` takes them as keyword arguments.

    Raises `UsageError` for an array of Python objects.
    """
    import numpy as np

    with zipfile.ZipFile(target, "w") as archive:
        for name, value in arrays.items():
            try:
                value = np.asanyarray(value)
                if value.dtype.hasobject and all(isinstance(item, str) for item in value.flat):
                    value = value.astype(np.str_) if value.size else np.empty(value.shape, "U1")
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, value, allow_pickle=False)
            except ValueError as error:
                raise UsageError(f"{name!r} is no array of numbers: {error}", fix="give a numpy array") from error


def array_of(said: Mapping[str, Any]) -> NDArray[Any]:
    """An array that JSON carries: `shape`, `dtype` as numpy calls it, and `elements`, little-endian, in base64."""
    import numpy as np

    elements = np.frombuffer(base64.b64decode(said["elements"]), np.dtype(said["dtype"]).newbyteorder("<"))
    return elements.reshape(said["shape"]).astype(said["dtype"])
