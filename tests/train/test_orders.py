"""Stored sample orders: made once by one process, the same as in memory, made again when damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hangdoctor.train.config import DataConfig
from hangdoctor.train.data.indexed import write_documents
from hangdoctor.train.data.orders import Order, OrderFolder, make_order
from hangdoctor.train.data.samples import Samples, build_samples
from tests.support.trainer_ranks import ROOT

LENGTHS = np.arange(3, 103, dtype=np.int32)
KEY = {"sequences": 100, "tokens": int(LENGTHS.sum()), "samples": 50, "seed": 7}
MAKER = """
import sys
from pathlib import Path
from tests.train.test_orders import KEY, made
from hangdoctor.train.data.orders import OrderFolder
def make():
    print("made", flush=True)
    return made()
print("ready", flush=True)
input()
order = OrderFolder(Path(sys.argv[1])).order(KEY, make)
print(order.documents.tolist() == made().documents.tolist(), flush=True)
"""


def made() -> Order:
    return make_order(LENGTHS, 10, (7, 0), 50)


def same(one: Order, other: Order) -> bool:
    return all(
        np.array_equal(getattr(one, n), getattr(other, n)) for n in ("documents", "ends", "samples")
    )


def never() -> Order:
    raise AssertionError("it is stored")


def test_an_order_is_what_earlier_versions_drew() -> None:
    """A resumed training goes on in the order that it began with."""
    rng = np.random.default_rng((7, 0))
    documents = rng.permutation(np.arange(10, 110))
    ends = np.cumsum(LENGTHS[documents - 10], dtype=np.int64)
    assert same(made(), Order(documents, ends, rng.permutation(50)))


def test_of_processes_that_start_together_one_makes_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKER, str(tmp_path)]
    started = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=100)[0].split() for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait(timeout=20)
    assert sorted(said) == [["True"]] * 3 + [["made", "True"]]
    assert sorted(p.suffix for p in tmp_path.iterdir()) == ["", ".lock"], "nothing else is left"


def test_a_stored_order_is_mapped_and_not_made(tmp_path: Path) -> None:
    OrderFolder(tmp_path).order(KEY, made)
    found = OrderFolder(tmp_path).order(KEY, never)
    assert same(found, made())
    assert isinstance(found.ends.base, np.memmap)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    OrderFolder(tmp_path).order(KEY, made)
    [place] = [p for p in tmp_path.iterdir() if p.is_dir()]
    left = place.rename(f"{place}.node-1.part")
    OrderFolder(tmp_path).order(KEY, made)
    assert place.is_dir() and not left.exists()


def cut(place: Path) -> None:
    path = place / "ends.npy"
    path.write_bytes(path.read_bytes()[:-8])


def of_other_data(place: Path) -> None:
    (place / "key.json").write_text(json.dumps(KEY | {"seed": 8}))


def without_end(place: Path) -> None:
    """As after a crash of the node: a whole file whose last page was never written."""
    ends = np.load(place / "ends.npy")
    ends[-1] = 0
    np.save(place / "ends.npy", ends)


def no_numpy(place: Path) -> None:
    (place / "documents.npy").write_bytes(b"\x93NUMPY")


@pytest.mark.parametrize("damage", [cut, of_other_data, without_end, no_numpy])
def test_what_is_damaged_or_foreign_is_made_again(damage, tmp_path: Path, capfd) -> None:
    folder = OrderFolder(tmp_path)
    folder.order(KEY, made)
    [place] = [p for p in tmp_path.iterdir() if p.is_dir()]
    damage(place)
    assert same(folder.order(KEY, made), made())
    [line] = capfd.readouterr().err.splitlines()
    assert line == f"note: {place} is damaged or of other data: it is made again"
    assert same(folder.order(KEY, never), made())


def test_where_nothing_can_be_stored_it_is_said_once(tmp_path: Path, capfd) -> None:
    (tmp_path / "file").write_text("")
    folder, quiet = (OrderFolder(tmp_path / "file" / "x", q) for q in (False, True))
    for _ in range(2):
        assert same(folder.order(KEY, made), made()) and same(quiet.order(KEY, made), made())
    [line] = capfd.readouterr().err.splitlines()
    assert "cannot be stored in" in line and "set --data.cache to a folder" in line


def test_samples_of_a_large_set_are_stored_beside_it_or_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = str(tmp_path / "d")
    write_documents(prefix, [list(range(n)) for n in range(3, 40)], 257)
    data = DataConfig(path=prefix, split="8,2,0")
    plain = build_samples(data, 0, 8, 1)
    wanted = [plain[i].tolist() for i in range(2 * plain.per_epoch)]
    assert not Path(f"{prefix}.orders").exists()
    monkeypatch.setattr(Samples, "_STORED_FROM", 1)
    for cache in ("", str(tmp_path / "cache")):
        data.cache = cache
        stored = build_samples(data, 0, 8, 1)
        assert [stored[i].tolist() for i in range(2 * plain.per_epoch)] == wanted
        folder = Path(cache or f"{prefix}.orders")
        assert len(list(folder.glob("order-*/key.json"))) == 2
        build_samples(data, 1, 8, 1)[0]
        assert len(list(folder.glob("order-*/key.json"))) == 3, "the valid share has its own"
