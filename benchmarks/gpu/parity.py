"""Are the fast ways right: the same losses, an overflow that costs one step, a resume bit by bit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import trainer_jobs
from .options import Options
from .worker import JobFailed

Steps = list[dict[str, Any]]

# Largest difference of a loss from the reference's, over all steps.
LIMITS = {"bf16": 2e-2, "fp32": 1e-4}
_MODEL = (
    "--model.layers 4 --model.hidden_size 512 --model.heads 8 --model.seq_length 512 "
    "--model.position rope --train.micro_batch 4 --train.global_batch 8 --optimizer.lr 3e-4"
)
_SMALL = (
    "--model.layers 2 --model.hidden_size 32 --model.heads 2 --model.seq_length 16 "
    "--model.position rope --train.micro_batch 2 --train.global_batch 4 --optimizer.lr 3e-3"
)
_FP16 = (
    "--train.precision fp16 --train.initial_loss_scale_power 32 --train.loss_scale_hysteresis 1 "
    "--kernels torch"
)
_ON_GPU = {
    "torch": "--kernels torch",
    "triton": "--kernels triton",
    "compile": "--kernels torch --compile inductor",
    "both": "--kernels triton --compile inductor",
}
_ON_CPU = {"torch": "--kernels torch"}


def units(options: Options) -> list[str]:
    """One process for all: it starts once."""
    return ["losses"]


def measure(unit: str, options: Options) -> Iterator[dict[str, Any]]:
    """A row for each comparison, as soon as both of its sides are there."""
    with tempfile.TemporaryDirectory(prefix="hangdoctor-gpu-") as name:
        folder = Path(name)
        seen: dict[str, dict[str, Any]] = {}
        plan = planned(folder, trainer_jobs.prepare(folder, options), options)
        try:
            for line in trainer_jobs.train(plan, folder, options, exact=True):
                seen[line["name"]] = line
                yield from judged(line["name"], seen, options)
        except JobFailed as error:
            for what in (training for training, _ in plan if training not in seen):
                seen[what] = {"name": what, "failed": str(error)}
                yield from judged(what, seen, options)
        if not options.on_gpu:
            yield _without("overflow", "fp16 needs a GPU")


def planned(folder: Path, data: list[str], options: Options) -> list[tuple[str, list[str]]]:
    """(name, flags) of each training, in an order in which the first ones say most."""
    steps = 6 if options.smoke else 50
    base = [*data, *(_SMALL if options.smoke else _MODEL).split()]
    base += ["--train.iterations", str(steps)]
    precise = ["--train.precision", "bf16" if options.on_gpu else "fp32"]
    kept = ["--checkpoint.dir", str(folder / "kept"), "--checkpoint.interval", str(steps // 2)]
    half = ["--checkpoint.load", str(folder / "kept" / f"global_step{steps // 2}")]
    plain = ["--kernels", "reference"]
    core = ["--model.attention", "core"]  # the fused ones add up in another order each time
    made = [("reference", [*base, *precise, *plain, *core, *kept])]
    made.append(("again", [*base, *precise, *plain, *core]))
    made.append(("resumed", [*base, *precise, *plain, *core, *half]))
    ways = _ON_GPU if options.on_gpu else _ON_CPU
    made += [(way, [*base, *precise, *flags.split()]) for way, flags in ways.items()]
    if options.on_gpu:
        made.insert(3, ("overflow", [*base, *_FP16.split()]))  # before compiling, which takes long
    return made


def judged(name: str, seen: dict[str, Any], options: Options) -> Iterator[dict[str, Any]]:
    """The row that this training completes."""
    line, reference = seen[name], seen.get("reference", {})
    if "failed" in line:
        yield _without(name, line["failed"])
    elif name == "overflow":
        yield overflow(line["steps"])
    elif name == "reference":
        losses = [step["loss"] for step in line["steps"]]
        yield {"check": "the loss falls", "value": losses[-1] - losses[0], "right": falls(losses)}
    elif "failed" in reference or not reference:
        yield _without(name, "the reference is missing")
    elif name in ("resumed", "again"):
        again = seen.get("again", {}).get("steps", reference["steps"])
        yield exact(name, line["steps"], reference["steps"], again)
    else:
        limit = LIMITS["bf16" if options.on_gpu else "fp32"]
        yield close(name, line["steps"], reference["steps"], limit)


def _without(name: str, why: str) -> dict[str, Any]:
    return {"check": name, "right": None, "why": why}


def falls(losses: list[float]) -> bool:
    """Whether it trains at all: parity of what stays the same says nothing."""
    return losses[-1] < losses[0]


def close(name: str, steps: Steps, reference: Steps, limit: float) -> dict[str, Any]:
    """Losses of a flavour beside the reference's."""
    worst = _apart(steps, reference)
    return {
        "check": f"{name}: losses of {len(steps)} steps",
        "value": worst,
        "limit": limit,
        "right": worst <= limit,
    }


def exact(name: str, steps: Steps, reference: Steps, again: Steps) -> dict[str, Any]:
    """The last steps of two runs, bit by bit: losses and weights.

    Where the same training twice (`again`) is not the same here either, a resume cannot be: it has
    to be as near as that.
    """
    whole, other = reference[-len(steps) :], again[-len(steps) :]
    apart, noise = _apart(steps, whole), _apart(other, whole)
    same = _same(steps, whole)
    row = {"value": apart, "limit": 0.0, "right": same}
    if name == "again":
        return {"check": "the same training twice: bit by bit", **row}
    check = "resumed at half: bit by bit"
    if same or _same(other, whole):
        return {"check": check, **row}
    why = "the same training twice differs too"
    return {
        "check": check,
        "value": apart,
        "limit": 2 * noise,
        "right": apart <= 2 * noise,
        "why": why,
    }


def _apart(one: Steps, other: Steps) -> float:
    differences = [abs(a["loss"] - b["loss"]) for a, b in zip(one, other, strict=True)]
    return float(max(differences, key=lambda d: (d != d, d)))


def _same(one: Steps, other: Steps) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a["loss"] == b["loss"] and a["weights"] == b["weights"] for a, b in pairs)


def overflow(steps: Steps) -> dict[str, Any]:
    """A loss scale that no gradient fits: steps are skipped with the weights unchanged, the scale
    falls, and then it trains.
    """
    skipped = [place for place, step in enumerate(steps) if step["skipped"]]
    wrong = []
    if not skipped or skipped[0] != 0:
        wrong.append("the first step was not skipped")
    for place in skipped[1:]:
        if steps[place]["weights"] != steps[place - 1]["weights"]:
            wrong.append(f"skipped step {place + 1} changed the weights")
    if skipped and not steps[-1]["scale"] < steps[0]["scale"]:
        wrong.append("the scale did not fall")
    taken = [place for place in range(1, len(steps)) if place not in skipped]
    if not taken:
        wrong.append("every step was skipped")
    for place in taken:
        if steps[place]["weights"] == steps[place - 1]["weights"]:
            wrong.append(f"step {place + 1} did not change the weights")
    return {
        "check": "fp16, forced overflow",
        "value": len(skipped),
        "right": not wrong,
        "why": "; ".join(wrong) or f"{len(skipped)} steps skipped, then trained",
    }
