"""ONNX's conformance suite, each case compiled to an artifact and run."""
