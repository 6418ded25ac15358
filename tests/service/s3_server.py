"""An S3-compatible store (moto) in a process of its own, on a free port of the loopback interface."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.config import Settings
from tests.servers import GUARD_S, free_port

KEY, SECRET = "test-key-id", "test-secret"


@dataclass(frozen=True)
class S3Server:
    """Where it answers."""

    endpoint: str

    def client(self) -> Any:
        """AWS's own client, as a second opinion on what is kept."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )

    def bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"tilewright-{uuid.uuid4().hex}"
        self.client().create_bucket(Bucket=name)
        return name

    def settings(self, folder: Path, bucket: str, **further: Any) -> Settings:
        """Settings that keep blobs in the bucket, below the prefix `deep/blobs`."""
        return Settings.model_validate(
            {
                "data_dir": folder,
                "blob_url": f"s3://{bucket}/deep/blobs",
                "blob_endpoint": self.endpoint,
                "blob_access_key_id": KEY,
                "blob_secret_access_key": SECRET,
                **further,
            }
        )


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """Start the server and end it; skips where moto is not installed."""
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("boto3") is None:
        pytest.skip("moto and boto3 are not installed (the extra `dev` has them)")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(process, port)
            yield S3Server(f"http://127.0.0.1:{port}")
        finally:
            process.kill()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + GUARD_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5):
                return
        except OSError:
            assert process.poll() is None, "moto ended before it answered"
            assert time.monotonic() < deadline, "moto does not answer"
            time.sleep(0.05)
