"""Stored orders of samples: the same as drawn ones, written by one process, never half."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from hangdoctor.train.data import sample_orders
from hangdoctor.train.data.indexed import IndexedDataset, write_documents
from hangdoctor.train.data.samples import Samples, build_samples

COUNT, SEQ = 300, 8


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("hangdoctor.train.data.samples.STORED_FROM", 0)
    (tmp_path / "data").mkdir()
    path = str(tmp_path / "data" / "s")
    documents = [list(range(i, i + 3 + i % 7)) for i in range(COUNT)]
    write_documents(path, documents, 65000)
    return path


def made(prefix: str, cache: Path | None, seed: int = 1) -> Samples:
    return Samples(IndexedDataset(prefix), range(COUNT), SEQ, seed, cache=cache)


def first(samples: Samples, count: int) -> list[list[int]]:
    return [samples[i].tolist() for i in range(count)]


def orders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())


def no_drawing(*_: Any) -> None:
    raise AssertionError("this order was to be read")


def test_stored_orders_are_those_that_are_drawn(prefix: str, tmp_path: Path) -> None:
    plain, stored = made(prefix, None), made(prefix, tmp_path / "cache")
    two_epochs = 2 * plain.per_epoch
    assert first(stored, two_epochs) == first(plain, two_epochs)
    again = made(prefix, tmp_path / "cache")
    again._draw = no_drawing  # type: ignore[method-assign,assignment]
    assert first(again, two_epochs) == first(plain, two_epochs)
    assert all(isinstance(part.base, np.memmap) for part in again._epochs[0])
    assert len(orders(tmp_path / "cache")) == 2


def test_another_seed_or_other_data_has_another_order(prefix: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first(made(prefix, cache), 1)
    first(made(prefix, cache, seed=2), 1)
    os.utime(f"{prefix}.idx", (1, 1))  # prepared anew, with as many bytes
    first(made(prefix, cache), 1)
    assert len(orders(cache)) == 3


def test_without_a_folder_they_lie_beside_the_data(prefix: str, tmp_path: Path) -> None:
    first(build_samples(prefix, "1,0,0", 0, SEQ, 1), 1)  # type: ignore[arg-type]
    assert len(orders(tmp_path / "data" / "sample-orders")) == 1


def test_small_data_sets_leave_no_files(prefix: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hangdoctor.train.data.samples.STORED_FROM", COUNT + 1)
    first(made(prefix, tmp_path / "cache"), 1)
    assert not (tmp_path / "cache").exists()


def _one_of_many(prefix: str, cache: Path, together: Barrier, said: Any) -> None:
    samples = made(prefix, cache)
    draw = samples._draw
    drawn: list[int] = []
    samples._draw = lambda number: drawn.append(number) or draw(number)  # type: ignore
    together.wait(60)
    said.put((drawn, first(samples, 5)))


def test_of_many_processes_one_writes(prefix: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    together, said = context.Barrier(6), context.Queue()
    arguments = (prefix, tmp_path / "cache", together, said)
    started = [context.Process(target=_one_of_many, args=arguments) for _ in range(6)]
    for process in started:
        process.start()
    try:
        answers = [said.get(timeout=90) for _ in started]
    finally:
        for process in started:
            process.kill()
            process.join()
    assert sorted(drawn for drawn, _ in answers) == [[]] * 5 + [[0]]
    assert {str(seen) for _, seen in answers} == {str(first(made(prefix, None), 5))}


def test_what_a_dead_writer_left_is_replaced(prefix: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    expected = first(made(prefix, cache), 5)
    [place] = orders(cache)
    whole = (place / "ends.npy").read_bytes()
    (place / "ends.npy").write_bytes(whole[: len(whole) // 2])
    assert first(made(prefix, cache), 5) == expected
    assert (place / "ends.npy").read_bytes() == whole
    shutil.rmtree(place)
    place.with_suffix(".99.part").mkdir()  # beside a lock that its process no longer has
    assert first(made(prefix, cache), 5) == expected and place.is_dir()


def test_a_writer_that_does_not_end_is_not_waited_for_without_end(
    prefix: str, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    cache = tmp_path / "cache"
    expected = first(made(prefix, cache), 5)
    [place] = orders(cache)
    shutil.rmtree(place)
    monkeypatch.setattr(sample_orders, "_PATIENCE_S", 0.0)
    with place.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert first(made(prefix, cache), 5) == expected
    assert "each process keeps its own" in capfd.readouterr().err and not place.exists()


def test_a_folder_that_cannot_be_written_is_done_without(prefix: str, capfd: Any) -> None:
    taken = Path(f"{prefix}.bin")  # a file, where a folder should be
    assert first(made(prefix, taken), 5) == first(made(prefix, None), 5)
    assert "each process keeps its own" in capfd.readouterr().err
