"""Open MPI's blocks of an error: which rank, process and host, and what a crash after one is worth.

Texts by the formats of its own strings.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

SEGFAULT = "[c7:220] *** Process received signal ***\n[c7:220] Signal: Segmentation fault (11)\n"


def block(error: str, rank: int = 6, call: str = "MPI_Recv", at: str = "c4:911") -> str:
    reported = f"[{at}] *** reported by process [88172,{rank}]\n" if rank >= 0 else ""
    return (
        f"[{at}] *** An error occurred in {call}\n{reported}[{at}] *** on communicator MPI_COMM_WORLD\n"
        f"[{at}] *** {error}\n[{at}] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n"
        f"[{at}] ***    and potentially your MPI job)\n"
    )


def test_a_crash_while_the_job_is_ended_is_not_the_first(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, block("MPI_ERR_INTERN: internal error") + SEGFAULT)
    assert named(found) == [("error", [6])] and "MPI_ERR_INTERN" in found.summary
    assert found.causes[0].nodes == ["c4"] and "MPI_Recv" in found.summary
    found = diagnosed(tmp_path, block("MPI_ERR_RANK: invalid rank", call="MPI_Send") + SEGFAULT)
    assert named(found) == [("error", [6])]


def test_a_crash_that_others_noticed_is(tmp_path: Path) -> None:
    lost = block("MPI_ERR_PROC_FAILED: Process Failure")
    for text in (SEGFAULT + block("MPI_ERR_INTERN: internal error"), lost + SEGFAULT):
        found = diagnosed(tmp_path, text)
        assert [c.kind for c in found.causes] == ["dead"] and "Process 220 on c7" in found.summary
    crashed = block("MPI_ERR_ARG: invalid argument of some other kind", at="c7:220") + SEGFAULT
    assert named(diagnosed(tmp_path, crashed))[0][1] == [6], "its own crash follows its own error"


def test_an_internal_error_after_a_lost_connection_names_nobody(tmp_path: Path) -> None:
    lost = "[c4][[88172,1],6][btl_tcp_frag.c:241:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv failed: Connection reset by peer (104)\n"
    assert diagnosed(tmp_path, lost + block("MPI_ERR_INTERN: internal error")).causes == []


def test_who_got_a_message_that_is_too_long(tmp_path: Path) -> None:
    text = block("MPI_ERR_TRUNCATE: message truncated")
    for log in (text, text.replace("***", "**\\*")):
        found = diagnosed(tmp_path, log)
        assert named(found) == [("mismatch", [])], "the sender may be wrong"
        assert "rank 6 on c4" in found.summary and "MPI_Recv" in found.summary
        assert "Message from" not in found.advice
    both = text + block("MPI_ERR_TRUNCATE: message truncated", rank=2, at="c5:77")
    assert "ranks 2,6 on c[4-5]" in diagnosed(tmp_path, both).summary


def test_blocks_of_two_processes_line_by_line(tmp_path: Path) -> None:
    one = block("MPI_ERR_COUNT: invalid count argument", rank=1, at="c1:50").splitlines()
    other = block("MPI_ERR_COUNT: invalid count argument", rank=3, at="c2:60").splitlines()
    mixed = "\n".join(line for pair in zip(one, other, strict=True) for line in pair)
    found = diagnosed(tmp_path, mixed + "\n")
    assert named(found) == [("error", [1, 3])] and found.causes[0].nodes == ["c1", "c2"]


def test_without_the_rank_as_in_older_versions(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, block("MPI_ERR_TAG: invalid tag", rank=-1))
    assert named(found) == [("error", [])] and "Process 911 on c4" in found.summary


def test_errors_of_files_and_of_memory(tmp_path: Path) -> None:
    said = block("MPI_ERR_NO_SUCH_FILE: no such file or directory", call="MPI_File_open")
    found = diagnosed(tmp_path, said)
    assert named(found) == [("error", [6])] and "file in MPI_File_open" in found.summary
    found = diagnosed(tmp_path, block("MPI_ERR_NO_MEM: out of memory", call="MPI_Alloc_mem"))
    assert named(found) == [("error", [6])] and "no memory in MPI_Alloc_mem" in found.summary
