"""The program that every simulated rank runs: tensor, pipeline and data parallel training with
1F1B.

One iteration of a rank at pipeline stage s, with M micro-batches, in the order of
"PipeDream-Flush" (1F1B, Narayanan et al. 2021, https://arxiv.org/abs/2104.04473, figure 4):
warm-up forwards, pairs of one forward and one backward, cool-down backwards; two tensor parallel
all_reduces in each direction, a reduce_scatter of gradients that overlaps with the last backward, a
world all_reduce for the gradient norm, an all_gather of parameters, a world all_reduce for the loss
that the host reads. Neighbouring stages that both send take turns: the even stage sends first.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from hangdoctor.model.layout import Layout

Axis = Literal["world", "dp", "pp", "tp"]
AXES: tuple[Axis, ...] = (
    "world",
    "dp",
    "pp",
    "tp",
)  # also the order in which a job creates its groups

HIDDEN, TOKENS = 1024, 2048


@dataclass(frozen=True, slots=True)
class Step:
    """One call of one rank.

    `wait` is a host-side wait for asynchronous steps and leaves no record.
    """

    op: str  # torch.distributed's name, or "wait"
    axis: Axis
    shape: tuple[int, ...] = ()
    out_shape: tuple[int, ...] = ()
    dtype: str = "BFloat16"
    reduce_op: str = ""
    root: int = -1  # index in the group
    hop: int = 0  # +1: next pipeline stage, -1: previous one; for send and recv
    asynchronous: bool = False
    host_sync: bool = False  # the host reads the result before it goes on
    site: str = ""
    work: float = 0.004  # seconds of computing before it
    iteration: int = 0
    seq: int = 0  # of collectives per group, of send and recv per (peer, direction): 1, 2, ...

    @property
    def p2p(self) -> bool:
        return self.op in ("send", "recv")

    def signature(self) -> tuple[object, ...]:
        """What all members must agree on."""
        return (self.op, self.shape, self.out_shape, self.dtype, self.reduce_op, self.root)

    def message(self) -> tuple[object, ...]:
        """What sender and receiver must agree on."""
        return (self.shape, self.dtype)


def _tensor(direction: str, line: int) -> list[Step]:
    shape = (TOKENS, HIDDEN)
    return [
        Step(
            "all_reduce",
            "tp",
            shape,
            shape,
            reduce_op="sum",
            site=f"{direction} ({block}.py:{line})",
        )
        for block in ("attention", "mlp")
    ]


def _p2p(op: str, hop: int) -> Step:
    what = "activation" if (op == "send") == (hop > 0) else "gradient"
    shape = (TOKENS, HIDDEN)
    return Step(
        op,
        "pp",
        shape,
        shape,
        hop=hop,
        site=f"{op}_{what} (schedule.py:{(60 if op == 'send' else 80) + hop})",
    )


def _pair(stage: int, first: Step, second: Step) -> list[Step]:
    """A send and a recv with one neighbour, without a deadlock: even stages send first."""
    sends, receives = (first, second) if first.op == "send" else (second, first)
    return [sends, receives] if stage % 2 == 0 else [receives, sends]


def _schedule(stage: int, stages: int, micro_batches: int) -> list[Step]:
    """Forwards and backwards of one iteration in 1F1B order."""
    first, last = stage == 0, stage == stages - 1
    forward, backward = _tensor("forward", 31), _tensor("backward", 57)
    receive_f = [] if first else [_p2p("recv", -1)]
    send_f = [] if last else [_p2p("send", +1)]
    receive_b = [] if last else [_p2p("recv", +1)]
    send_b = [] if first else [_p2p("send", -1)]
    warm_up = min(stages - stage - 1, micro_batches)
    steady = micro_batches - warm_up
    out: list[Step] = []
    for _ in range(warm_up):
        out += receive_f + forward + send_f
    if steady:
        out += receive_f
    for k in range(steady):
        out += forward
        if not last:
            out += _pair(stage, send_f[0], receive_b[0])
        out += backward
        more = k + 1 < steady
        if not first:
            out += _pair(stage, send_b[0], receive_f[0]) if more else send_b
    for _ in range(warm_up):
        out += receive_b + backward + send_b
    return out


def iteration(layout: Layout, stage: int, micro_batches: int) -> list[Step]:
    """The steps of one iteration at one stage, not yet numbered."""
    batch = (8, TOKENS)
    steps = [
        Step("broadcast", "tp", batch, batch, dtype="Long", root=0, site="get_batch (data.py:44)")
    ]
    steps += _schedule(stage, layout.pp, micro_batches)
    full = (HIDDEN * HIDDEN * (2 if stage in (0, layout.pp - 1) else 1),)
    shard = (full[0] // layout.dp,)
    reduce = Step(
        "reduce_scatter_tensor",
        "dp",
        full,
        shard,
        dtype="Float",
        reduce_op="sum",
        asynchronous=True,
    )
    # The first bucket is ready before the last backward's all_reduces are: it overlaps with them.
    last_backward = max(i for i, s in enumerate(steps) if s.site.startswith("backward"))
    steps.insert(
        last_backward, dataclasses.replace(reduce, site="reduce_bucket (optimizer.py:101)")
    )
    steps.append(dataclasses.replace(reduce, site="reduce_bucket (optimizer.py:104)"))
    steps.append(Step("wait", "dp"))
    one = (1,)
    steps.append(
        Step(
            "all_reduce",
            "world",
            one,
            one,
            "Float",
            "sum",
            site="clip_grad_norm (optimizer.py:140)",
        )
    )
    gather = Step(
        "all_gather_into_tensor", "dp", shard, full, site="gather_parameters (optimizer.py:160)"
    )
    steps += [gather, dataclasses.replace(gather, site="gather_parameters (optimizer.py:163)")]
    steps.append(
        Step(
            "all_reduce",
            "world",
            one,
            one,
            "Float",
            "avg",
            host_sync=True,
            site="report_loss (training.py:88)",
        )
    )
    return steps


def _lane(step: Step) -> tuple[object, ...]:
    """What a step's sequence number counts within."""
    return (step.axis, step.hop, step.op) if step.p2p else (step.axis,)


