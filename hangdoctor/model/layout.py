"""How ranks map to data, pipeline and tensor parallel coordinates, and which groups that makes.

Megatron's default order: tensor parallel ranks are neighbours, then data, then pipeline
(https://github.com/NVIDIA/Megatron-LM, ``initialize_model_parallel``: order "tp-cp-ep-dp-pp").
DeepSpeed's ``PipeModelDataParallelTopology`` has axes ("pipe", "data", "model"): the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import msgspec

from ..text.ranges import number_in

AXES = ("pp", "dp", "tp")  # slowest first, as both frameworks number ranks


class Layout(msgspec.Struct, frozen=True):
    """Sizes of the three axes; rank = (pp * DP + dp) * TP + tp."""

    dp: int = 1
    pp: int = 1
    tp: int = 1

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.dp * self.pp * self.tp

    def coordinates(self, rank: int) -> dict[str, int]:
        """Coordinates of a rank: {"pp", "dp", "tp"}."""
        tp = rank % self.tp
        dp = rank // self.tp % self.dp
        return {"pp": rank // (self.tp * self.dp), "dp": dp, "tp": tp}

    def rank(self, pp: int, dp: int, tp: int) -> int:
        """The rank at these coordinates: Megatron's order, tensor slices innermost."""
        return (pp * self.dp + dp) * self.tp + tp

    def group(self, axis: str, rank: int) -> list[int]:
        """Ranks that differ from `rank` along `axis` only: its tp, dp or pp group; `world` is
        everyone.
        """
        if axis == "world":
            return list(range(self.world_size))
        at = self.coordinates(rank)
        size: int = getattr(self, axis)
        return [self.rank(**{**at, axis: i}) for i in range(size)]

    def groups(self, axis: str) -> list[list[int]]:
        """All groups along one axis."""
        others = [a for a in AXES if a != axis]
        found: list[list[int]] = []
        for at in product(*(range(getattr(self, a)) for a in others)):
            first = {axis: 0, **dict(zip(others, at, strict=True))}
            found.append(self.group(axis, self.rank(**first)))
        return found

    def same_role(self, rank: int) -> list[int]:
        """The ranks of the other replicas at the same pipeline stage and tensor slice."""
        return [r for r in self.group("dp", rank) if r != rank]


# Flags and variables by which trainings tell their layout: Megatron(-DeepSpeed), NeMo and this
# project's trainer on the command line; a few launch scripts in the environment.
_FLAGS = {
    "tp": (
        "tensor-model-parallel-size",
        "tensor_model_parallel_size",
        "tensor-parallel-size",
        "tensor_parallel_size",
        "parallel.tp",
        "tp-size",
        "tp_size",
        "tp",
    ),
    "pp": (
        "pipeline-model-parallel-size",
        "pipeline_model_parallel_size",
        "pipeline-parallel-size",
        "pipeline_parallel_size",
        "parallel.pp",
        "pp-size",
        "pp_size",
        "pp",
    ),
    "dp": ("data-parallel-size", "data_parallel_size", "parallel.dp", "dp-size", "dp_size", "dp"),
}
_VARIABLES = {
    "tp": ("HANGDOCTOR_TP", "TP_SIZE", "TENSOR_PARALLEL_SIZE", "TP"),
    "pp": ("HANGDOCTOR_PP", "PP_SIZE", "PIPELINE_PARALLEL_SIZE", "PP"),
}


def _flag(argv: Sequence[str], names: Sequence[str]) -> int | None:
    """The first positive number of a flag of these names, as ``--tp=2`` or ``--tp 2``."""
    following = [*argv[1:], ""]
    for word, after in zip(argv, following, strict=False):
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") or name not in names:
            continue
        number = number_in(value if equals else after)
        if number > 0:
            return number
    return None


def guess_layout(argv: Sequence[str], environ: Mapping[str, str], world_size: int) -> Layout | None:
    """Layout from a rank's command line or environment, or None if unknown or it does not divide."""
    sizes: dict[str, int] = {}
    for axis in ("tp", "pp"):
        size = _flag(argv, _FLAGS[axis])
        if size is None:
            told = (number_in(environ.get(v, "")) for v in _VARIABLES[axis])
            size = next((n for n in told if n >= 0), None)
        if size:
            sizes[axis] = size
    if not sizes or world_size <= 0:
        return None
    tp, pp = sizes.get("tp", 1), sizes.get("pp", 1)
    if world_size % (tp * pp):
        return None
    dp = world_size // (tp * pp)
    if _flag(argv, _FLAGS["dp"]) not in (None, dp):
        return None  # there is an axis more, or one by a name that is not known
    return Layout(dp=dp, pp=pp, tp=tp)
