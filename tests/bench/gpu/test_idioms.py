from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bench.gpu.idioms import with_idioms
from bench.gpu.translation import Program, Ref, Step, translate
from bench.zoo import build


def test_bert_has_one_attention_and_one_gelu_in_each_block() -> None:
    program = translate(build("bert_base", blocks=2, vocabulary=100, seq=16))
    ops = Counter(step.op for step in with_idioms(program).steps)
    assert (ops["Attention"], ops["Gelu"]) == (2, 2)
    assert not {"Softmax", "Erf", "Div"} & ops.keys()
    (first, _) = (step for step in with_idioms(program).steps if step.op == "Attention")
    assert first.attributes == {"scale": 1 / 8}
    assert isinstance(first.operands[3], Ref)


def gelu() -> Program:
    steps = (
        Step("Div", (Ref("x"), 2**0.5), {}, ("a",)),
        Step("Erf", (Ref("a"),), {}, ("b",)),
        Step("Add", (Ref("b"), 1.0), {}, ("c",)),
        Step("Mul", (Ref("x"), Ref("c")), {}, ("d",)),
        Step("Mul", (Ref("d"), 0.5), {}, ("y",)),
    )
    return Program(("x",), ("y",), steps, {})


def test_gelu_in_pieces_is_one_step() -> None:
    assert with_idioms(gelu()).steps == (Step("Gelu", (Ref("x"),), {}, ("y",)),)


def test_pieces_that_something_else_reads_or_that_say_something_else_stay() -> None:
    read_twice = replace(gelu(), outputs=("y", "b"))
    assert with_idioms(read_twice) == read_twice
    steps = gelu().steps
    for at, other in ((0, (Ref("x"), 1.5)), (2, (Ref("b"), 2.0)), (3, (Ref("z"), Ref("c"))), (4, (Ref("d"), 0.4))):
        changed = replace(gelu(), steps=(*steps[:at], replace(steps[at], operands=other), *steps[at + 1 :]))
        assert with_idioms(changed) == changed
