"""Log lines in the formats of torch's and NCCL's own strings, for what needs GPUs to happen.

The strings are those of `ProcessGroupNCCL.cpp` as of three generations: 2.1 (no counters), 2.3 to
2.5 (`[PG 0 Rank 3]`), 2.6 to 2.13 (`[PG ID 0 PG GUID 0(default_pg) Rank 3]`, dump signals), and of
`TraceUtils.h`.
"""

from __future__ import annotations

DEFAULT = "[PG ID 0 PG GUID 0(default_pg) Rank {}]"


def caught(
    rank: int,
    seq: int = 81,
    op: str = "ALLREDUCE",
    size: int = 1024,
    second: int = 8,
    own: int | None = None,
    ran_ms: int = 600_100,
    size_out: int | None = None,
) -> str:
    """The watchdog's line on rank `rank`, which is `own` in its group."""
    out = size if size_out is None else size_out
    return (
        f"[rank{rank}]:[E709 17:05:{second:02d}.16255{rank:04d} ProcessGroupNCCL.cpp:632] [Rank {rank if own is None else own}] "
        f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={out}, "
        f"Timeout(ms)=600000) ran for {ran_ms} milliseconds before timing out.\n"
    )


def counters(
    rank: int,
    enqueued: int,
    completed: int,
    work: int = 81,
    group: str = DEFAULT,
    own: int | None = None,
) -> str:
    """The line with a rank's counters, torch 2.6 on."""
    named = group.format(rank if own is None else own)
    return (
        f"[rank{rank}]:[E709 17:05:08.17000{rank:04d} ProcessGroupNCCL.cpp:2271] {named}  failure detected by watchdog at work "
        f"sequence id: {work} PG status: last enqueued work: {enqueued}, last completed work: {completed}\n"
    )


def counters_of_2_4(rank: int, enqueued: int, completed: int, work: int = 81) -> str:
    """The same as torch 2.3 to 2.5 write it."""
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank {rank}] Exception (either an error or timeout) detected "
        f"by watchdog at work: {work}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.\n"
    )


def told(rank: int, by: int, enqueued: int, completed: int) -> str:
    """A rank that another one told to dump."""
    return (
        f"[rank{rank}]:[E709 17:05:09.20000{rank:04d} ProcessGroupNCCL.cpp:1746] {DEFAULT.format(rank)} Received a dump signal due to "
        f"a collective timeout from  rank {by} and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, "
        f"last completed NCCL work: {completed}.This is most likely caused by incorrect usages of collectives\n"
    )


def observed(rank: int) -> str:
    """A rank that saw another one's signal."""
    return (
        f"[rank{rank}]:[E709 17:05:09.10000{rank:04d} ProcessGroupNCCL.cpp:1806] {DEFAULT.format(rank)} Observed flight recorder dump "
        "signal from another rank via TCPStore.\n"
    )


def aborted(rank: int, seq: int = 81, op: str = "ALLREDUCE") -> str:
    """The watchdog's last words on a rank."""
    return (
        f"[rank{rank}]:[E709 17:06:08.30000{rank:04d} ProcessGroupNCCL.cpp:684] [Rank {rank}] Some NCCL operations have failed or timed "
        "out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        f"[rank{rank}]:[E709 17:06:08.30100{rank:04d} ProcessGroupNCCL.cpp:698] [Rank {rank}] To avoid data inconsistency, we are taking "
        "the entire process down.\n"
        f"[rank{rank}]:[E709 17:06:08.30200{rank:04d} ProcessGroupNCCL.cpp:1896] {DEFAULT.format(rank)} Process group watchdog thread "
        f"terminated with exception: [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
        "NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600100 milliseconds before timing out.\n"
    )


def failed(
    rank: int, code: int, pid: int = 0, time: str = "2026-07-09_17:06:10", host: str = ""
) -> str:
    """One entry of torchelastic's table; four ranks a host."""
    name = {-6: "(SIGABRT)", -9: "(SIGKILL)", -15: "(SIGTERM)", -11: "(SIGSEGV)"}.get(code, "")
    return (
        f"  time      : {time}\n  host      : {host or f'n{rank // 4}'}\n  rank      : {rank} (local_rank: {rank % 4})\n"
        f"  exitcode  : {code} (pid: {pid or 700 + rank}) {name}\n  error_file: <N/A>\n  traceback : Signal\n"
    )


def table(first: str, *others: str) -> str:
    """torchelastic's table: its first observed failure stands last."""
    rest = "".join(f"[{i + 1}]:\n{entry}" for i, entry in enumerate(others))
    rest = rest or "  <NO_OTHER_FAILURES>\n"
    rule = "-" * 60
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        + "=" * 60
        + f"\ntrain.py FAILED\n{rule}\nFailures:\n{rest}{rule}\nRoot Cause (first observed failure):\n[0]:\n{first}"
        + "=" * 60
        + "\n"
    )


def traceback(rank: int, error: str, function: str = "load_batch", line: int = 40) -> str:
    """An exception of a rank, with its prefix."""
    lines = (
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 90, in <module>',
        "    main()",
        f'  File "/job/data.py", line {line}, in {function}',
        "    raise_it()",
        error,
    )
    return "".join(f"[rank{rank}]: {text}\n" for text in lines)
