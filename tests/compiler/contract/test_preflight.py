"""What preflight answers of a model that was not read."""

from __future__ import annotations

from compiler.contract.preflight import unread


def test_of_a_model_that_was_not_read_nothing_is_counted() -> None:
    problem = {"code": "malformed_model", "fault": "caller", "message": "it is cut off", "fix": "send all of it"}
    told = unread(problem, counts="multiplications").model_dump()
    assert not told["ok"]
    assert told["problem"]["message"] == "it is cut off"
    numbers = ("nodes", "parameters", "weight_bytes", "activation_bytes")
    assert [told[name] for name in numbers] == [0, 0, 0, None]
    assert (told["inputs"], told["outputs"], told["gflop"]["value"]) == ([], [], None)
