"""The compiler: ONNX bytes in, one artifact out. It knows no web, queue or database.

This file stays a docstring: an import here would load the whole compiler into every process
that only needs `compiler.contract` or `compiler.errors` (the API, for one).
"""