def number(
    steps: list[Step], per_iteration: Counter[tuple[object, ...]], first_iteration: int
) -> list[Step]:
    """Number the steps as a rank that has already run `first_iteration` iterations."""
    count: Counter[tuple[object, ...]] = Counter(
        {lane: n * first_iteration for lane, n in per_iteration.items()}
    )
    out = []
    for step in steps:
        lane = _lane(step)
        count[lane] += step.op != "wait"
        out.append(dataclasses.replace(step, seq=count[lane]))
    return out


class Programs:
    """The numbered program of each stage, and what one rank's becomes with a fault in it."""

    def __init__(
        self, layout: Layout, micro_batches: int, iterations: int, first_iteration: int
    ) -> None:
        self.first_iteration = first_iteration
        self._once: list[Counter[tuple[object, ...]]] = []
        self.recorded_per_iteration: list[int] = []
        self.by_stage: list[list[Step]] = []
        for stage in range(layout.pp):
            once = iteration(layout, stage, micro_batches)
            self._once.append(Counter(_lane(s) for s in once if s.op != "wait"))
            self.recorded_per_iteration.append(sum(s.op != "wait" for s in once))
            many = [
                dataclasses.replace(s, iteration=first_iteration + n)
                for n in range(iterations)
                for s in once
            ]
            self.by_stage.append(number(many, self._once[stage], first_iteration))

    def renumber(self, stage: int, steps: list[Step]) -> list[Step]:
        return number(steps, self._once[stage], self.first_iteration)

    def earlier(self, stage: int) -> int:
        """Operations that a rank recorded before the simulated ones."""
        return self.first_iteration * self.recorded_per_iteration[stage]

    def earlier_on(self, stage: int, axis: Axis) -> tuple[int, int]:
        """(collectives, sends and recvs) of one axis before the simulated ones."""
        once = self._once[stage]
        p2p = sum(n for lane, n in once.items() if lane[0] == axis and len(lane) > 1)
        return once[(axis,)] * self.first_iteration, p2p * self.first_iteration
