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
from collections.abc import Callable
from dataclasses import dataclass

from hangdoctor.model.layout import Layout

from .sim_layout import Mesh, Schedule, axes_of

HIDDEN, TOKENS = 1024, 2048
CHUNKS = 2  # model chunks of a stage in the interleaved schedule


@dataclass(frozen=True, slots=True)
class Step:
    """One call of one rank.

    `wait` is a host-side wait for asynchronous steps and leaves no record.
    """

    op: str  # torch.distributed's name, or "wait"
    axis: str
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


def _block(axes: tuple[str, ...], direction: str, line: int) -> list[Step]:
    """The collectives of one micro-batch in one direction: attention, then the experts or the MLP."""
    shape, whole = (TOKENS, HIDDEN), (2 * TOKENS, HIDDEN)
    reduce = Step("all_reduce", "tp", shape, shape, reduce_op="sum")
    gather = Step("all_gather_into_tensor", "cp", shape, whole)
    exchange = Step("all_to_all_single", "ep", shape, shape)
    found = []
    if "cp" in axes:
        found.append(dataclasses.replace(gather, site=f"{direction} (context.py:{line})"))
    if "tp" in axes:
        found.append(dataclasses.replace(reduce, site=f"{direction} (attention.py:{line})"))
    if "ep" in axes:
        found += [
            dataclasses.replace(exchange, site=f"{direction} (experts.py:{line + way})")
            for way in (0, 4)
        ]
    if "tp" in axes:
        found.append(dataclasses.replace(reduce, site=f"{direction} (mlp.py:{line})"))
    return found


def _p2p(op: str, hop: int, axis: str) -> Step:
    what = "activation" if (op == "send") == (hop > 0) else "gradient"
    shape = (TOKENS, HIDDEN)
    return Step(
        op,
        axis,
        shape,
        shape,
        hop=hop,
        site=f"{op}_{what} (schedule.py:{(60 if op == 'send' else 80) + hop})",
    )


def _pair(stage: int, first: Step, second: Step) -> list[Step]:
    """A send and a recv with one neighbour, without a deadlock: even stages send first."""
    sends, receives = (first, second) if first.op == "send" else (second, first)
    return [sends, receives] if stage % 2 == 0 else [receives, sends]


class _Stage:
    """What one pipeline stage does with a micro-batch, and what it exchanges with its neighbours."""

    def __init__(self, layout: Layout | Mesh, stage: int) -> None:
        axes = axes_of(layout)
        transfers = layout.transfers if isinstance(layout, Mesh) else "pp"
        first, last = stage == 0, stage == layout.pp - 1
        self.number, self.first, self.last = stage, first, last
        self.stages, self.after = layout.pp, layout.pp - stage - 1  # stages behind it
        self.transfers = transfers
        self.forward = _block(axes, "forward", 31)
        self.backward = _block(axes, "backward", 57)
        self.receive_f = [] if first else [_p2p("recv", -1, transfers)]
        self.send_f = [] if last else [_p2p("send", +1, transfers)]
        self.receive_b = [] if last else [_p2p("recv", +1, transfers)]
        self.send_b = [] if first else [_p2p("send", -1, transfers)]

    def transfer(self, op: str, hop: int) -> Step:
        """A send or recv with the next stage (+1) or the previous one (-1)."""
        return _p2p(op, hop, self.transfers)

    def _chunk(self, k: int) -> int:
        """The model chunk of the k-th forward; of the k-th backward it is counted from behind."""
        return k % (self.stages * CHUNKS) // self.stages

    def receives_forward(self, k: int) -> bool:
        """Whether the input of the k-th forward comes from another stage."""
        return not (self.first and self._chunk(k) == 0)

    def sends_forward(self, k: int) -> bool:
        """Whether the output of the k-th forward goes to another stage."""
        return not (self.last and self._chunk(k) == CHUNKS - 1)

    def receives_backward(self, k: int) -> bool:
        """Whether the gradient of the k-th backward comes from another stage."""
        return not (self.last and self._chunk(k) == 0)

    def sends_backward(self, k: int) -> bool:
        """Whether the gradient of the k-th backward goes to another stage."""
        return not (self.first and self._chunk(k) == CHUNKS - 1)

    def exchange(self, **wanted: bool) -> list[Step]:
        """What is sent and received between two chunks of work; odd stages receive first."""
        ways = {"next": 1, "prev": -1}
        order = ("send_next", "recv_prev", "send_prev", "recv_next")
        if self.number % 2:
            order = ("recv_prev", "send_next", "recv_next", "send_prev")
        names = [name.split("_") for name in order if wanted.get(name)]
        return [self.transfer(op, ways[way]) for op, way in names]


