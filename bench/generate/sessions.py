"""Runtimes that read tokens and say which follows, each as it is meant to be used: caches stay where they are."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import tilewright
from tilewright.generation.ports import ports
from tilewright.generation.text import Text

Logits = NDArray[np.float32]


class Session(Protocol):
    """A text in one runtime; its caches hold all tokens that were read."""

    def read(self, ids: Sequence[int]) -> Logits:
        """Reads tokens after those before; logits [words] of the one that follows."""
        ...

    def rewind(self, length: int) -> None:
        """Forgets the tokens from `length` on."""
        ...


class Artifact:
    """Our own: an artifact, by the client's loop."""

    def __init__(self, file: Path, threads: int, capacity: int) -> None:
        model = tilewright.load(file, lanes=threads)
        self._text = Text(model, ports(model))

    def read(self, ids: Sequence[int]) -> Logits:
        """As Session has it."""
        return self._text.read(ids)

    def rewind(self, length: int) -> None:
        """As Session has it."""
        self._text.rewind(length)


class OnnxRuntime:
    """A session whose caches are bound once, as input and as output, so that it writes to them in place."""

    def __init__(self, file: Path, threads: int, capacity: int, level: int = 4) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", str(level))
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._binding = self._session.io_binding()
        self._caches = []
        for given in self._session.get_inputs():
            if given.name.startswith("past_key_values"):
                batch, heads, _, width = given.shape
                cache = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((batch, heads, capacity, width), np.float32))
                self._caches.append(cache)
                self._binding.bind_ortvalue_input(given.name, cache)
                self._binding.bind_ortvalue_output(given.name.replace("past_key_values", "present"), cache)
        self._binding.bind_output("logits", "cpu")
        self._length = 0

    def read(self, ids: Sequence[int]) -> Logits:
        """As Session has it; all tokens in one step."""
        self._length += len(ids)
        self._binding.bind_cpu_input("input_ids", np.array([ids], np.int64))
        self._binding.bind_cpu_input("attention_mask", np.ones((1, self._length), np.int64))
        self._session.run_with_iobinding(self._binding)
        logits: Logits = self._binding.get_outputs()[-1].numpy().reshape(-1)
        return logits

    def rewind(self, length: int) -> None:
        """As Session has it."""
        self._length = length


class OnnxRuntimeGenai:
    """onnxruntime-genai, which is given a folder with the model and what it is to know of it (`genai_config`)."""

    def __init__(self, file: Path, threads: int, capacity: int) -> None:
        genai: Any = importlib.import_module("onnxruntime_genai")  # by name: no extra of ours brings it
        model = genai.Model(str(file))
        params = genai.GeneratorParams(model)
        params.set_search_options(max_length=capacity, do_sample=False)
        self._generator = genai.Generator(model, params)

    def read(self, ids: Sequence[int]) -> Logits:
        """As Session has it."""
        self._generator.append_tokens(list(ids))
        logits: Logits = self._generator.get_logits().reshape(-1)
        return logits

    def rewind(self, length: int) -> None:
        """As Session has it."""
        self._generator.rewind_to(length)


def genai_folder(folder: Path, model: Path, shape: Any, threads: int, capacity: int) -> Path:
    """A folder that onnxruntime-genai opens: a link to the model, and its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "model.onnx"
    if not link.exists():
        link.symlink_to(model.resolve())
    end = shape.words - 1
    decoder = {
        "session_options": {"intra_op_num_threads": threads, "provider_options": []},
        "filename": link.name,
        "head_size": shape.head_width,
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.shared,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    model_part = {"type": "llama", "context_length": capacity, "vocab_size": shape.words, "decoder": decoder}
    model_part |= {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    search = {"max_length": capacity, "past_present_share_buffer": True, "do_sample": False}
    (folder / "genai_config.json").write_text(json.dumps({"model": model_part, "search": search}, indent=1) + "\n")
    return folder


class OpenVino:
    """OpenVINO's CPU plugin with the caches as its states, as the pipelines of openvino-genai have them."""

    def __init__(self, file: Path, threads: int, capacity: int) -> None:
        import openvino

        transformations: Any = importlib.import_module("openvino._offline_transformations")
        core = openvino.Core()
        model = core.read_model(str(file))
        names = [one.get_any_name() for one in model.inputs]
        pairs = {name: name.replace("past_key_values", "present") for name in names if name.startswith("past")}
        transformations.apply_make_stateful_transformation(model, pairs)
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        compiled = core.compile_model(model, "CPU", {**settings, "INFERENCE_NUM_THREADS": threads})
        self._request: Any = compiled.create_infer_request()
        self._length = 0
        self._kept: Callable[[], None] = lambda: None

    def read(self, ids: Sequence[int]) -> Logits:
        """As Session has it."""
        places = np.arange(self._length, self._length + len(ids))[None]
        found = self._request.infer({"input_ids": np.array([ids]), "position_ids": places}, share_outputs=True)
        self._length += len(ids)
        logits: Logits = found["logits"].reshape(-1)
        return logits

    def rewind(self, length: int) -> None:
        """As Session has it."""
        import openvino

        for state in self._request.query_state():
            if length:
                held = np.ascontiguousarray(state.state.data[:, :, :length])
                state.state = openvino.Tensor(held)
            else:
                state.reset()
        self._length = length


OPENERS: Mapping[str, Callable[[Path, int, int], Session]] = {
    "tilewright": Artifact,
    "onnxruntime-0": lambda file, threads, capacity: OnnxRuntime(file, threads, capacity, 0),
    "onnxruntime-4": OnnxRuntime,
    "onnxruntime-genai": OnnxRuntimeGenai,
    "openvino": OpenVino,
}
"""By name: of a file, a number of threads and a capacity. `llama.cpp` has a program of its own."""
