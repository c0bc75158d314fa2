"""Stages of a pipeline that waited to their limit, by the program of the log where it is on this
machine.
"""

from __future__ import annotations

from pathlib import Path

from hangdoctor.model.diagnosis import Diagnosis
from tests.support.read_logs import diagnosed

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LIMIT = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for {} operation to complete"
PROGRAM = """\
class Stage:
    def forward(self, plan):
        for m in range(plan.rounds):
            dist.recv(x, src=self.rank - 1)
            dist.send(self.net(x), dst=self.rank + 1)

    def backward(self, kept):
        for x, y in kept:
            dist.recv(g, src=self.rank + 1)
            dist.send(x.grad, dst=self.rank - 1)

    def step(self, plan):
        kept = self.forward(plan)
        self.backward(kept)
"""
LINES = PROGRAM.splitlines()
FORWARD, BACKWARD = ("forward", 13), ("backward", 14)


def waited(file: Path, rank: int, phase: tuple[str, int], line: int) -> str:
    name, called = phase
    op = "recv" if "recv" in LINES[line - 1] else "send"
    lines = (
        "Traceback (most recent call last):",
        f'  File "{file}", line {called}, in step',
        f"    {LINES[called - 1].strip()}",
        f'  File "{file}", line {line}, in {name}',
        f"    {LINES[line - 1].strip()}",
        f'  File "{C10D}", line 2812, in {op}',
        LIMIT.format(op),
    )
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def told(tmp_path: Path, written: str = PROGRAM) -> Diagnosis:
    """The second of four stages has gone on to its backwards; the first and third are in their
    forwards.
    """
    file = tmp_path / "pipe.py"
    file.write_text(written)
    waits = (
        waited(file, 0, FORWARD, 5),
        waited(file, 1, BACKWARD, 9),
        waited(file, 2, FORWARD, 4),
        waited(file, 3, FORWARD, 4),
    )
    return diagnosed(tmp_path, "step 8\n" + "".join(waits))


def test_who_is_in_another_phase_than_the_stages_on_both_sides_is_named(tmp_path: Path) -> None:
    [cause] = told(tmp_path).causes
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [1]), cause
    assert "most likely rank 1 made more or fewer rounds" in cause.summary


def test_without_the_program_or_by_another_version_of_it_both_are(tmp_path: Path) -> None:
    [cause] = told(tmp_path, "# it was moved\n" + PROGRAM).causes
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [1, 2]), cause
