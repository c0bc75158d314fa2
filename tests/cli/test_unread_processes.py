"""py-spy's own failures: a process that cannot be suspended is the suspect, not those in the
barrier.
"""

from __future__ import annotations

from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.offline import read

BARRIER = """    barrier (torch/distributed/distributed_c10d.py:4551)
    save_checkpoint (megatron/checkpointing.py:247)
    train (megatron/training.py:904)
    <module> (pretrain_gpt.py:249)
"""
FAILED = "Error: Failed to suspend process\nReason: EPERM: Operation not permitted\n"
PS = """USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
ura81os      703  117  4.6 17517200480 24494736 ? Dl  00:36 291:14 python
ura81os      704 87.9  4.4 17508566232 23526964 ? Rl  00:36 217:52 python
"""
DMESG = (
    "[Sat Mar  4 04:14:57 2023] INFO: task python:703 blocked for more than 120 seconds.\n"
    "[Sat Mar  4 04:14:57 2023] task:python          state:D stack:    0 pid:703 ppid:9\n"
)


def process(pid: int, local_rank: int | None = None) -> str:
    local = f" --local_rank={local_rank}" if local_rank is not None else ""
    head = f"Process {pid}: python pretrain_gpt.py{local}\nPython v3.10.6 (/usr/bin/python3.10)\n\n"
    return f'{head}Thread {pid} (idle): "MainThread"\n{BARRIER}\n'


def of(folder: Path, **files: str) -> Diagnosis:
    paths = []
    for name, text in files.items():
        paths.append(folder / name.replace("_", "-", 1).replace("_", "."))
        paths[-1].write_text(text)
    return diagnose(read(paths))


def test_a_process_that_cannot_be_suspended_is_the_suspect(tmp_path: Path) -> None:
    some = [process(n) for n in (700, 701, 702)]
    head = "Process 703: python pretrain_gpt.py\n"
    found = of(tmp_path, trace_n1_out="".join([*some, head, FAILED, process(704)]))
    assert [c.ranks for c in found.causes] == [[3]]
    assert "703" in found.causes[0].summary


def test_a_node_with_one_process_fewer_and_an_error(tmp_path: Path) -> None:
    whole = "".join(process(700 + n, n) for n in range(4))
    short = "".join(process(800 + n, n) for n in (0, 1, 3)) + FAILED
    found = of(tmp_path, trace_n1_out=whole, trace_n2_out=short)
    [cause] = found.causes
    assert (cause.ranks, cause.nodes) == ([6], ["n2"])


def test_of_two_nodes_the_one_with_an_error_has_fewer(tmp_path: Path) -> None:
    """Whichever of them comes first."""
    whole = "".join(process(700 + n, n) for n in range(4))
    short = "".join(process(800 + n, n) for n in (0, 1, 3)) + "Error: Timed out\n"
    [cause] = of(tmp_path, trace_n1_out=short, trace_n2_out=whole).causes
    assert (cause.ranks, cause.nodes) == ([2], ["n1"])


def test_an_error_without_a_process_on_a_single_node(tmp_path: Path) -> None:
    text = "".join(process(700 + n, n) for n in (0, 1, 3)) + FAILED
    [cause] = of(tmp_path, trace_n1_out=text).causes
    assert cause.ranks == [2] and cause.kind != "in_communication"


def test_a_file_that_stayed_empty_is_its_processes(tmp_path: Path) -> None:
    files = {f"n1_{pid}_txt": process(pid) if pid != 702 else "" for pid in range(700, 704)}
    [cause] = of(tmp_path, **files).causes
    assert cause.ranks == [2] and "702" in cause.summary


def test_an_empty_file_among_files_of_nodes_is_no_process(tmp_path: Path) -> None:
    whole = "".join(process(700 + n, n) for n in range(4))
    found = of(tmp_path, trace_n1_out=whole, trace_n2_out="")
    assert [r for c in found.causes for r in c.ranks if r > 3] == []


def test_errors_of_all_processes_are_the_users_rights(tmp_path: Path) -> None:
    heads = [f"Process {700 + n}: python pretrain_gpt.py\n{FAILED}" for n in range(3)]
    found = of(tmp_path, trace_n1_out="".join([*heads, process(703)]))
    assert not any(set(c.ranks) & {0, 1, 2} for c in found.causes)


def test_ps_says_that_it_is_in_uninterruptible_io(tmp_path: Path) -> None:
    head = "Process 703: python pretrain_gpt.py\n"
    text = "".join([process(704), process(705), head, FAILED])
    found = of(tmp_path, trace_n1_out=text, ps_txt=PS)
    assert (found.causes[0].kind, found.causes[0].ranks) == ("io_wait", [0])


def test_the_kernels_report_alone_says_it_too(tmp_path: Path) -> None:
    head = "Process 703: python pretrain_gpt.py\n"
    found = of(tmp_path, trace_n1_out=head + FAILED, dmesg_txt=DMESG)
    assert found.causes[0].kind == "io_wait"
    assert "703" in found.causes[0].summary


def test_heads_above_one_stack_all_have_it(tmp_path: Path) -> None:
    heads = "".join(f'Thread {n} (active): "MainThread"\n' for n in (700, 701, 702))
    sleeps = (
        'Thread 703 (idle): "MainThread"\n    load_batch (data.py:40)\n    <module> (run.py:9)\n'
    )
    found = of(tmp_path, trace_n1_out=heads + BARRIER + "\n" + sleeps)
    assert [c.ranks for c in found.causes] == [[3]]


def test_two_dumps_of_each_process_are_two_samples(tmp_path: Path) -> None:
    """Before, the second was taken for another rank."""
    job = "".join(process(n) for n in (700, 701, 702))
    where = [
        f'Process 703: python pretrain_gpt.py\nThread 703 (active): "MainThread"\n'
        f"    tokenize (data.py:{line})\n    <module> (pretrain_gpt.py:9)\n\n"
        for line in (40, 41)
    ]
    path = tmp_path / "trace-n1.out"
    path.write_text(job + where[0] + job + where[1])
    capture = read([path])
    assert [r.pid for r in capture.ranks()] == [700, 701, 702, 703]
    assert [len(r.samples) for r in capture.ranks()] == [2, 2, 2, 2]
    assert [c.ranks for c in diagnose(capture).causes] == [[3]]
