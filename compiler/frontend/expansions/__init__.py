"""Operators written as programs over others: of `com.microsoft`, `ai.onnx.ml`, and composed ones of `ai.onnx`."""
