"""Node, process and devices that stand on a line of NCCL's are said with it, and none is called a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.offline import read

SHM = "n4:{pid}:{thread} [{device}] misc/shmutils.cc:7 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-{device}\n"
ADDRESSES = "NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument\n"


def diagnosed(folder: Path, **texts: str) -> Diagnosis:
    for name, text in texts.items():
        (folder / f"{name}.log").write_text(text)
    return diagnose(read([folder / f"{name}.log" for name in texts]))


def test_devices_of_one_process_are_all_named(tmp_path: Path) -> None:
    lines = [SHM.format(pid=812, thread=900 + n, device=n) for n in (5, 1, 2)]
    found = diagnosed(tmp_path, job="".join(lines))
    assert found.summary.startswith("Process 812 (devices 1-2,5) on n4 failed first: shared memory")
    assert [cause.ranks for cause in found.causes] == [[]]


def test_which_of_several_processes_was_first_does_not_show(tmp_path: Path) -> None:
    lines = [SHM.format(pid=812 + n, thread=900 + n, device=n) for n in (5, 1)]
    found = diagnosed(tmp_path, job="".join(lines))
    assert "2 processes on n4 failed alike (817 (device 5) is printed first)" in found.summary


def test_a_warning_that_no_other_line_explains(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, job="n4:812:900 [2] a/b.cc:7 NCCL WARN Frob() failed: Odd\n")
    assert "Process 812 (device 2) on n4 was the first to print a failure" in found.summary
    assert "NCCL WARN Frob() failed: Odd' (job.log:1)" in found.summary


def test_the_way_out_of_a_call_says_that_something_failed_before(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, job="n4:812:900 [2] NCCL INFO transport/net.cc:7 -> 3\n")
    assert "process 812 (device 2) on n4 printed" in found.summary
    assert "what came first" in found.summary


def test_nvml_does_not_find_a_gpu(tmp_path: Path) -> None:
    call = "NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found\n"
    text = f"n4:812:900 [2] misc/wrap.cc:7 {call}[rank1]: Traceback (most recent call last):\n"
    found = diagnosed(tmp_path, job=text + '[rank1]:   File "/u/a.py", line 3, in <module>\n')
    assert found.summary.startswith("Process 812 (device 2) on n4 failed first: NVML does not find")


def test_an_earlier_rank_that_failed_alike_is_named_too(tmp_path: Path) -> None:
    text = "[1,9]<stdout>:n2:88:90 [1] NCCL INFO NET/OFI No NIC info for dev 0\n"
    text += f"[1,3]<stdout>:n1:72:73 [3] make_part:459 NCCL WARN {ADDRESSES}"
    found = diagnosed(tmp_path, job=text)
    assert [cause.ranks for cause in found.causes] == [[3, 9]]
    assert "No NIC info for dev 0" in found.summary


@pytest.mark.parametrize(
    "head", ["WARN: Function: make_part Line: 459: ", "n1:72:73 [0] make_part:4 NCCL WARN "]
)
def test_the_plug_in_has_other_prefixes(tmp_path: Path, head: str) -> None:
    found = diagnosed(
        tmp_path, job=f"INFO: Function: main Line: 5: NET/OFI ready\n{head}{ADDRESSES}"
    )
    assert "NCCL's plug-in for libfabric could not set up its network" in found.summary


def test_the_kernel_tells_why_the_plug_in_failed(tmp_path: Path) -> None:
    kernel = "[ 162.4] infiniband efa_1: Failed to process command ALLOC_PD (opcode 14) comp_status 1 err -12\n"
    found = diagnosed(tmp_path, dmesg=kernel, job=f"WARN: Function: make_part Line: 9: {ADDRESSES}")
    assert "device efa_1 refused a command (ALLOC_PD, error -12)" in found.summary
    assert [cause.ranks for cause in found.causes] == [[]]


def test_what_the_plug_in_tries_is_no_failure(tmp_path: Path) -> None:
    text = "n1:72:73 [0] NCCL INFO NET/OFI Failed to initialize sendrecv protocol\n"
    assert diagnosed(tmp_path, job=text + "iteration 5 loss 0.2\n").causes == []
