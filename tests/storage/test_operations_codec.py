"""Packed operations come back to the last bit, and small."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import BadInput
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.operations import Group, Mark, Operation, RankOps
from hangdoctor.storage import bundle, operations_codec


def history(
    rank: int, rng: random.Random, exact: bool, count: int = 200, unit: float = 2.0**22
) -> RankOps:
    """A history with everything that an operation can hold."""
    ops = RankOps(
        rank,
        64,
        groups=[Group("aa", [0, 1, 2], "dp"), Group("bb")],
        iteration=7,
        phase="forward",
        notes=["torn"],
    )
    ops.marks = [
        Mark("phase", 1.5, text="forward"),
        Mark("iteration", 2.5, 3),
        Mark("phase", 2.5 if not exact else 0.1),
    ]
    at = 1_790_000_000.0 if not exact else 0.1
    for _ in range(count):
        at += rng.random()
        entered = at if exact else round(at * unit) / unit
        state = rng.choice(["done", "entered", "started"])
        left = 0.0 if state != "done" else entered + rng.choice([0.0, -0.25, 0.5])
        ops.operations.append(
            Operation(
                group=rng.choice(["aa", "bb", ""]),
                seq=rng.randrange(1 << 40),
                op=rng.choice(["send", "all_reduce"]),
                state=state,  # type: ignore[arg-type]
                reduce_op=rng.choice(["", "sum"]),
                root=rng.randrange(-1, 5),
                peer=rng.randrange(-1, 5),
                shapes="[4, 8]",
                dtype="float32",
                site="f (a.py:3)",
                thread=rng.randrange(3),
                entered_s=entered,
                left_s=left,
                asynchronous=rng.random() < 0.5,
                waited=rng.random() < 0.1,
                iteration=rng.randrange(-1, 9),
                failed=rng.random() < 0.1,
                detail=rng.choice(["", "key"]),
            )
        )
    return ops


@pytest.mark.parametrize("seed", range(8))
def test_what_is_unpacked_is_what_was_packed(seed: int) -> None:
    rng = random.Random(seed)
    wanted = {
        (n, before): history(n, rng, exact=n % 2 == 1) for n in range(4) for before in (False, True)
    }
    wanted[(9, False)] = RankOps(9)
    wanted[(10, False)] = history(10, rng, False, unit=1e6)
    assert operations_codec.unpack(operations_codec.pack(wanted.items())) == wanted


def test_a_bundle_gives_the_same_diagnosis_and_keeps_operations_out_of_its_json(
    tmp_path: Path,
) -> None:
    rng = random.Random(1)
    ranks = [
        RankCapture(
            pid=n,
            rank=n,
            world_size=3,
            ops=history(n, rng, False, 2000),
            ops_before=history(n, rng, True, 9),
        )
        for n in range(3)
    ]
    capture = JobCapture(
        "j", [NodeCapture("n1", ranks=ranks[:2]), NodeCapture("n2", ranks=ranks[2:])], world_size=3
    )
    told = diagnose(capture)
    folder = bundle.save(tmp_path / "b", capture, told, "", [])
    again = bundle.load(folder)
    assert again == capture and bundle.encode_diagnosis(diagnose(again)) == bundle.encode_diagnosis(
        told
    )
    assert "shapes" not in (folder / "capture.json").read_text()
    assert (folder / "operations.bin").stat().st_size < len(msgspec.json.encode(capture)) / 10
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["files"]["operations.bin"].startswith("sha256:")


def test_a_bundle_whose_operations_were_cut_or_taken_away_is_refused(tmp_path: Path) -> None:
    capture = JobCapture(
        "j",
        [
            NodeCapture(
                "n", ranks=[RankCapture(pid=1, rank=0, ops=history(0, random.Random(2), False))]
            )
        ],
    )
    folder = bundle.save(tmp_path / "b", capture, diagnose(capture), "", [])
    whole = (folder / "operations.bin").read_bytes()
    (folder / "operations.bin").write_bytes(whole[:-9])
    with pytest.raises(BadInput, match=r"operations\.bin does not match the manifest"):
        bundle.load(folder)
    (folder / "operations.bin").unlink()
    with pytest.raises(BadInput, match=r"operations\.bin"):
        bundle.load(folder)
    for damaged in (whole[:-9], whole[:50] + b"xxxx" + whole[54:], b""):
        with pytest.raises(BadInput):
            operations_codec.unpack(damaged)
