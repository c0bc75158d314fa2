"""The Triton kernels are compiled for an H100 (compute capability 9.0), without a GPU: the
interpreter takes programs that the compiler does not.
"""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")
triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from hangdoctor.train.kernels import (  # noqa: E402
    adam,
    add_norm,
    bias_dropout_add,
    bias_gelu,
    column_sum,
    cross_entropy,
    norm,
    rotary,
    softmax,
)

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="is the compiler's test"),
]
TILE = {"height": column_sum.ROWS, "width": column_sum.COLUMNS}
NORM = {"centred": True, "block": 2048}
STEP = {"gradient_type": tl.float32, "copy_type": tl.bfloat16, "block": 1024}
# Arguments that are pointers, by what they point at; a float argument; the rest are integers.
WIDE = {"mean", "rstd", "sums", "dweight", "dbias", "cos", "sin", "largest", "picked"}
WIDE |= {"normalizer", "numbers"}
LONG = {"target", "seed", "places_of"}
FLOATS = {"eps", "p", "scale", "sign"}
HALF = set("x out grad bias weight residual x_bias total normed grad_total dx dresidual".split())
HALF |= {"logits", "scores", "probabilities", "q", "k", "v"}
CASES = {
    "rotary": (rotary._turn, {"parts": 2, "half": 64, "width": 64, "rows": 32}),
    "rotary_back": (rotary._turn_back, {"half": 64, "width": 64, "rows": 32}),
    "column_sum": (column_sum._sums, TILE),
    "bias_gelu": (bias_gelu._forward, {"block": 4096}),
    "bias_gelu_backward": (bias_gelu._backward, TILE),
    "bias_dropout_add": (bias_dropout_add._forward, {"block": 4096, "drops": True}),
    "bias_dropout_add_backward": (bias_dropout_add._backward, {**TILE, "in_fours": True}),
    "bias_dropout_add_backward_odd": (bias_dropout_add._backward, {**TILE, "in_fours": False}),
    "add_norm": (add_norm._forward, {**NORM, "biased": True}),
    "add_norm_backward": (add_norm._backward, {**NORM, "biased": True, "splits": True}),
    "norm": (norm._forward, NORM),
    "norm_backward": (norm._backward, NORM),
    "softmax": (softmax._forward, {"block": 2048}),
    "softmax_backward": (softmax._backward, {"block": 2048}),
    "cross_entropy": (cross_entropy._forward, {"block": 4096}),
    "cross_entropy_backward": (cross_entropy._backward, {"block": 4096}),
    "adam": (adam._step, {**STEP, "aligned": True}),
    "adam_of_odd_sizes": (adam._step, {**STEP, "aligned": False}),
    "adam_without_copies": (adam._step, {**STEP, "aligned": True, "copy_type": None}),
}


def kind_of(name: str, kernel: str) -> str:
    if name in WIDE or (kernel == "cross_entropy_backward" and name == "grad"):
        return "*fp32"
    if kernel == "cross_entropy" and name == "total":
        return "*fp32"
    if name in LONG:
        return "*i64"
    if name == "owner":
        return "*i32"
    if name in HALF:
        return "*bf16"
    return "fp32" if name in FLOATS else "i32"


@pytest.mark.parametrize("name", CASES)
def test_it_compiles_with_wide_loads(name: str) -> None:
    """16 bytes a thread where tensors begin and rows end at multiples of 16, as in the model."""
    kernel, constants = CASES[name]
    kernel = getattr(kernel, "fn", kernel) if hasattr(kernel, "configs") else kernel
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else kind_of(n, name) for n in names}
    by_16 = [["tt.divisibility", 16]]
    even = [n for n in names if signature[n] not in ("constexpr", "fp32") and n != "first"]
    source = ASTSource(
        kernel,
        signature,
        constexprs={(names.index(n),): value for n, value in constants.items()},
        attrs={(names.index(n),): by_16 for n in even},
    )
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    is_wide = "ld.global.v4.b32" in made.asm["ptx"]
    assert is_wide is (name != "adam_of_odd_sizes")
    assert made.asm["cubin"]