def _one_f_one_b(at: _Stage, micro_batches: int) -> list[Step]:
    """Forwards and backwards of one iteration in 1F1B order."""
    warm_up = min(at.after, micro_batches)
    steady = micro_batches - warm_up
    out: list[Step] = []
    for _ in range(warm_up):
        out += at.receive_f + at.forward + at.send_f
    if steady:
        out += at.receive_f
    for k in range(steady):
        out += at.forward
        out += [] if at.last else _pair(at.number, at.send_f[0], at.receive_b[0])
        out += at.backward
        if not at.first:
            more = k + 1 < steady
            out += _pair(at.number, at.send_b[0], at.receive_f[0]) if more else at.send_b
    for _ in range(warm_up):
        out += at.receive_b + at.backward + at.send_b
    return out


def _gpipe(at: _Stage, micro_batches: int) -> list[Step]:
    """All forwards, then all backwards (Huang et al. 2019, https://arxiv.org/abs/1811.06965)."""
    forwards = (at.receive_f + at.forward + at.send_f) * micro_batches
    return forwards + (at.receive_b + at.backward + at.send_b) * micro_batches


def _interleaved(at: _Stage, micro_batches: int) -> list[Step]:
    """1F1B with CHUNKS model chunks a stage, after the last stage comes the first with its next
    chunk (Narayanan et al. 2021, figure 4 below). Micro-batches are a multiple of the stages.
    """
    total = CHUNKS * micro_batches
    warm_up = min(total, 2 * at.after + (CHUNKS - 1) * at.stages)
    out = [] if at.first else [at.transfer("recv", -1)]
    for k in range(warm_up):
        out += at.forward
        out += at.exchange(
            send_next=at.sends_forward(k),
            recv_prev=k + 1 < total and at.receives_forward(k + 1),
            recv_next=k + 1 == warm_up and at.receives_backward(0),
        )
    for k in range(total - warm_up):
        forward = k + warm_up
        out += at.forward + at.backward
        out += at.exchange(
            send_next=at.sends_forward(forward),
            recv_prev=forward + 1 < total and at.receives_forward(forward + 1),
            send_prev=at.sends_backward(k),
            recv_next=k + 1 < total and at.receives_backward(k + 1),
        )
    for k in range(total - warm_up, total):
        out += at.backward
        out += at.exchange(
            send_prev=at.sends_backward(k),
            recv_next=k + 1 < total and at.receives_backward(k + 1),
        )
    return out


_ORDERS: dict[Schedule, Callable[[_Stage, int], list[Step]]] = {
    "1f1b": _one_f_one_b,
    "gpipe": _gpipe,
    "interleaved": _interleaved,
    # Qi et al. 2023 (https://arxiv.org/abs/2401.10241): what it puts later, the gradients of the
    # weights, is computing alone; only their reduction comes later (`iteration`).
    "zb-h1": _one_f_one_b,
}


def _schedule(layout: Layout | Mesh, stage: int, micro_batches: int) -> list[Step]:
    kind: Schedule = layout.schedule if isinstance(layout, Mesh) else "1f1b"
    if kind == "interleaved":
        micro_batches += -micro_batches % layout.pp
    return _ORDERS[kind](_Stage(layout, stage), micro_batches)


