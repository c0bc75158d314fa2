"""The bundle of a job of thousands of ranks keeps the nodes' answers as they came, and replays the
same.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.collector_scale.__main__ import RANKS, capture
from hangdoctor.collector import capture_reason
from hangdoctor.collector import capture_round as rounds
from hangdoctor.collector.instructions import Node
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import BadInput
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.layout import Layout
from hangdoctor.storage import bundle
from hangdoctor.transport import messages
from hangdoctor.transport.capture_codec import pack_capture

NODES = 3


def joined(large: int, monkeypatch: pytest.MonkeyPatch) -> JobCapture:
    """Of four nodes: one is silent, and one has lost a rank since; answers come out of order."""
    monkeypatch.setattr(rounds, "LARGE", large)
    layout = Layout(dp=NODES + 1, tp=RANKS)
    nodes = {}
    for number in range(NODES + 1):
        ranks = dict.fromkeys(range(number * RANKS, (number + 1) * RANKS), False)
        nodes[f"n{number}"] = Node(
            name=f"n{number}",
            peer=b"p",
            agent="a",
            heard=0.0,
            job="slurm:1.0",
            world_size=layout.world_size,
            ranks=ranks,
        )
    nodes["n1"].ranks[500] = True
    found = rounds.Round("c", capture_reason.stall("a test"), 0.0, limit_s=10.0, settle_s=1.0)
    list(found.begin(nodes.values(), 0.0, 5.0, 80))
    for number in reversed(range(NODES)):
        assert (
            found.take(f"n{number}", messages.Captured("c", pack_capture(capture(number, layout))))
            == ""
        )
    return found.join(nodes.values(), 12.0, 1000.0)


def test_it_replays_as_it_was_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = joined(0, monkeypatch), joined(10**6, monkeypatch)
    assert large.packed and not small.packed
    for name, one in (("large", large), ("small", small)):
        bundle.save(tmp_path / name, one, diagnose(one), "", [])
    loaded = bundle.load(tmp_path / "large")
    assert msgspec.structs.replace(loaded, packed={}) == msgspec.structs.replace(large, packed={})
    assert any(r.gone and r.rank == 500 for r in loaded.ranks()) and loaded.silent
    verdict = [diagnose(one) for one in (loaded, bundle.load(tmp_path / "small"), small)]
    for one in verdict:
        one.took.diagnose_s = 0.0
    assert verdict[0] == verdict[1] == verdict[2] and verdict[0].causes
    sizes = [sum(p.stat().st_size for p in (tmp_path / n).iterdir()) for n in ("large", "small")]
    assert sizes[0] < sizes[1] / 2


def test_it_can_be_saved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = joined(0, monkeypatch)
    first = bundle.save(tmp_path / "a", large, diagnose(large), "", [])
    again = bundle.load(first)
    second = bundle.save(tmp_path / "b", again, diagnose(again), "", [])
    assert bundle.load(second) == again


def test_damage_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = joined(0, monkeypatch)
    large.packed["n0"] = large.packed["n0"][:-9]
    saved = bundle.save(tmp_path / "a", large, diagnose(large), "", [])
    with pytest.raises(BadInput, match=r"nodes\.bin"):
        bundle.load(saved)
