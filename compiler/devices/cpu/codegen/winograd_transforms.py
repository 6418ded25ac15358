"""The transforms of Winograd's minimal filtering along one axis, in C (`compiler.forms.winograd`).

Points come in pairs +-p, whose rows share what is even and what is odd in p.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from compiler.codegen.scalars import literal
from compiler.codegen.writer import Writer
from compiler.forms.winograd import Form
from compiler.ir.tensor import DType


def write_input(writer: Writer, one: Form, load: str = "tw_load") -> None:
    """y = B^T x. The rows of a pair +-p are even + p odd and even - p odd."""
    points = ", ".join(map(str, one.points))
    writer.line(f"/* B^T of {one} at {points} and infinity */")
    for at in range(one.elements):
        writer.line(f"const vf x{at} = {load}(x + {at} * x_step);")
    for element, row in enumerate(one.input):
        point = one.points[element] if element < len(one.points) else None
        if point is None or point == 0:
            writer.line(f"tw_store(y + {element} * y_step, {_sum_of(_terms(row))});")
        elif point > 0:
            twin = one.input[element + 1]
            even = [value if value == other else Fraction(0) for value, other in zip(row, twin, strict=True)]
            odd = [value / point if value != other else Fraction(0) for value, other in zip(row, twin, strict=True)]
            writer.line(f"const vf even{element} = {_sum_of(_terms(even))}, odd{element} = {_sum_of(_terms(odd))};")
            writer.line(
                f"tw_store(y + {element} * y_step, "
                f"{_sum_of([(Fraction(1), f'even{element}'), (point, f'odd{element}')])});"
            )
            writer.line(
                f"tw_store(y + {element + 1} * y_step, "
                f"{_sum_of([(Fraction(1), f'even{element}'), (-point, f'odd{element}')])});"
            )


def write_output(writer: Writer, one: Form) -> None:
    """y = A^T x. Outputs of even number take the sums of pairs, those of odd number the differences."""
    points = ", ".join(map(str, one.points))
    writer.line(f"/* A^T of {one} at {points} and infinity */")
    for at in range(one.elements):
        writer.line(f"const vf x{at} = tw_load(x + {at} * x_step);")
    pairs = [(element, point) for element, point in enumerate(one.points) if point > 0]
    for element, _ in pairs:
        writer.line(
            f"const vf sum{element} = x{element} + x{element + 1}, difference{element} = x{element} - x{element + 1};"
        )
    for output in range(one.outputs):
        part = "difference" if output % 2 else "sum"
        terms = [(point**output, f"{part}{element}") for element, point in pairs]
        terms += [(Fraction(1), "x0")] if output == 0 and 0 in one.points else []
        terms += [(Fraction(1), f"x{one.elements - 1}")] if output == one.outputs - 1 else []
        writer.line(f"tw_store(y + {output} * y_step, {_sum_of(terms)});")


def _terms(row: Sequence[Fraction]) -> list[tuple[Fraction, str]]:
    return [(number, f"x{at}") for at, number in enumerate(row) if number]


def _sum_of(terms: Sequence[tuple[Fraction, str]]) -> str:
    """A sum of multiples, one that needs no multiplication first."""
    ordered = sorted(terms, key=lambda term: (term[0] != 1, term[0] != -1))
    text = ""
    for factor, name in ordered:
        body = name if abs(factor) == 1 else f"{literal(float(abs(factor)), DType.F32)} * {name}"
        sign = "-" if factor < 0 else "+" if text else ""
        text += f" {sign} {body}" if text else f"{sign}{body}"
    return text
