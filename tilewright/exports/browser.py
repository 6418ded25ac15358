"""A folder that a web server can serve as it is: an artifact for browsers, taken apart.

manifest.json, model.wasm, weights.bin   the model
model.js, lane.js, model.d.ts            what loads and runs it, on one thread or several
demo.html, demo.js                       a page that runs it on random inputs
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from tilewright.errors import UsageError
from tilewright.loading import read_manifest

MEMBERS = ("manifest.json", "model.wasm", "weights.bin", "model.js", "lane.js", "model.d.ts", "demo.html", "demo.js")


def browser_folder(artifact: Path, folder: Path) -> Path:
    """Writes the files into `folder`, over those of an earlier artifact; the folder.

    Raises `UsageError` for what is no artifact for browsers, and a folder that cannot be written.
    """
    described = read_manifest(artifact)
    if "model.wasm" not in described["files"]:
        raise UsageError(
            f"{artifact} is compiled for {described['target']}, which no browser runs",
            fix="compile the model with --target wasm:simd128",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(artifact) as archive:
            for name in MEMBERS:
                with archive.open(name) as source, (folder / name).open("wb") as out:
                    shutil.copyfileobj(source, out)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}", fix="name another folder") from error
    return folder
