from __future__ import annotations

from compiler.forms.factors import by_one_factor
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import DType


def of(function: str, *args: Expr) -> Expr:
    return Apply(function, args)


def test_factors_that_depend_on_positions_alone_become_one_and_numbers_among_them_one_number() -> None:
    x = Load("x0", (), DType.F32)
    count = Cast(Position(Index.of(Axis("i", 3)) + 1), DType.F32)
    third, seventh = Const(3.0, DType.F32), Const(0.7, DType.F32)
    mean = of("div", of("mul", x, seventh), of("mul", count, third))
    chain = of("mul", Const(2.0, DType.F32), of("div", of("mul", mean, count), third))
    factor = of("div", of("mul", Const(0.7 / 3 / 3 * 2.0, DType.F32), count), count)
    assert chain.transform(by_one_factor) == of("mul", x, factor)


def test_what_is_divided_by_zero_or_holds_data_stays_and_so_do_numbers_whose_product_fp32_does_not_hold() -> None:
    x, y = Load("x0", (), DType.F32), Load("x1", (), DType.F32)
    large, small = Const(1e30, DType.F32), Const(1e-30, DType.F32)
    for expr in (of("div", x, Const(0.0, DType.F32)), of("mul", x, y), of("div", Const(2.0, DType.F32), x)):
        assert expr.transform(by_one_factor) == expr
    for expr in (of("div", of("mul", x, large), small), of("mul", of("mul", x, small), small)):
        assert by_one_factor(expr) == expr
