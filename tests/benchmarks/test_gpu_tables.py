"""`benchmarks.gpu`: its tables from given rows, pure; what is met, what is wrong, what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu import parity, targets
from benchmarks.gpu.render import markdown

FINGERPRINT = [
    {"unit": "machine", "what": "name", "value": "NVIDIA H100 80GB HBM3"},
    {"unit": "copy", "what": "copy", "ms": 1.4, "gb_per_s": 3000.0},
    {"unit": "product a", "what": "a", "ms": 1.0, "tflops": 800.0},
    {"unit": "product b", "what": "b", "ms": 1.0, "tflops": 700.0},
]


def kernel(flavour: str, ms: float, error: float = 1e-3, name: str = "norm") -> dict[str, Any]:
    """A row whose traffic takes 1 ms at 3,000 GB/s."""
    return {
        "unit": f"{name} big {flavour}",
        "kernel": name,
        "size": "big",
        "flavour": flavour,
        "forward_ms": ms / 4,
        "backward_ms": 3 * ms / 4,
        "forward_bytes": 1_000_000_000,
        "backward_bytes": 2_000_000_000,
        "forward_flops": 0.0,
        "backward_flops": 0.0,
        "error": error,
        "limit": 1e-2,
    }


def verdict(*rows: dict[str, Any], failed: tuple[str, ...] = ()) -> targets.Verdict:
    """The only verdict on these rows."""
    (found,) = targets.kernel_verdicts(list(rows), targets.ceilings(FINGERPRINT), failed)
    return found


def test_a_kernel_near_the_bandwidth_is_enough_even_if_a_peer_is_faster() -> None:
    found = verdict(kernel("triton", 1.1), kernel("liger", 1.0))
    assert found.met and found.reached == pytest.approx(1 / 1.1)


def test_a_slow_kernel_is_enough_where_no_peer_is_faster() -> None:
    assert verdict(kernel("triton", 2.0), kernel("torch", 2.0), kernel("compile", 1.97)).met


def test_a_slow_kernel_behind_a_peer_is_not() -> None:
    found = verdict(kernel("triton", 2.0), kernel("torch", 2.2), kernel("compile", 1.6))
    assert not found.met
    assert found.why == "compile is 1.25 times as fast"


@pytest.mark.parametrize("error", [0.5, float("nan")])
def test_a_wrong_kernel_is_never_met_and_no_peer(error: float) -> None:
    found = verdict(kernel("triton", 0.5, error), kernel("torch", 2.0))
    assert not found.met and "wrong: error" in found.why
    assert verdict(kernel("triton", 2.0), kernel("torch", 0.5, error)).peer == ""


def test_what_crashed_of_ours_is_not_replaced_by_another_flavour() -> None:
    found = verdict(kernel("torch", 1.0), failed=("norm big triton", "peers"))
    assert (found.ours, found.met, found.why) == ("triton", False, "not measured")
    alone = verdict(failed=("norm big triton",))
    assert (alone.kernel, alone.met) == ("norm", False)


def test_a_product_is_held_to_the_peak_of_products() -> None:
    row = kernel("triton", 1.0) | {"forward_flops": 2e11, "backward_flops": 4e11}
    assert verdict(row).reached == pytest.approx(600 / 800)


def whole(device: str = "cuda", smoke: bool = False) -> dict[str, Any]:
    """Results with a row of each kind."""
    model = {
        "unit": "both recompute=off micro=8",
        "way": "both",
        "recompute": "off",
        "micro_batch": 8,
        "step_ms": 500.0,
        "tokens_per_s": 65536.0,
        "tflops": 480.0,
        "memory_mb": 61000.0,
        "slowest": [{"name": "nvjet_bf16", "calls": 90, "ms": 200.0, "share": 0.4}],
    }
    plain = model | {"way": "plain_gpt", "tokens_per_s": 70000.0, "tflops": 512.0, "slowest": []}
    hang = {
        "unit": "item",
        "case": "item",
        "expected": "device_wait",
        "kind": "busy",
        "sentence": "Rank 0 | is computing",
        "seconds": 4.2,
        "right": False,
    }
    check = {"unit": "losses", "check": "triton", "value": 0.001, "limit": 0.02, "right": True}
    kernels = [kernel("triton", 2.0), kernel("liger", 1.0, 0.3)]
    sections = {
        "fingerprint": {"rows": FINGERPRINT},
        "model": {
            "rows": [model, plain],
            "failed": {"torch recompute=off micro=8": "out of memory: tried 9 GiB"},
            "not_reached": ["torch recompute=on micro=4"],
            "why": "its time is over",
        },
        "kernels": {"rows": kernels, "failed": {"rms big triton": "ended by SIGSEGV"}},
        "hangs": {"rows": [hang]},
        "parity": {"rows": [check]},
    }
    made = {"at": "2026-11-22 22:00:00", "device": device, "smoke": smoke}
    return {"schema": "hangdoctor.gpu/1", "made": made, "sections": sections}


def test_tables_of_a_run_on_a_gpu() -> None:
    text = markdown(whole())
    for line in (
        "| copy on the device, read and written | 3000 GB/s | 1.400 |",
        "| both | off | 8 | 500.0 | 65536 | 480.0 | 60.0 % | 48.5 % | 61.0 |",
        "Target: MFU of at least 55.0 % of the measured peak: 60.0 %, met.",
        "| nvjet_bf16 | 90 | 200.00 | 40.0 % |",
        "| norm | big | triton | 0.500 | 1.500 | 3000 | 50.0 % |  | 1.0e-03 |",
        "| norm | big | liger | 0.250 | 0.750 | 3000 | 100.0 % |  | **wrong: 3.0e-01** |",
        "| norm | big | triton 2.000 | 50.0 % |  | **not met**: too slow |",
        "| rms | big | triton  |  |  | **not met**: not measured |",
        "| item | device_wait | busy | Rank 0 \\| is computing | 4.2 | **wrong** |",
        "| triton | 1.00e-03 | 2e-02 |  | right |",
        "| model | torch recompute=off micro=8 | out of memory: tried 9 GiB |",
        "| model | 1 units: torch recompute=on micro=4 | not reached: its time is over |",
    ):
        assert line in text.splitlines(), line


@pytest.mark.parametrize("run", [whole(device="cpu"), whole(smoke=True)])
def test_without_a_gpu_nothing_is_claimed(run: dict[str, Any]) -> None:
    text = markdown(run)
    assert "Target" not in text and "not met" not in text
    assert "| norm | big | triton |" in text


def test_results_with_nothing_in_them_render() -> None:
    made = {"schema": "hangdoctor.gpu/1", "made": {"device": "cuda"}, "sections": {}}
    assert markdown(made).startswith("## `python -m benchmarks.gpu`: cuda")


# ---------------------------------------------------------------------- parity


def steps(*words: str) -> list[dict[str, Any]]:
    """ "a!8" is a skipped step with the weights a and the scale 8."""
    made = []
    for word in words:
        weights, scale = word[0], float(word.strip("abcdef!"))
        made.append({"weights": weights, "scale": scale, "skipped": "!" in word, "loss": 1.0})
    return made


def test_an_overflow_that_costs_steps_and_nothing_else_is_right() -> None:
    assert parity.overflow(steps("a!16", "a!8", "b4", "c4"))["right"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("a16", "b16"), "the first step was not skipped"),
        (("a!16", "b!8", "c4"), "skipped step 2 changed the weights"),
        (("a!16", "b16"), "the scale did not fall"),
        (("a!16", "a!8"), "every step was skipped"),
        (("a!16", "a8", "b8"), "step 2 did not change the weights"),
    ],
)
def test_an_overflow_that_costs_more_is_wrong(words: tuple[str, ...], why: str) -> None:
    row = parity.overflow(steps(*words))
    assert not row["right"] and why in row["why"]


def test_losses_that_drift_or_are_no_numbers_are_wrong() -> None:
    one = [{"loss": 2.0}, {"loss": 1.0}]
    assert parity.close("x", [{"loss": 2.0}, {"loss": 1.01}], one, 2e-2)["right"]
    assert not parity.close("x", [{"loss": 2.0}, {"loss": 1.03}], one, 2e-2)["right"]
    assert not parity.close("x", [{"loss": float("nan")}, {"loss": 1.0}], one, 2e-2)["right"]


def test_a_resume_is_compared_with_the_steps_that_it_repeats() -> None:
    reference = steps("a1", "b1", "c1", "d1")
    assert parity.exact("resumed", steps("c1", "d1"), reference, reference)["right"]
    assert not parity.exact("resumed", steps("c1", "e1"), reference, reference)["right"]
    other = steps("a1", "b1", "c1", "e1")
    assert not parity.exact("again", other, reference, other)["right"]


def test_where_no_run_repeats_itself_a_resume_is_held_to_that_difference() -> None:
    reference, again = steps("a1", "b1"), steps("a1", "c1")
    again[-1]["loss"] = 1.01
    near, far = steps("d1"), steps("d1")
    near[-1]["loss"], far[-1]["loss"] = 0.99, 1.05
    row = parity.exact("resumed", near, reference, again)
    assert row["right"] and row["why"] == "the same training twice differs too"
    assert not parity.exact("resumed", far, reference, again)["right"]
