"""Tensors of the host and of the GPU as inputs and outputs of a model on the double of CUDA."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.compiler.devices.cuda.artifact_on_double import Outcome, Twin
from tests.compiler.devices.cuda.branches import (
    INPUTS,
    KERNELS,
    LOGITS,
    MIDDLE,
    RANDOM,
    assert_right,
    functions,
)
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Mode

pytestmark = [needs_double, needs_nvrtc, pytest.mark.usefixtures("host_as_shipped")]

ON_GPU = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxPushCurrent_v2(context)

class OnGpu:
    "A tensor in the double's device memory, which is memory of the host."
    def __init__(self, array, skip=0):
        self.array, self.address = array, ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(array.nbytes + skip)) == 0
        self.at = self.address.value + skip
        ctypes.memmove(self.at, np.ascontiguousarray(array).ctypes.data, array.nbytes)
    def read(self):
        held = (ctypes.c_float * self.array.size).from_address(self.at)
        return np.ctypeslib.as_array(held).reshape(self.array.shape).copy()
    def free(self):
        assert cuda.cuMemFree_v2(self.address) == 0

class Interface(OnGpu):
    extra = {}
    @property
    def __cuda_array_interface__(self):
        return {"shape": self.array.shape, "typestr": "<f4", "data": (self.at, False), "version": 3, **self.extra}

class DlTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("device", ctypes.c_int32),
                ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("offset", ctypes.c_uint64)]

class Dlpack(OnGpu):
    gpu, streams = 0, []
    def __dlpack_device__(self):
        return 2, self.gpu
    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        self.shape = (ctypes.c_int64 * self.array.ndim)(*self.array.shape)
        self.tensor = DlTensor(self.at - 64, 2, self.gpu, self.array.ndim, 2, 32, 1, self.shape, None, 64)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.tensor), b"dltensor", None)
"""
AT_THE_END = "\ncuda.cuCtxPopCurrent_v2(ctypes.byref(context)), cuda.cuDevicePrimaryCtxRelease_v2(0)\n"


def on_gpu(twin: Twin, script: str, mode: Mode = RANDOM) -> Outcome:
    names = f"X, LOGITS, MIDDLE = 'x0', {LOGITS!r}, {MIDDLE!r}\n"
    return twin.run(INPUTS, mode, script=ON_GPU + names + script + AT_THE_END)


@pytest.mark.parametrize("kind", ["Interface", "Dlpack"])
def test_tensors_of_the_gpu_are_used_in_place(twin: Twin, kind: str) -> None:
    script = f"""
x, y = {kind}(inputs[X]), {kind}(np.zeros((1, 10), np.float32))
for _ in range(2):
    given = model.run({{X: x}}, out={{LOGITS: y}})
assert given[LOGITS] is y and model.run_flat([x], [y, None])[0] is y
outputs[LOGITS], outputs[MIDDLE] = y.read(), given[MIDDLE]
x.free(), y.free()
"""
    outcome = on_gpu(twin, script)
    assert_right(outcome)
    copies = [name for name in functions(outcome) if "Async" in name and "Memset" not in name]
    assert copies == ["cuMemcpyDtoHAsync_v2"] * 3, "only the second output is copied"
    readers = sum(KERNELS.inputs[0] in call.inputs for call in KERNELS.calls)
    changed = functions(outcome).count("cuGraphExecKernelNodeSetParams_v2")
    assert changed == readers + 1, "nodes are told of a tensor once, and only those that use it"


def test_a_tensor_that_is_not_aligned_is_copied_on_the_gpu(twin: Twin) -> None:
    script = """
x, y = Interface(inputs[X], skip=4), Interface(np.zeros((1, 10), np.float32), skip=36)
outputs.update(model.run({X: x}, out={LOGITS: y}))
outputs[LOGITS] = y.read()
x.free(), y.free()
"""
    outcome = on_gpu(twin, script)
    assert_right(outcome)
    assert functions(outcome).count("cuMemcpyDtoDAsync_v2") == 2
    assert "cuGraphExecKernelNodeSetParams_v2" not in functions(outcome)


