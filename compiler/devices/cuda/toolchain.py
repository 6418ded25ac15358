"""What builds CUDA programs.

NVRTC for the kernels, a C compiler for the host that launches them. Neither needs a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.build import COMPILE_FLAGS, LINK_FLAGS, Toolchain, find_toolchain
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.target import CudaTarget


@dataclass(frozen=True)
class Host:
    """Any machine of this architecture: it only copies and launches."""

    flags: tuple[str, ...] = ()
    vector_floats: int = 4


HOST = Host()


@dataclass(frozen=True)
class CudaToolchain:
    """A C compiler for the host, and NVRTC's major and minor version."""

    host: Toolchain
    nvrtc: tuple[int, int]

    @property
    def version(self) -> str:
        """What both say of themselves."""
        major, minor = self.nvrtc
        return f"NVRTC {major}.{minor}; {self.host.version}"

    def identity(self, target: CudaTarget) -> str:
        """Compilers and flags as one line: equal identities give equal code."""
        major, minor = self.nvrtc
        kernels = f"NVRTC {major}.{minor}; {' '.join(nvrtc.OPTIONS)} {target.architecture}"
        return f"{kernels}; {self.host.version}; {' '.join((*COMPILE_FLAGS, *HOST.flags, *LINK_FLAGS))}"


def find_cuda_toolchain(preferred: str = "") -> CudaToolchain:
    """NVRTC, and the C compiler that `preferred` names or the first on the PATH.

    Raises ToolchainMissing, which says what to install.
    """
    return CudaToolchain(find_toolchain(preferred), nvrtc.version())
