"""`hangdoctor diagnose` on what people collected with py-spy."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.readers import pyspy_ranks
from tests.support.stage import hangdoctor

DATA = Path(__file__).parents[1] / "data" / "pyspy"

# The stacks of the 176-billion-parameter training that hung on 384 GPUs, as its chronicle gives
# them.
PASSED = """    train (megatron/training.py:915)
    pretrain (megatron/training.py:187)
    <module> (pretrain_gpt.py:239)
"""
HELD = """    broadcast (torch/distributed/distributed_c10d.py:1191)
    _aggregate_total_loss (deepspeed/runtime/pipe/engine.py:540)
    train_batch (deepspeed/runtime/pipe/engine.py:330)
    train_step (megatron/training.py:436)
    train (megatron/training.py:851)
    pretrain (megatron/training.py:187)
    <module> (pretrain_gpt.py:239)
"""
IDLE = (
    'Thread 0x7F5B2C (idle): "Thread-1"\n    wait (threading.py:306)\n    run (threading.py:870)\n'
)


def process(
    pid: int, stack: str, command: str = "python -u pretrain_gpt.py --tensor-model-parallel-size 8"
) -> str:
    head = f"Process {pid}: {command}\nPython v3.8.12 (/conda/bin/python3.8)\n\n"
    return f'{head}Thread {pid} (active): "MainThread"\n{stack}{IDLE}\n'


def diagnose(folder: Path, *paths: Path, code: int = 0) -> dict[str, Any]:
    done = hangdoctor("diagnose", *map(str, paths), "--json", "-", cwd=folder, code=code)
    return dict(json.loads(done.stdout))


def test_six_in_train_and_two_in_broadcast(tmp_path: Path) -> None:
    dump = tmp_path / "trace-r7i6n0.out"
    dump.write_text("".join(process(835990 + i, PASSED if i < 6 else HELD) for i in range(8)))
    verdict = diagnose(tmp_path, dump)
    assert verdict["status"] == "hang"
    [cause] = verdict["causes"]
    # The two are held in an earlier operation; the six have passed it and are not guilty of being
    # elsewhere, nor of being many.
    assert (cause["kind"], cause["ranks"]) == ("in_communication", [6, 7])
    assert cause["where"]["op"] == "broadcast" and cause["confidence"] <= 0.6
    assert cause["nodes"] == ["r7i6n0"]
    assert any(
        a["ranks"] == [0, 1, 2, 3, 4, 5] and "proves nothing" in a["why_not"]
        for a in cause["alternatives"]
    )


def test_a_rank_before_the_operation_is_the_culprit_however_many_wait(tmp_path: Path) -> None:
    loading = PASSED.replace(
        "train (megatron/training.py:915)",
        "next_batch (data.py:10)\n    train (megatron/training.py:840)",
    )
    dump = tmp_path / "trace-n1.out"
    dump.write_text("".join(process(100 + i, loading if i == 4 else HELD) for i in range(8)))
    [cause] = diagnose(tmp_path, dump)["causes"]
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [4])


@pytest.mark.parametrize("name", ["text.out", "native.out", "json.out"])
def test_real_output_of_pyspy_is_read(name: str) -> None:
    capture = pyspy_ranks.read_files([DATA / name])
    [rank] = capture.ranks()
    threads = {t.name: t for t in rank.samples[0].threads}
    assert set(threads) == {"MainThread", "Thread-1 (worker)"}
    from hangdoctor.stacks.place_search import python_frames

    names = [f.name for f in python_frames(threads["MainThread"].frames)]
    assert names[-2:] == ["train", "<module>"] and "<lambda>" in names[0]
    assert all(f.line > 0 for f in python_frames(threads["MainThread"].frames))


def test_errors_launchers_workers_and_foreign_files_are_named_and_left_out(tmp_path: Path) -> None:
    worker = "    read (file.py:3)\n    _worker_loop (torch/utils/data/_utils/worker.py:308)\n    <module> (pretrain_gpt.py:239)\n"
    (tmp_path / "trace-n1.out").write_text(
        process(
            7, "    poll (torch/x.py:3)\n", "python -m torch.distributed.launch pretrain_gpt.py"
        )
        + "".join(process(10 + i, HELD) for i in range(3))
        + "Error: Failed to get process executable name. Check that the process is running.\n"
        + process(20, worker)
        + "failed\n"
    )
    (tmp_path / "trace-n2.out").write_bytes(b"\x00\xff\x00garbage")
    (tmp_path / "trace-n3.out").write_text("")
    (tmp_path / "trace-n4.out").write_text(
        process(9, HELD)[:120]
    )  # cut in the middle of its first thread
    verdict = diagnose(tmp_path, *sorted(tmp_path.glob("trace-*.out")))
    assert verdict["job"]["world_size"] == 3
    notes = "\n".join(verdict["notes"])
    for said in (
        "1 launchers",
        "1 worker processes",
        "n2.out is not the output of py-spy",
        "n3.out is empty",
        "2 error lines",
        "n4.out: no stack",
    ):
        assert said in notes, (said, notes)


LOADER = """    poll (selectors.py:416)
    wait (multiprocessing/connection.py:931)
    _try_get_data (torch/utils/data/dataloader.py:1133)
    _next_data (torch/utils/data/dataloader.py:1330)
    main (train.py:8)
