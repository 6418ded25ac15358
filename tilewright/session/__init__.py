"""A session with the calls of ONNX Runtime's."""
