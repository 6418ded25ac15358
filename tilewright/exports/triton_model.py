"""Model of Triton's Python backend: runs the artifact `model.tw` that lies beside this file."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """What the Python backend makes one of for each instance, in a process of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the artifact with the loader that it carries."""
        artifact = os.path.join(args["model_repository"], args["model_version"], "model.tw")
        sys.path.insert(0, artifact)
        from loader import Model

        on_gpu = args["model_instance_kind"] == "GPU"
        self.model = Model(artifact, **({"device": int(args["model_instance_device_id"])} if on_gpu else {}))
        config = json.loads(args["model_config"])
        self.inputs = [one["name"] for one in config["input"]]
        self.outputs = [one["name"] for one in config["output"]]

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response for each request; what is wrong with one is its own answer, and the others are run."""
        responses = []
        for request in requests:
            try:
                arrays = {name: self._array(request, name) for name in self.inputs}
                found = self.model.run(arrays)
                wanted = set(request.requested_output_names()) & set(self.outputs)
                tensors = [self._tensor(name, found[name]) for name in self.outputs if name in wanted]
                responses.append(pb_utils.InferenceResponse(output_tensors=tensors))
            except self.model.errors as error:
                responses.append(pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(str(error))))
        return responses

    def _array(self, request: Any, name: str) -> Any:
        array: Any = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
        if array.dtype == object:
            return np.array([one.decode() for one in array.reshape(-1)], dtype=object).reshape(array.shape)
        return array

    def _tensor(self, name: str, array: Any) -> Any:
        if array.dtype == object:
            array = np.array([one.encode() for one in array.reshape(-1)], dtype=object).reshape(array.shape)
        return pb_utils.Tensor(name, np.ascontiguousarray(array).reshape(array.shape))

    def finalize(self) -> None:
        """Frees the model and its threads."""
        self.model.close()