"""
READER = """    read (storage.py:3)
    __getitem__ (dataset.py:12)
    _worker_loop (torch/utils/data/_utils/worker.py:308)
    main (train.py:8)
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_worker_processes_are_evidence_of_their_rank(tmp_path: Path, ranks: int) -> None:
    """With --subprocesses py-spy prints the parent; a node's only rank needs none."""
    text = "".join(process(10 + n, HELD) for n in range(ranks - 1)) + process(20, LOADER)
    worker = process(21, READER)
    if ranks > 1:
        head, _, rest = worker.partition("\n")
        worker = f"{head}\nParent Process 20: python train.py\n{rest}"
    (tmp_path / "trace-n1.out").write_text(text + worker)
    (tmp_path / "trace-n2.out").write_text(process(10, HELD))
    capture = pyspy_ranks.read_files([tmp_path / "trace-n1.out", tmp_path / "trace-n2.out"])
    by_pid = {(r.node, r.pid): r for r in capture.ranks()}
    assert len(by_pid) == ranks + 1
    [child] = by_pid["n1", 20].children
    assert (child.pid, child.ppid) == (21, 20)
    assert not by_pid["n2", 10].children
    verdict = diagnose(tmp_path, tmp_path / "trace-n1.out", tmp_path / "trace-n2.out")
    [cause] = verdict["causes"]
    assert cause["kind"] == "data_wait" and cause["ranks"] == [by_pid["n1", 20].rank]
    assert any("its child 21" in e["says"] and "dataset.py" in e["says"] for e in cause["evidence"])


def test_nothing_readable_is_one_clear_line(tmp_path: Path) -> None:
    junk = tmp_path / "junk.out"
    junk.write_bytes(random.Random(1).randbytes(5000))
    done = hangdoctor("diagnose", str(junk), cwd=tmp_path, code=1)
    assert "no stack of any process" in done.stderr and "Traceback" not in done.stderr
    done = hangdoctor("diagnose", str(tmp_path / "nowhere"), cwd=tmp_path, code=1)
    assert "does not exist" in done.stderr


def test_damaged_text_never_raises(tmp_path: Path) -> None:
    good = (
        "".join(process(10 + i, HELD if i else PASSED) for i in range(4))
        + (DATA / "json.out").read_text()
    )
    source = random.Random(7)
    for i in range(300):
        text = list(good)
        for _ in range(source.randrange(1, 30)):
            text[source.randrange(len(text))] = chr(source.randrange(1, 0x2FF))
        cut = text[: source.randrange(len(text))]
        path = tmp_path / f"trace-{i}.out"
        path.write_text("".join(cut))
        try:
            from hangdoctor.diagnosis import diagnose as engine

            engine(pyspy_ranks.read_files([path]))
        except BadInput:
            pass
        path.unlink()


def test_many_json_dumps_in_one_file(tmp_path: Path) -> None:
    one = (DATA / "json.out").read_text()
    pid = json.loads(one)[0]["pid"]
    (tmp_path / "stacks.json").write_text(one + "\n" + one.replace(str(pid), "77") + "\n[{broken")
    verdict = diagnose(tmp_path, tmp_path / "stacks.json")
    assert [r["pid"] for r in verdict["ranks"]] == [77, pid]
    assert any("damaged JSON" in n for n in verdict["notes"])


def test_ranks_follow_nodes_and_local_ranks(tmp_path: Path) -> None:
    for node in ("n10", "n2"):
        text = "".join(
            process(900 - local, HELD, f"python train.py --local_rank={local}")
            for local in range(2)
        )
        (tmp_path / f"trace-{node}.out").write_text(text)
    capture = pyspy_ranks.read_files(sorted(tmp_path.glob("*.out")))
    assert [(r.rank, r.node, r.pid) for r in capture.ranks()] == [
        (0, "n2", 900),
        (1, "n2", 899),
        (2, "n10", 900),
        (3, "n10", 899),
    ]


