"""Whole networks compiled for browsers, proved in Node.js, and run through the JavaScript of their artifacts."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bench.zoo import build
from compiler.codegen import build as toolchains
from compiler.codegen.build import WASM, Toolchain, find_toolchain
from compiler.contract import CompileOptions, CompileReport
from compiler.devices.cpu.wasm.kind import wasm_backend
from compiler.errors import OptionsError, ToolchainMissing, UnsupportedModel
from compiler.pack.loader import Model, WrongMachine
from compiler.preflight import preflight
from compiler.steps import divisible
from tests.compiler.devices.cpu.emulation.arm import SIMD128, emulator, wasm
from tests.compiler.networks import Network
from tests.compiler.test_pipeline_arm import compiled, quantised_network
from tilewright.errors import UsageError
from tilewright.exports import browser_folder


@pytest.fixture(scope="module")
def mobile(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompileReport, Path]:
    wasm()
    return compiled(build("tiny_mobile").SerializeToString(), tmp_path_factory.mktemp("mobile"), target=SIMD128)


def dense() -> bytes:
    """relu(x . w), 5 x 16 by 16 x 24."""
    net = Network()
    x = net.node("MatMul", [net.input(5, 16), net.weight(16, 24)], (5, 24))
    return bytes(net.model([net.node("Relu", [x], (5, 24))]).SerializeToString())


def looped() -> bytes:
    """x doubled as often as an input says."""
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "v"], ["w"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [7]),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [7]),
        ],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    ports = [
        helper.make_tensor_value_info("n", TensorProto.INT64, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [7]),
    ]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [7])])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )


def of_zoo(name: str) -> Callable[[], bytes]:
    return lambda: bytes(build(name).SerializeToString())


def test_a_network_agrees_in_node_and_says_that_nothing_was_timed(mobile: tuple[CompileReport, Path]) -> None:
    report, artifact = mobile
    assert report.errors
    assert report.errors[0].max_relative < report.tolerance
    assert (report.latency_s, report.hardware) == (0, "")
    assert any(str(emulator(wasm())) in notice and "no time" in notice for notice in report.notices)
    with zipfile.ZipFile(artifact) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        names = {*archive.namelist()}
    assert manifest["requires"] == {"machine": WASM, "features": ["simd128"]}
    assert names >= {"model.wasm", "model.js", "model.d.ts", "demo.html", "demo.js"}
    assert not names & {"model.so", "model.h", "example.c"}


@pytest.mark.parametrize(
    "network",
    [
        of_zoo("tiny_cnn"),
        of_zoo("tiny_lstm"),
        of_zoo("tiny_transformer"),
        of_zoo("tiny_llama"),
        quantised_network,
        looped,
    ],
    ids=["cnn", "lstm", "transformer", "llama", "quantised", "loop"],
)
def test_networks_of_each_family_agree_in_node(network: Callable[[], bytes], tmp_path: Path) -> None:
    wasm()
    report, _ = compiled(network(), tmp_path / "net", target=SIMD128)
    assert report.errors
    assert all(error.max_relative <= report.tolerance for error in report.errors)


RELAXED_MADD = bytes([0xFD, 0x85, 0x02])
"""f32x4.relaxed_madd: the prefix of vectors, and 0x105 in LEB128."""
WITHOUT_RELAXED = """
import { create } from "./model.js";
const manifest = JSON.parse(fs.readFileSync(process.argv[2] + "/manifest.json"));
try {
  await create(manifest, new Uint8Array(4), new Uint8Array(0));  // as refused as by a browser without them
} catch (error) {
  console.log(error.message);
}
"""


def test_products_and_sums_are_one_step_where_a_browser_has_relaxed_simd(tmp_path: Path) -> None:
    wasm()
    report, artifact = compiled(dense(), tmp_path / "net", target="wasm:relaxed-simd")
    assert report.errors[0].max_relative <= report.tolerance
    page = browser_folder(artifact, tmp_path / "page")
    assert json.loads((page / "manifest.json").read_text())["requires"]["features"] == ["simd128", "relaxed-simd"]
    assert RELAXED_MADD in (page / "model.wasm").read_bytes()
    assert "target wasm:simd128" in in_node(WITHOUT_RELAXED, page)


IN_PIECES = """
import { create } from "./model.js";
const read = (name) => fs.readFileSync(process.argv[2] + "/" + name);
async function* pieces(bytes) {
  for (let at = 0; at < bytes.length; at += 1000) yield bytes.subarray(at, at + 1000);
}
const manifest = JSON.parse(read("manifest.json")), weights = read("weights.bin");
const found = [];
for (const given of [weights, pieces(weights)]) {
  const model = await create(manifest, read("model.wasm"), given);
  const image = model.port(0).slice().map((_, at) => Math.sin(at));
  found.push(Array.from(Object.values(await model.run({ [model.inputs[0].name]: image }))[0]));
}
console.log(JSON.stringify([weights.length, ...found]));
"""


def test_weights_that_come_in_pieces_are_those_that_come_at_once(
    mobile: tuple[CompileReport, Path], tmp_path: Path
) -> None:
    length, once, pieces = json.loads(in_node(IN_PIECES, browser_folder(mobile[1], tmp_path / "page")))
    assert length > 2000
    assert once == pieces


THREADS = """
const folder = pathToFileURL(process.argv[2] + "/");
const models = [await load(folder)];
globalThis.crossOriginIsolated = false;  // as in a page that is not isolated
models.push(await load(folder));
const found = [];
for (const model of models) {
  const [{ name }] = model.inputs;
  const image = model.port(0).slice().map((_, at) => Math.sin(at));
  const runs = [];
  for (let run = 0; run < 50; run++) runs.push(Object.values(await model.run({ [name]: image }))[0]);
  found.push({ threads: model.threads, once: Array.from(runs[0]),
               alike: runs.every((one) => one.every((element, at) => Object.is(element, runs[0][at]))) });
  if (models.indexOf(model)) model.close();  // the other one's workers do not keep the process
}
console.log(JSON.stringify(found));
"""


CUT_OFF = """
import { create } from "./model.js";
const read = (name) => fs.readFileSync(process.argv[2] + "/" + name);
let ended = 0;
globalThis.Worker = class {
  postMessage() { queueMicrotask(() => this.onmessage()); }
  terminate() { ended++; }
};
async function* cut() { throw new Error("the connection is lost"); }
await create(JSON.parse(read("manifest.json")), read("model.wasm"), cut()).catch((error) => console.log(error.message));
console.log(ended);
"""


def test_lanes_are_run_by_workers_where_memory_may_be_shared_and_else_by_one_thread(tmp_path: Path) -> None:
    wasm()
    model = build("tiny_cnn").SerializeToString()
    report, artifact = compiled(model, tmp_path / "net", target=SIMD128, threads=2)
    assert report.errors[0].max_relative <= report.tolerance
    with zipfile.ZipFile(artifact) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert (manifest["lanes"], manifest["requires"]["features"]) == (2, ["simd128", "threads"])
    shared, alone = json.loads(in_node(THREADS, browser_folder(artifact, tmp_path / "page")))
    assert (shared["threads"], alone["threads"]) == (2, 1)
    assert shared["alike"]
    assert alone["alike"]
    said = in_node(CUT_OFF, tmp_path / "page").splitlines()
    assert said == ["the connection is lost", "1"], "the worker goes with the model that could not be made"
    assert shared["once"] == alone["once"]


def test_several_threads_need_a_c_library_made_for_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wasm()
    monkeypatch.setattr(Toolchain, "is_zig", False)
    with pytest.raises(ToolchainMissing, match="memory that threads share"):
        wasm_backend(CompileOptions(target=SIMD128, threads=2), {})


def test_this_machines_loader_says_what_runs_the_artifact(mobile: tuple[CompileReport, Path]) -> None:
    with pytest.raises(WrongMachine, match="compiled for browsers") as caught:
        Model(mobile[1])
    assert "tilewright export" in str(caught.value)


def test_a_module_imports_nothing_and_is_the_same_bytes_again(tmp_path: Path) -> None:
    wasm()
    first, second = (compiled(dense(), tmp_path / name, target=SIMD128)[1] for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    said = in_node(
        "const m = new WebAssembly.Module(fs.readFileSync(process.argv[2] + '/model.wasm'));"
        "console.log(JSON.stringify(WebAssembly.Module.imports(m)));",
        browser_folder(first, tmp_path / "page"),
    )
    assert json.loads(said) == []


RUN = """
const model = await load(pathToFileURL(process.argv[2] + "/"));
const x = Float32Array.from({ length: 80 }, (_, at) => Math.sin(at));
const said = async (inputs) => model.run(inputs).then(() => "", (error) => error.message);
const wide = await model.run({ x0: x });
const [name] = Object.keys(wide);
console.log(JSON.stringify({
  ports: [model.inputs, model.outputs],
  found: Array.from(wide[name]),
  again: Array.from((await model.run({ x0: x.map((one) => 2 * one) }))[name]),
  kept: Array.from(wide[name]),
  missing: await said({}),
  unknown: await said({ x0: x, y: x }),
  typed: await said({ x0: new Float64Array(80) }),
  short: await said({ x0: new Float32Array(79) }),
}));
"""


def test_an_exported_folder_runs_in_node_and_refuses_other_inputs_by_name(tmp_path: Path) -> None:
    wasm()
    model = dense()
    page = browser_folder(compiled(model, tmp_path / "net", target=SIMD128)[1], tmp_path / "page")
    said = json.loads(in_node(RUN, page))
    (weights,) = (onnx.numpy_helper.to_array(one) for one in onnx.load_from_string(model).graph.initializer)
    right = np.maximum(np.sin(np.arange(80)).reshape(5, 16) @ weights, 0).reshape(-1)
    np.testing.assert_allclose(said["found"], right, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(said["again"], 2 * right, rtol=1e-5, atol=1e-5)
    assert said["kept"] == said["found"]
    assert said["ports"][0] == [{"name": "x0", "dtype": "float32", "shape": [5, 16]}]
    wanted = "give a Float32Array of shape [5, 16], 80 elements"
    assert said["missing"] == f'input "x0" is missing: {wanted}'
    assert said["typed"] == f'input "x0" is a Float64Array: {wanted}'
    assert said["short"] == f'input "x0" has 79 elements: {wanted}'
    assert said["unknown"] == 'the model has no input "y": it has x0'


def test_an_artifact_for_a_cpu_is_no_page(tmp_path: Path) -> None:
    _, artifact = compiled(dense(), tmp_path / "net")
    with pytest.raises(UsageError, match="which no browser runs"):
        browser_folder(artifact, tmp_path / "page")


def of_one(op: str, kind: int, result: int, shape: list[int], outputs: int = 1, **attrs: Any) -> bytes:
    """A model of one node, called `it`."""
    names = [f"y{number}" for number in range(outputs)]
    ports = [helper.make_tensor_value_info(name, result, None) for name in names]
    node = helper.make_node(op, ["x"], names, name="it", **attrs)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, shape)], ports)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (of_one("NonZero", TensorProto.FLOAT, TensorProto.INT64, [3, 4]), "how large a tensor is"),
        (of_one("Transpose", TensorProto.STRING, TensorProto.STRING, [3, 2]), "strings"),
        (of_one("Neg", TensorProto.FLOAT16, TensorProto.FLOAT16, [3]), "fp16"),
        (of_one("Neg", TensorProto.FLOAT, TensorProto.FLOAT, [1 << 29]), "4.0 GiB of memory"),
    ],
    ids=["sizes", "strings", "fp16", "memory"],
)
def test_what_no_browser_can_hold_is_refused_by_node_before_and_when_it_is_compiled(
    model: bytes, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(model)
    answer = preflight(path, CompileOptions(target=SIMD128))
    refusal = answer["refusals"][0]
    assert not answer["ok"]
    assert why in refusal["reason"]
    assert "cpu target" in refusal["fix"]
    wasm()
    with pytest.raises(UnsupportedModel, match="compiled for browsers yet") as caught:
        compiled(model, tmp_path, target=SIMD128)
    assert why in caught.value.refusals[0].reason


def test_a_model_that_fits_is_taken_by_preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.onnx").write_bytes(dense())
    answer = preflight(tmp_path / "net.onnx", CompileOptions(target=SIMD128))
    assert (answer["ok"], answer["target"]["name"]) == (True, SIMD128)
    monkeypatch.setattr(divisible, "BROWSER_BYTES", 2000)
    assert not preflight(tmp_path / "net.onnx", CompileOptions(target=SIMD128))["ok"]


def test_open_sizes_are_refused_as_options() -> None:
    for dims in ({"batch": {"min": 1, "opt": 2, "max": 4}}, {"batch": [1, 4]}):
        with pytest.raises(OptionsError, match="one size of each dimension"):
            CompileOptions.from_json({"target": SIMD128, "dims": dims})


def test_without_a_compiler_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchains, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    find_toolchain.cache_clear()
    try:
        with pytest.raises(ToolchainMissing, match="no C compiler for WebAssembly") as caught:
            find_toolchain("", WASM)
    finally:
        find_toolchain.cache_clear()
    assert "pip install ziglang" in caught.value.fix


def in_node(script: str, folder: Path) -> str:
    """What a script says that may use `fs` and, in a folder with a model, `load`."""
    node = shutil.which("node") or emulator(wasm()).command[0]
    program = folder / "script.mjs"
    imports = 'import fs from "node:fs"; import { pathToFileURL } from "node:url"; import { load } from "./model.js";\n'
    program.write_text(imports + script)
    (folder / "package.json").write_text('{"type": "module"}')
    done = subprocess.run([node, program, folder], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