def _gradients(layout: Layout | Mesh, stage: int) -> tuple[Step, list[Step]]:
    """(the reduction of one bucket, what gathers the parameters after the step)."""
    full = (HIDDEN * HIDDEN * (2 if stage in (0, layout.pp - 1) else 1),)
    sharded = "shard" in axes_of(layout)
    axis = "shard" if sharded else "dp"
    width = layout.shard if sharded and isinstance(layout, Mesh) else layout.dp
    shard = (full[0] // width,)
    reduce = Step(
        "reduce_scatter_tensor",
        axis,
        full,
        shard,
        dtype="Float",
        reduce_op="sum",
        asynchronous=True,
    )
    gather = Step("all_gather_into_tensor", axis, shard, full)
    gathers = [
        dataclasses.replace(gather, site=f"gather_parameters (optimizer.py:{line})")
        for line in (160, 163)
    ]
    return reduce, gathers


def iteration(layout: Layout | Mesh, stage: int, micro_batches: int) -> list[Step]:
    """The steps of one iteration at one stage, not yet numbered."""
    axes = axes_of(layout)
    steps: list[Step] = []
    if "tp" in axes:
        batch = (8, TOKENS)
        site = "get_batch (data.py:44)"
        steps.append(Step("broadcast", "tp", batch, batch, dtype="Long", root=0, site=site))
    steps += _schedule(layout, stage, micro_batches)
    reduce, gathers = _gradients(layout, stage)
    if "dp" in axes:
        # The first bucket is ready before the last backward's all_reduces are: it overlaps with them.
        backwards = [i for i, s in enumerate(steps) if s.site.startswith("backward")]
        last_backward = max(backwards, default=len(steps))
        if isinstance(layout, Mesh) and layout.schedule == "zb-h1":
            last_backward = len(steps)  # gradients of the weights come after all others
        steps.insert(
            last_backward, dataclasses.replace(reduce, site="reduce_bucket (optimizer.py:101)")
        )
        steps.append(dataclasses.replace(reduce, site="reduce_bucket (optimizer.py:104)"))
        steps.append(Step("wait", reduce.axis))
    if "replicate" in axes:
        part = reduce.out_shape
        site = "reduce_replicas (optimizer.py:120)"
        steps.append(Step("all_reduce", "replicate", part, part, "Float", "sum", site=site))
    one = (1,)
    site = "clip_grad_norm (optimizer.py:140)"
    steps.append(Step("all_reduce", "world", one, one, "Float", "sum", site=site))
    steps += gathers if "dp" in axes else []
    loss = Step("all_reduce", "world", one, one, "Float", "avg", host_sync=True)
    steps.append(dataclasses.replace(loss, site="report_loss (training.py:88)"))
    return steps


def _lane(step: Step, stages: int) -> tuple[object, ...]:
    """What a step's sequence number counts within: of transfers those with one rank, whichever way
    round the stages it is reached.
    """
    return (step.axis, step.hop % stages, step.op) if step.p2p else (step.axis,)


def number(
    steps: list[Step],
    per_iteration: Counter[tuple[object, ...]],
    first_iteration: int,
    stages: int,
) -> list[Step]:
    """Number the steps as a rank that has already run `first_iteration` iterations."""
    count: Counter[tuple[object, ...]] = Counter(
        {lane: n * first_iteration for lane, n in per_iteration.items()}
    )
    out = []
    for step in steps:
        lane = _lane(step, stages)
        count[lane] += step.op != "wait"
        out.append(dataclasses.replace(step, seq=count[lane]))
    return out


class Programs:
    """The numbered program of each stage, and what one rank's becomes with a fault in it."""

    def __init__(
        self, layout: Layout | Mesh, micro_batches: int, iterations: int, first_iteration: int
    ) -> None:
        self.first_iteration = first_iteration
        self._stages = layout.pp
        self._once: list[Counter[tuple[object, ...]]] = []
        self.recorded_per_iteration: list[int] = []
        self.by_stage: list[list[Step]] = []
        for stage in range(layout.pp):
            once = iteration(layout, stage, micro_batches)
            self._once.append(Counter(_lane(s, layout.pp) for s in once if s.op != "wait"))
            self.recorded_per_iteration.append(sum(s.op != "wait" for s in once))
            many = [
                dataclasses.replace(s, iteration=first_iteration + n)
                for n in range(iterations)
                for s in once
            ]
            self.by_stage.append(number(many, self._once[stage], first_iteration, layout.pp))

    def renumber(self, stage: int, steps: list[Step]) -> list[Step]:
        return number(steps, self._once[stage], self.first_iteration, self._stages)

    def earlier(self, stage: int) -> int:
        """Operations that a rank recorded before the simulated ones."""
        return self.first_iteration * self.recorded_per_iteration[stage]

    def transfers_before(self, stage: int) -> int:
        """Sends and receives before the simulated ones."""
        once = self._once[stage]
        return sum(n for lane, n in once.items() if len(lane) > 1) * self.first_iteration

    def earlier_on(self, stage: int, axis: str) -> tuple[int, int]:
        """(collectives, sends and recvs) of one axis before the simulated ones."""
        once = self._once[stage]
        p2p = sum(n for lane, n in once.items() if lane[0] == axis and len(lane) > 1)
        return once[(axis,)] * self.first_iteration, p2p * self.first_iteration
