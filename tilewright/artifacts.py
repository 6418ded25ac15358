"""What a client asks of artifacts: the file, and what is in it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlencode

from tilewright import download as downloads
from tilewright.download import Progress, unheard
from tilewright.errors import UsageError
from tilewright.http import Http
from tilewright.names import artifact_of
from tilewright.wire import ArtifactFile, Job

SOURCE = "source/"
"""Where the generated code lies in an artifact."""


class Artifacts:
    """A part of `tilewright.Client`. An artifact is named by its id or by its job."""

    _http: Http

    def download(
        self, artifact: Job | str, target: str | Path, progress: Progress = unheard, *, partial: bool = False
    ) -> Path:
        """Fetch an artifact to the file `target`, checked; raises `BrokenDownload`.

        partial  while the job goes on, what it made before measuring, if it did
        """
        name = artifact_of(artifact)
        url, part = (f"/artifacts/{name}?partial=true", f"{name}.partial") if partial else (f"/artifacts/{name}", name)
        return downloads.download(self._http, url, part, Path(target), progress)

    def download_model(self, digest: str, folder: str | Path) -> Path:
        """Fetch a model's ONNX file into a folder, with its external data as it names them; the ONNX file."""
        place = Path(folder)
        said = self._http.json("GET", f"/models/{digest}")
        for file in said["files"]:
            path = PurePosixPath(file["path"])
            if path.is_absolute() or ".." in path.parts:
                raise UsageError(f"the server names a file outside of its model: {path}", fix="ask its operator")
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            query = urlencode({"path": file["path"]})
            downloads.download(self._http, f"/models/{digest}/file?{query}", f"{digest[:16]}.{path.name}", target)
        main = place / "model.onnx"
        return downloads.download(self._http, f"/models/{digest}/file", digest, main)

    def manifest(self, artifact: Job | str) -> dict[str, Any]:
        """The artifact's manifest, without fetching the artifact."""
        return self._http.json("GET", f"/artifacts/{artifact_of(artifact)}/manifest")

    def plan(self, artifact: Job | str) -> dict[str, Any]:
        """The artifact's plan: calls, tasks, storage."""
        return self._http.json("GET", f"/artifacts/{artifact_of(artifact)}/plan")

    def receipt(self, artifact: Job | str) -> dict[str, Any]:
        """How the artifact was made: its job, times, measurements, the numeric verdict."""
        return self._http.json("GET", f"/artifacts/{artifact_of(artifact)}/receipt")

    def attestation(self, artifact: Job | str) -> dict[str, Any]:
        """The server's signed statement of where the artifact comes from; `tilewright.verify` checks it."""
        return self._http.json("GET", f"/artifacts/{artifact_of(artifact)}/attestation")

    def signer(self) -> str:
        """The public key, as PEM, that the server's statements are signed with: keep it."""
        return str(self._http.json("GET", "/signing-key")["public_key"])

    def files(self, artifact: Job | str) -> list[ArtifactFile]:
        """The files inside an artifact."""
        answer = self._http.json("GET", f"/artifacts/{artifact_of(artifact)}/files")
        return [ArtifactFile.from_json(said) for said in answer["files"]]

    def source(self, artifact: Job | str, name: str) -> str:
        """A file of generated code, by its name among `files`, with or without `source/`. Raises `UsageError`."""
        below = name.removeprefix(SOURCE)
        if any(part in ("", ".", "..") for part in below.split("/")):
            raise UsageError(f"{name!r} is no file below {SOURCE}", fix="name one that `files` lists")
        return self._http.request("GET", f"/artifacts/{artifact_of(artifact)}/{SOURCE}{quote(below)}").text
