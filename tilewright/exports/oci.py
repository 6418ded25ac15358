"""An image layout of the OCI (image-spec 1.1) with one layer, which holds the artifact as `/model.tw`.

The same artifact gives the same image. Registries take it (`skopeo copy oci:DIR docker://...`), Kubernetes mounts it as
an image volume, and a Dockerfile copies out of it (`COPY --from`).
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import UsageError
from tilewright.loading import read_manifest

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
MEMBER = "model.tw"
EPOCH = "1970-01-01T00:00:00Z"
CHUNK = 1 << 20
MACHINES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
"""Architectures as images name them, by the artifact's `requires.machine`."""


def oci_layout(artifact: Path, folder: Path, name: str = "") -> str:
    """Writes the layout into `folder`, which must be empty or not there; the digest of the image's manifest.

    name  the tag (`org.opencontainers.image.ref.name`); that of the artifact's file by default

    Raises `UsageError` for what is no artifact and a folder that cannot be written.
    """
    described = read_manifest(artifact)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", fix="name a folder that is not there")
        (folder / "blobs" / "sha256").mkdir(parents=True)
        layer = _layer(artifact, folder)
        machine = (described.get("requires") or {}).get("machine", "")
        config = {
            "created": EPOCH,
            "architecture": MACHINES.get(machine, "amd64"),
            "os": "linux",
            "config": {"Labels": _labels(described)},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
            "history": [{"created": EPOCH, "created_by": "tilewright export"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _blob(folder, config, CONFIG),
            "layers": [layer],
            "annotations": _labels(described),
        }
        image = _blob(folder, manifest, MANIFEST)
        tag = {"org.opencontainers.image.ref.name": name or artifact.stem}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**image, "annotations": tag}]}
        (folder / "index.json").write_bytes(_plain(index))
        (folder / "oci-layout").write_bytes(_plain({"imageLayoutVersion": "1.0.0"}))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}", fix="name another folder") from error
    return str(image["digest"])


def _labels(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What a registry shows of it."""
    return {
        "org.opencontainers.image.title": MEMBER,
        "org.opencontainers.image.version": str(manifest["compiler_version"]),
        "tilewright.model": str(manifest["model_digest"]),
        "tilewright.target": str(manifest["target"]),
    }


def _layer(artifact: Path, folder: Path) -> dict[str, Any]:
    """The artifact as a tar, written in pieces: its bytes are compressed where they compress."""
    size = artifact.stat().st_size
    member = tarfile.TarInfo(MEMBER)
    member.size, member.mode = size, 0o444
    draft = folder / "blobs" / "layer.part"
    digest = hashlib.sha256()
    with artifact.open("rb") as source, draft.open("wb") as out:

        def put(content: bytes) -> None:
            digest.update(content)
            out.write(content)

        put(member.tobuf(tarfile.USTAR_FORMAT if size < 8 << 30 else tarfile.GNU_FORMAT))
        while content := source.read(CHUNK):
            put(content)
        put(bytes(-size % tarfile.BLOCKSIZE + 2 * tarfile.BLOCKSIZE))
        out.flush()
        os.fsync(out.fileno())
        written = out.tell()
    draft.rename(folder / "blobs" / "sha256" / digest.hexdigest())
    return {"mediaType": LAYER, "digest": f"sha256:{digest.hexdigest()}", "size": written}


def _blob(folder: Path, document: Mapping[str, Any], media_type: str) -> dict[str, Any]:
    content = _plain(document)
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs" / "sha256" / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _plain(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
