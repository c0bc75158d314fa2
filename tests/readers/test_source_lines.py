"""The call that a frame makes, where a formatter has broken it over several lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.readers.source_lines import Sources

PROGRAM = """\
dist.all_gather(
    [torch.empty_like(shard) for _ in range(DP)], shard, group=self.groups.dp
)
work.wait()
dist.broadcast(loss,  # (
               src=names[")"],
               group=pp)
value = (
    first
    + second
)
print("(")
never(
"""


@pytest.mark.parametrize(
    ("line", "call"),
    [
        (
            1,
            "dist.all_gather([torch.empty_like(shard) for _ in range(DP)], shard, group=self.groups.dp)",
        ),
        (4, "work.wait()"),
        (5, 'dist.broadcast(loss, src=names[")"], group=pp)'),
        (8, "value = (first + second)"),
        (12, 'print("(")'),
        (13, "never("),
        (0, ""),
        (99, ""),
    ],
)
def test_the_call_as_one_line(tmp_path: Path, line: int, call: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM + "\n" * 3)
    assert Sources().call(str(path), line) == call


def test_an_endless_bracket_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("call(\n" + "    1,\n" * 500 + ")\n")
    assert Sources().call(str(path), 1) == "call("
