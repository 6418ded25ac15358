"""Models of speech from one artifact of open length, beside ONNX Runtime."""
