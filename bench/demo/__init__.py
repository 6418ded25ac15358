"""`make demo`: models compiled over HTTP by a server of its own, run, and timed beside ONNX Runtime."""