def test_host_and_gpu_tensors_take_turns(twin: Twin) -> None:
    script = """
x = Interface(inputs[X])
for given in (x, inputs[X], x, inputs[X][:, :, ::-1, :][:, :, ::-1, :]):
    found = model.run({X: given})
    assert not outputs or np.array_equal(found[LOGITS], outputs[LOGITS])
    outputs.update(found)
x.free()
"""
    assert_right(on_gpu(twin, script))


def test_a_node_that_could_not_be_told_of_a_tensor_is_told_again(twin: Twin) -> None:
    script = """
x, y = Interface(inputs[X]), Interface(np.zeros((1, 10), np.float32))
for _ in range(2):
    try:
        outputs.update(model.run({X: x}, out={LOGITS: y}))
    except RunError as reason:
        assert "aiming a kernel at a tensor failed" in str(reason)
outputs[LOGITS] = y.read()
x.free(), y.free()
"""
    for nth in (1, 2):
        once = replace(twin, settings=f"{twin.settings} fail=cuGraphExecKernelNodeSetParams_v2:{nth}:999")
        assert_right(on_gpu(once, script))


@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_producers_own_stream_is_waited_for(twin: Twin, where: str) -> None:
    """Also from a thread that never used CUDA, in which no context is current."""
    script = f"""
import threading
stream = ctypes.c_void_p()
cuda.cuStreamCreate(ctypes.byref(stream), 1)
x = Interface(np.zeros_like(inputs[X]))
x.extra = {{"stream": stream.value}}
pinned = ctypes.c_void_p()
cuda.cuMemAllocHost_v2(ctypes.byref(pinned), ctypes.c_size_t(inputs[X].nbytes))
ctypes.memmove(pinned, inputs[X].ctypes.data, inputs[X].nbytes)
cuda.cuMemcpyHtoDAsync_v2(x.address, pinned, ctypes.c_size_t(inputs[X].nbytes), stream)
run = lambda: outputs.update(model.run({{X: x}}))
if {where == "thread"}:
    other = threading.Thread(target=run)
    other.start(), other.join()
else:
    run()
cuda.cuStreamDestroy_v2(stream), cuda.cuMemFreeHost(pinned), x.free()
"""
    assert_right(on_gpu(twin, script, MODES[0]))


def test_dlpack_is_asked_for_the_legacy_default_stream(twin: Twin) -> None:
    outcome = on_gpu(twin, "x = Dlpack(inputs[X]); model.run({X: x}); outputs['s'] = np.array(x.streams); x.free()")
    assert outcome.outputs["s"].tolist() == [1]


WRONG_TENSORS = [
    ("x = Dlpack(inputs[X]); x.gpu = 1", r"input 0 is on GPU 1, and the model on GPU 0: copy it there"),
    (
        "x = Interface(inputs[X]); x.extra = {'strides': (768, 4, 96, 12)}",
        r"input 'x0' is on the GPU and not row-major",
    ),
    ("x = Interface(inputs[X][0])", r"input 'x0' is float32\[3, 8, 8\]. Fix: give float32\[1, 3, 8, 8\]"),
    ("x = Interface(inputs[X]); x.extra = {'typestr': '<f8'}", r"input 'x0' is float64\[1, 3, 8, 8\]"),
]


@pytest.mark.parametrize(("made", "words"), WRONG_TENSORS)
def test_a_tensor_that_does_not_fit_is_named_with_the_fix(twin: Twin, made: str, words: str) -> None:
    script = f"""
{made}
try:
    model.run({{X: x}})
except (ValueError, RunError) as reason:
    outputs["said"] = np.array(str(reason))
x.free()
"""
    outcome = on_gpu(twin, script)
    assert not outcome.error, outcome.error
    assert re.search(words, str(outcome.outputs["said"]))
    assert outcome.left == {}


def test_an_output_in_the_memory_of_an_input_is_refused(twin: Twin) -> None:
    script = """
x = Interface(np.zeros((1, 3, 8, 8), np.float32))
y = Interface(np.zeros((1, 8, 8, 8), np.float32))
y.at = x.at
try:
    model.run({X: x}, out={MIDDLE: y})
except ValueError as reason:
    outputs["said"] = np.array(str(reason))
x.free(), y.free()
"""
    assert "shares memory with an input" in str(on_gpu(twin, script).outputs["said"])
