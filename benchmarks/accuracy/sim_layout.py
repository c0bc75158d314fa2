"""Layouts of simulated jobs in any order of axes, as frameworks number their ranks.

Megatron's default puts pipeline stages outermost, picotron data parallelism; `--use-tp-pp-dp-mapping`, DeviceMesh and
hybrid sharding have others. Context parallel ranks share a sample, expert parallel groups divide a data
parallel one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from hangdoctor.model.layout import Layout

Names = Literal["megatron", "mesh", "none"]
Schedule = Literal["1f1b", "gpipe", "interleaved", "zb-h1"]
SIZES = ("tp", "cp", "dp", "pp")


@dataclass(frozen=True)
class Mesh:
    """Sizes of the axes and how ranks are numbered over them.

    `order`: of tp, cp, dp and pp, innermost first. `ep` divides dp: experts are spread over so many
    neighbouring data parallel ranks. `shard` divides dp: parameters are sharded over so many of them
    and replicated over the rest. `transfers`: the group that sends and receives are made on.
    """

    order: tuple[str, ...] = ("tp", "cp", "dp", "pp")
    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    shard: int = 0
    names: Names = "megatron"
    schedule: Schedule = "1f1b"
    transfers: Literal["pp", "world"] = "pp"

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes that have groups, the world first."""
        found = ["world"]
        found += [a for a in ("dp", "pp", "tp", "cp") if getattr(self, a) > 1]
        found += ["ep"] if self.ep > 1 else []
        found += ["shard", "replicate"] if 1 < self.shard < self.dp else []
        return tuple(found)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Coordinates of a rank on tp, cp, dp and pp."""
        at = {}
        for axis in self.order:
            rank, at[axis] = divmod(rank, getattr(self, axis))
        return at

    def rank(self, at: dict[str, int]) -> int:
        """The rank at these coordinates."""
        found = 0
        for axis in reversed(self.order):
            found = found * getattr(self, axis) + at[axis]
        return found

    def groups(self, axis: str) -> list[list[int]]:
        """All groups along one axis; those of `ep`, `shard` and `replicate` lie within dp."""
        if axis == "world":
            return [list(range(self.world_size))]
        if axis in SIZES:
            return self._along(axis)
        width = self.ep if axis == "ep" else self.shard
        parts = []
        for ranks in self._along("dp"):
            blocks = [ranks[i : i + width] for i in range(0, len(ranks), width)]
            if axis == "replicate":
                parts += [list(one) for one in zip(*blocks, strict=True)]
            else:
                parts += blocks
        return parts

    def _along(self, axis: str) -> list[list[int]]:
        others = [a for a in SIZES if a != axis]
        found = []
        for at in product(*(range(getattr(self, a)) for a in others)):
            where = dict(zip(others, at, strict=True))
            found.append([self.rank({**where, axis: i}) for i in range(getattr(self, axis))])
        return found

    def __str__(self) -> str:
        sizes = "".join(f"{a}{getattr(self, a)}" for a in self.order if getattr(self, a) > 1)
        more = f"ep{self.ep}" if self.ep > 1 else ""
        more += f"shard{self.shard}" if self.shard else ""
        return f"{sizes}{more}-{self.names}-{self.schedule}-{self.transfers}"


def axes_of(layout: Layout | Mesh) -> tuple[str, ...]:
    """Axes that have groups, in the order in which the job makes them."""
    return layout.axes if isinstance(layout, Mesh) else ("world", "dp", "pp", "tp")


def label(layout: Layout | Mesh) -> str:
    """The layout in a case's name."""
    if isinstance(layout, Mesh):
        return str(layout)
    return f"tp{layout.tp}pp{layout.pp}dp{layout.dp}"


def draw_mesh(seed: int, most: int = 64) -> Mesh:
    """A random layout of 8 to `most` ranks; the same for the same seed."""
    rng = random.Random(f"mesh/{seed}")
    while True:
        order = list(SIZES)
        rng.shuffle(order)
        dp = rng.choice([1, 2, 2, 4, 4, 8])
        mesh = Mesh(
            order=tuple(order),
            tp=rng.choice([1, 1, 2, 2, 4, 8]),
            cp=rng.choice([1, 1, 1, 2, 4]),
            dp=dp,
            pp=rng.choice([1, 2, 2, 3, 4, 8]),
            ep=rng.choice([e for e in (1, 1, 2, 4) if dp % e == 0]),
            shard=rng.choice([s for s in (0, 0, 2, 4) if s < dp and (not s or dp % s == 0)]),
            names=rng.choice(["megatron", "mesh", "none", "none"]),
            schedule=rng.choice(["1f1b", "1f1b", "gpipe"]),
            transfers=rng.choice(["pp", "pp", "world"]),
        )
        if 8 <= mesh.world_size <= most:
            return replace(mesh, schedule=_draw_schedule(seed, mesh))


def _draw_schedule(seed: int, mesh: Mesh) -> Schedule:
    """A third of the pipelines in a later schedule. With two stages the next one is the previous
    one, so that interleaving would need a tag for each direction.
    """
    rng = random.Random(f"schedule/{seed}")
    later: list[Schedule] = ["interleaved", "zb-h1"] if mesh.pp > 2 else ["zb-h1"]
    if mesh.pp > 1 and rng.random() < 1 / 3:
        return rng.choice(later)
    return mesh.schedule
