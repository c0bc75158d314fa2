"""The node's GPUs by nvidia-smi (a stand-in that prints its format) and the kernel's log."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hangdoctor.model.gpu import Gpu
from hangdoctor.readers import gpus, kernel_log
from tests.support import fake_gpus

FALLEN = (
    "3,1207,{us},-;NVRM: Xid (PCI:0000:3c:00): 79, pid=7791, name=python, GPU has fallen off the bus.\n"
    " SUBSYSTEM=pci\n DEVICE=+pci:0000:3c:00.0\n"
)
OTHER = "6,1200,{us},-;usb 1-1: new device\n"


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stand-in, first on PATH."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    gpus._hung.clear()
    return folder


def read(folder: Path, *expected: Gpu, kernel: Path = Path("/nonexistent")) -> gpus.Found:
    fake_gpus.program(folder, expected)
    return gpus.read(20.0, 0.0, kernel)


def test_all_figures_of_all_gpus(on_path: Path) -> None:
    expected = [
        fake_gpus.one(0, pids=[70, 71], busy=0),
        fake_gpus.one(1, pids=[72], slowed=["hw_thermal_slowdown"], uncorrected=3, link_errors=12),
    ]
    found = read(on_path, *expected)
    assert found.gpus == expected and found.notes == []


@pytest.mark.parametrize("reasons", ["event", "throttle"])
def test_reasons_of_a_lower_clock_by_their_older_and_newer_name(reasons: str) -> None:
    slow = fake_gpus.one(0, slowed=["gpu_idle", "hw_power_brake_slowdown"])
    [found] = gpus.parse(fake_gpus.xml([slow], reasons).encode())
    assert found.slowed == ["hw_power_brake_slowdown"]


def test_what_a_gpu_does_not_tell_is_unknown() -> None:
    text = fake_gpus.xml([fake_gpus.one(0, busy=-1, uncorrected=-1)])
    text = text.replace("<dram_uncorrectable>0<", "<dram_uncorrectable>N/A<")
    text = text.replace("1980 MHz", "N/A")
    [found] = gpus.parse(text.encode())
    assert (found.busy, found.uncorrected, found.clock_mhz) == (-1, -1, -1)
    assert gpus.parse(b"<nvidia_smi_log>") == gpus.parse(b"no XML") == []
    assert gpus.parse(b"<log><gpu id='x'/></log>") == [Gpu(0)]


def test_older_gpus_count_double_bit_errors() -> None:
    text = b"<l><gpu><ecc_errors><volatile><double_bit><total>4</total></double_bit></volatile></ecc_errors></gpu></l>"
    assert gpus.parse(text)[0].uncorrected == 4


def test_no_program_is_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(gpus, "_PLACES", ())
    assert gpus.read(1.0, 0.0) == gpus.Found()


def test_a_driver_that_hangs_costs_the_limit_and_is_not_asked_again(on_path: Path) -> None:
    fake_gpus.program(on_path, [])
    # Its answer never ends, and a kill does not reach what it started.
    (on_path / "nvidia-smi").write_text("#!/bin/sh\ntrap '' TERM\nsleep 30\n")
    begin = time.monotonic()
    found = gpus.read(0.5, 0.0)
    assert time.monotonic() - begin < 10
    assert len(found.notes) == 1 and "did not answer within" in found.notes[0]
    assert found.gpus == []


def test_one_that_cannot_be_killed_keeps_the_next_from_being_started(
    on_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpus.program(on_path, [fake_gpus.one(0)])

    class Unkillable:
        pid = 4242

        def poll(self) -> None:
            return None

    monkeypatch.setattr(gpus, "_hung", [Unkillable()])
    [note] = gpus.read(5.0, 0.0).notes
    assert "process 4242" in note and "earlier capture" in note


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'No devices were found'; exit 6", "finds no GPU"),
        ("echo 'NVIDIA-SMI has failed because it could not communicate'; exit 9", "could not comm"),
        ("echo '<nvidia_smi_log></nvidia_smi_log>'", "lists no GPU"),
    ],
)
def test_what_went_wrong_is_a_note(on_path: Path, body: str, said: str) -> None:
    fake_gpus.program(on_path, [])
    (on_path / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
    [note] = gpus.read(5.0, 0.0, Path("/nonexistent")).notes
    assert said in note


def test_errors_of_the_kernels_log_lie_on_the_gpu_at_their_place(
    on_path: Path, tmp_path: Path
) -> None:
    log = tmp_path / "kmsg"
    log.write_text(OTHER.format(us=5) + FALLEN.format(us=88_000_123))
    found = read(on_path, fake_gpus.one(0), fake_gpus.one(1), kernel=log)
    assert found.gpus[0].xids == []
    [xid] = found.gpus[1].xids
    assert (xid.number, xid.pid) == (79, 7791)
    assert xid.says == "name=python, GPU has fallen off the bus."
    assert abs(xid.at - (time.time() - time.monotonic() + 88.0)) < 5


def test_a_gpu_that_is_not_listed_any_more_keeps_its_error(on_path: Path, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(FALLEN.format(us=1))
    found = read(on_path, fake_gpus.one(0), kernel=log)
    assert [(g.index, g.bus, len(g.xids)) for g in found.gpus][1:] == [(-1, "0000:3c:00", 1)]


def test_errors_before_the_job_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(FALLEN.format(us=1))
    assert len(kernel_log.xids(0.0, log)) == 1
    assert kernel_log.xids(time.time(), log) == []


def test_the_log_itself_never_blocks_and_may_be_forbidden(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    keeps_it_open = os.open(tmp_path / "fifo", os.O_RDWR)
    assert kernel_log.xids(0.0, tmp_path / "fifo") == []
    os.close(keeps_it_open)
    assert kernel_log.xids(0.0, tmp_path / "absent") == []
    kernel_log.xids(0.0)  # whatever this machine has


def test_places_on_the_bus() -> None:
    assert kernel_log.bus_of("00000000:3B:00.0") == kernel_log.bus_of("PCI:0000:3b:00")
    assert kernel_log.bus_of("none") == ""
