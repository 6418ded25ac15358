"""The loader of artifacts, in modules by subject, which `compiler.pack.joining` makes one file of.

The modules need numpy and nothing else that is not Python's own. They import only those before them in MODULES, names
by themselves, which are unique among all modules; one with an underscore is private to the loader, not to its module.
"""

from compiler.pack.loader.bindings import Binding, PlanSpec
from compiler.pack.loader.command import main
from compiler.pack.loader.errors import ArtifactError, InputError, NoSuchBinding, RunError, WrongMachine
from compiler.pack.loader.frames import Frame, Stream
from compiler.pack.loader.library import set_threads
from compiler.pack.loader.model import Model
from compiler.pack.loader.specs import OpenSpec, Size, TensorSpec
from compiler.pack.loader.states import Carried, State

__all__ = [
    "ArtifactError",
    "Binding",
    "Carried",
    "Frame",
    "InputError",
    "Model",
    "NoSuchBinding",
    "OpenSpec",
    "PlanSpec",
    "RunError",
    "Size",
    "State",
    "Stream",
    "TensorSpec",
    "WrongMachine",
    "main",
    "set_threads",
]
