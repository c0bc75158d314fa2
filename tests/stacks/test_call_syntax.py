"""The calls in a text of Python: which there are, what they are called, and what is given to them."""

from __future__ import annotations

import pytest

from hangdoctor.stacks.call_syntax import calls, is_given_to, only_call, tree


def test_a_text_that_is_no_program_has_no_calls() -> None:
    for text in ("loss = run(", "\0", "(" * 100_000, "def f(:"):
        assert tree(text) is None and calls(text) == [] and only_call(text, "run") is None


def test_the_only_call_of_a_name() -> None:
    assert only_call("  self.step(x, dst=1)", "step") is not None
    assert only_call("step(step(x))", "step") is None
    assert len(calls("a(b(c), d=e())")) == 3


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("loss = stage.backward(stage.forward(plan(step)))", True),
        ("backward(kept=[f(x), self.forward(x)])", True),
        ("forward(backward(x))", False),
        ("backward(x); forward(x)", False),
        ("backward(forward", False),
    ],
)
def test_what_one_call_gives_to_another(code: str, given: bool) -> None:
    assert is_given_to("forward", "backward", code) is given