def test_1024_ranks_fit_one_screen_and_are_read_in_one_pass(tmp_path: Path) -> None:
    for node in range(128):
        loading = PASSED.replace(
            "train (megatron/training.py:915)",
            "load (data.py:10)\n    train (megatron/training.py:840)",
        )
        text = "".join(
            process(1000 + i, loading if (node, i) == (77, 3) else HELD) for i in range(8)
        )
        (tmp_path / f"trace-n{node}.out").write_text(text)
    begin = time.monotonic()
    done = hangdoctor("diagnose", str(tmp_path), cwd=tmp_path)
    print(f"1,024 ranks: {time.monotonic() - begin:.2f} s")
    assert any("Rank 619 " in line for line in done.stdout.splitlines()[-5:])
    assert len(done.stdout.splitlines()) <= 40


def test_bundle_replays_byte_for_byte_and_refuses_what_was_altered(tmp_path: Path) -> None:
    dump = tmp_path / "trace-n1.out"
    dump.write_text("".join(process(100 + i, PASSED if i == 4 else HELD) for i in range(8)))
    hangdoctor("diagnose", str(dump), "--bundle", "kept", cwd=tmp_path)
    hangdoctor("diagnose", str(dump), "--bundle", "kept", cwd=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == [
        "kept",
        "kept-2",
    ]  # never overwritten
    kept = tmp_path / "kept"
    assert kept.stat().st_mode & 0o777 == 0o700
    again = subprocess.run(
        [sys.executable, "-m", "hangdoctor", "diagnose", "kept", "--json", "-"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    ).stdout
    assert again == (kept / "diagnosis.json").read_bytes()
    (kept / "capture.json").write_bytes((kept / "capture.json").read_bytes()[:-20])
    done = hangdoctor("diagnose", "kept", cwd=tmp_path, code=1)
    assert "does not match the manifest" in done.stderr
    shutil.copytree(tmp_path / "kept-2", tmp_path / "newer")
    manifest = (
        (tmp_path / "newer" / "manifest.json")
        .read_text()
        .replace("hangdoctor.bundle/1", "hangdoctor.bundle/9")
    )
    (tmp_path / "newer" / "manifest.json").write_text(manifest)
    done = hangdoctor("diagnose", "newer", cwd=tmp_path, code=1)
    assert "bundle/9" in done.stderr


def test_a_bundle_that_cannot_be_written_does_not_cost_the_verdict(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    from hangdoctor.diagnosis import diagnose as engine
    from hangdoctor.errors import BundleError
    from hangdoctor.storage.bundle import save

    capture = pyspy_ranks.read_files([DATA / "text.out"])
    with pytest.raises(BundleError, match="cannot be written"):
        save(blocker / "bundle", capture, engine(capture), "", [])
    assert list(tmp_path.iterdir()) == [blocker]


def test_a_process_id_in_a_files_name_is_no_node(tmp_path: Path) -> None:
    """`py-spy dump --pid P > trace-$P.out`, the shortest of recipes."""
    for i in range(8):
        (tmp_path / f"trace-{8270 + i}.out").write_text(
            process(8270 + i, PASSED if i == 5 else HELD)
        )
    verdict = diagnose(tmp_path, *sorted(tmp_path.glob("trace-*.out")))
    assert verdict["job"]["nodes"] == [] and {r["node"] for r in verdict["ranks"]} == {""}
    told = json.dumps([verdict["summary"], verdict["causes"], verdict["notes"]])
    assert "node" not in verdict["summary"] and " on 82" not in told and "bundle" not in told
    assert "numbered by local rank or process id" in told


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("trace-8277.out", ""),
        ("8277.txt", ""),
        ("stack.8277.txt", ""),
        ("pid8277.txt", "pid8277"),
        ("trace-r7i6n0-8277.out", "r7i6n0"),
        ("trace-n1.lab-8277.out", "n1.lab"),
        ("trace-8277-r7i6n0.out", "r7i6n0"),
        ("trace-n1-rank3-8277.out", "n1"),
        ("trace-8278.out", "8278"),
        ("dump_pid_8277.log", ""),
        ("trace-node-1.out", "node-1"),
    ],
)
def test_the_node_in_a_files_name(tmp_path: Path, name: str, node: str) -> None:
    (tmp_path / name).write_text(process(8277, HELD))
    assert [n.node for n in pyspy_ranks.read_files([tmp_path / name]).nodes] == [node]
