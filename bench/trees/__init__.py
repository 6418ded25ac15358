"""Ensembles of decision trees beside ONNX Runtime."""
