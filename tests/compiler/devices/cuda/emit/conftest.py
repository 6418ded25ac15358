from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.devices.cuda.artifact_on_double import Twin, artifact_of, on_double, plan_of
from tests.compiler.devices.cuda.branches import H200, KERNELS


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return artifact_of(KERNELS, plan_of(KERNELS, H200), tmp_path_factory.mktemp("model") / "model.tw")


@pytest.fixture(scope="module")
def twin(artifact: Path) -> Twin:
    return on_double(artifact)
