"""Under which condition on the rank alone a program runs a line."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from hangdoctor.readers.pyspy_frames import parse_json
from hangdoctor.readers.rank_conditions import condition

PROGRAM = textwrap.dedent(
    """
    def train(net, rank):
        for step in range(100):
            loss(net)  # plain
            if step % 10 == 0 and rank == 0:  # now and then
                with timer():
                    report(net)  # one
            if rank == 0:
                save(net)  # other branch
            else:
                wait()
            if (not rank):
                # the first
                show(net)  # first
            if step > 3:
                check(net)  # later

    class Log:
        def norm(self, net):
            if dist.get_rank() != 0:
                return
            if big(net):
                whole(net)  # left

        def last(self):
            if trainer.is_global_zero:
                put()  # zero
            put()  # behind
    """
)
LINES = PROGRAM.splitlines()


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("plain", ""),
        ("one", "step % 10 == 0 and rank == 0"),
        ("other branch", ""),
        ("first", "not rank"),
        ("later", ""),
        ("left", "not (dist.get_rank() != 0)"),
        ("zero", "trainer.is_global_zero"),
        ("behind", ""),
    ],
)
def test_the_condition_on_the_rank_around_a_line(mark: str, expected: str) -> None:
    number = next(n for n, line in enumerate(LINES, 1) if line.endswith(f"# {mark}"))
    assert condition(LINES, number) == expected


def test_a_line_that_is_not_there_has_none() -> None:
    assert condition(LINES, 0) == condition(LINES, len(LINES) + 1) == ""


def test_the_frame_of_a_stack_has_it(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    places = [
        (mark, number)
        for number, line in enumerate(LINES, 1)
        for mark in ("one", "plain")
        if line.endswith(f"# {mark}")
    ]
    frames = [{"name": "train", "filename": str(program), "line": number} for _, number in places]
    [thread] = parse_json(json.dumps([{"thread_id": 1, "frames": frames}]).encode())
    found = {mark: frame.only for (mark, _), frame in zip(places, thread.frames, strict=True)}
    assert found == {"plain": "", "one": "step % 10 == 0 and rank == 0"}
