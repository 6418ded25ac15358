"""What goes wrong in a rule of the front end, as a refusal of the node that it was applied to."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from compiler.errors import ModelTooLarge, OpenDimension, TilewrightError
from compiler.frontend.open.values import Narrower, Rows, SameSize, WholeSteps, Wider
from compiler.ops.operator import Unsupported

T = TypeVar("T")
P = ParamSpec("P")


def of_numbers(rule: Callable[P, T]) -> Callable[P, T]:
    """A rule that refuses a node where it asks for the number of an open axis."""

    @wraps(rule)
    def asking(*args: P.args, **named: P.kwargs) -> T:
        try:
            return rule(*args, **named)
        except OpenDimension as error:
            reason = f"it has no rule for an open dimension: {error}"
            raise Unsupported(reason, "bind that dimension to a number") from None

    return asking


def guarded(step: Callable[[], T]) -> T:
    """What `step` returns; what it trips over in an ill-formed node becomes a refusal of that node."""
    try:
        return of_numbers(step)()
    except (Unsupported, TilewrightError, SameSize, WholeSteps, Narrower, Wider, Rows):
        raise
    except MemoryError:
        raise ModelTooLarge("a constant of the model does not fit into memory", fix="bind smaller shapes") from None
    except Exception as error:
        reason = f"its inputs and attributes do not fit together ({type(error).__name__}: {error!s:.200})"
        raise Unsupported(reason, "check the model with onnx.checker, or export it again") from error
