"""The oldest driver that can run an artifact's images, as the CUDA version that it serves: 1000 * major + 10 * minor.

Machine code needs a driver that knows its architecture. Whether a driver of an earlier major version than NVRTC's loads
it is promised by nobody, and known to the driver alone: it is asked, and its refusal explained. PTX needs a driver of
NVRTC's own version, whose PTX it has to read.
"""

from __future__ import annotations

INTERFACE = 12000
"""The driver's functions that `tw_cuda_driver.h` names, of which `cuGraphAddKernelNode_v2` and
`cuGraphExecKernelNodeSetParams_v2` came last. (Programmatic edges came with 12.3; a driver without is served too.)"""
KNOWN_SINCE = {
    "sm_80": 11000,
    "sm_86": 11010,
    "sm_89": 11080,
    "sm_90": 11080,
    "sm_90a": 12000,
    "sm_100": 12080,
    "sm_103": 12090,
    "sm_120": 12080,
    "sm_121": 12090,
}
"""CUDA versions that brought the architectures of targets: PTX ISA, "Release Notes", and those of the toolkits."""


def oldest_driver(architecture: str, nvrtc: tuple[int, int]) -> int:
    """What an image needs that NVRTC made for `sm_90a` or its like (machine code) or `compute_90` (PTX).

    An architecture that is not known above is one that this NVRTC brought.
    """
    major, minor = nvrtc
    own = 1000 * major + 10 * minor
    return max(INTERFACE, KNOWN_SINCE.get(architecture, own))
