"""Networks of the literature, built from plain ONNX nodes with seeded weights: `build("resnet50")`."""

from bench.zoo.catalogue import ZOO, BadOption, Entry, NoSuchNetwork, build, entry
from bench.zoo.flops import gflop

__all__ = ["ZOO", "BadOption", "Entry", "NoSuchNetwork", "build", "entry", "gflop"]
