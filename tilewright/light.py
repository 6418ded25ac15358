"""Artifacts without their weights, which are put back later: the same file, byte for byte.

The weights lie in an artifact uncompressed and in one piece. A light artifact is a zip of what stands before and behind
them, with the digests of the weights and of the whole.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import IO

from tilewright.errors import NotGenuine, UsageError
from tilewright.files import whole

WEIGHTS = "weights.bin"
ABOUT, HEAD, TAIL = "light.json", "head", "tail"
_LOCAL_HEADER = 30
_CHUNK = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)


def strip(artifact: Path, light: Path, weights: Path) -> None:
    """Writes the artifact's weights to `weights`, all the rest to `light`; equal artifacts give equal files.

    Raises `UsageError` for what is no artifact, and for files that cannot be read or written.
    """
    try:
        with zipfile.ZipFile(artifact) as archive:
            member = archive.getinfo(WEIGHTS)
            if member.compress_type != zipfile.ZIP_STORED:
                raise UsageError(f"the weights of {artifact} are compressed", fix="give the artifact as it was made")
        with artifact.open("rb") as file:
            file.seek(member.header_offset)
            header = file.read(_LOCAL_HEADER)
            begin = (
                member.header_offset
                + _LOCAL_HEADER
                + sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
            )
            file.seek(0)
            head = file.read(begin)
            with whole(weights) as out:
                digest = _copy(file, out, member.file_size)
            tail = file.read()
            file.seek(0)
            about = {
                "format": "tilewright-light",
                "artifact": hashlib.file_digest(file, "sha256").hexdigest(),
                "weights": digest,
                "weight_bytes": member.file_size,
            }
        with whole(light) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in ((ABOUT, json.dumps(about, indent=1).encode()), (HEAD, head), (TAIL, tail)):
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise UsageError(f"{artifact} cannot be stripped: {error}", fix="give a .tw file") from error


def refit(light: Path, weights: Path, artifact: Path) -> str:
    """Puts weights back: writes the artifact that was stripped; its SHA-256.

    Raises `NotGenuine` where the weights are not those of the artifact, and `UsageError` as `strip` does.
    """
    try:
        with zipfile.ZipFile(light) as archive:
            about = json.loads(archive.read(ABOUT))
            head, tail = archive.read(HEAD), archive.read(TAIL)
        with weights.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != about["weights"]:
                raise NotGenuine(
                    f"{weights} has the SHA-256 {found}, and the artifact's weights have {about['weights']}",
                    fix="give the weights that `tilewright strip` wrote",
                )
            file.seek(0)
            with whole(artifact) as out:
                digest = hashlib.sha256(head)
                out.write(head)
                while content := file.read(_CHUNK):
                    digest.update(content)
                    out.write(content)
                digest.update(tail)
                out.write(tail)
                if digest.hexdigest() != about["artifact"]:
                    raise NotGenuine(f"{light} is damaged", fix="strip the artifact again")
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"{light} cannot be refitted: {error}", fix="give what `tilewright strip` wrote") from error
    return digest.hexdigest()


def _copy(source: IO[bytes], out: IO[bytes], size: int) -> str:
    digest = hashlib.sha256()
    while size and (content := source.read(min(size, _CHUNK))):
        digest.update(content)
        out.write(content)
        size -= len(content)
    if size:
        raise zipfile.BadZipFile("the weights end early")
    return digest.hexdigest()
