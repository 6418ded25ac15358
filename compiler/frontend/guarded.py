"""What goes wrong in a rule of the front end, as a refusal of the node that it was applied to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from compiler.errors import ModelTooLarge, OpenDimension, TilewrightError
from compiler.frontend.open.values import Narrower, SameSize, WholeSteps
from compiler.ops.operator import Unsupported

T = TypeVar("T")


def guarded(step: Callable[[], T]) -> T:
    """What `step` returns; what it trips over in an ill-formed node becomes a refusal of that node."""
    try:
        return step()
    except OpenDimension as error:  # a rule asked for the number of an open axis
        raise Unsupported(f"it has no rule for an open dimension: {error}", "bind that dimension to a number") from None
    except (Unsupported, TilewrightError, SameSize, WholeSteps, Narrower):
        raise
    except MemoryError:
        raise ModelTooLarge("a constant of the model does not fit into memory", fix="bind smaller shapes") from None
    except Exception as error:
        reason = f"its inputs and attributes do not fit together ({type(error).__name__}: {error!s:.200})"
        raise Unsupported(reason, "check the model with onnx.checker, or export it again") from error
