"""A port that is taken and a program that is missing are two faults, each with its own processes."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import failed, table

PORT = "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:6100 (errno: 98 - Address already in use).\n"
MISSING = "/opt/bin/python: can't open file 'fit_lm.py': [Errno 2] No such file or directory\n"
SRUN = "srun: error: fen4: task 1: Exited with exit code 1\n"
WORKER = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 2) local_rank: 0 (pid: 61) of binary: /opt/bin/python\n"
AT = "2024-03-04_10:00:01"
TABLE = table(failed(0, 2, 61, AT, "fen3"), failed(1, 2, 62, AT, "fen3"))


def test_both_are_named_each_with_its_node(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, PORT + MISSING * 2 + SRUN + WORKER + TABLE)
    assert named(verdict) == [("error", []), ("error", [0, 1])]
    assert [cause.nodes for cause in verdict.causes] == [["fen4"], ["fen3"]]
    assert "port 6100" in verdict.causes[0].summary
    assert "themselves, too: the program fit_lm.py is not there" in verdict.causes[1].summary


def test_one_of_them_alone_is_one(tmp_path: Path) -> None:
    for name, text in (("port", PORT), ("missing", MISSING * 2 + WORKER + TABLE)):
        assert len(diagnosed(tmp_path / name, {"job.log": text}).causes) == 1


def test_a_file_that_a_program_misses_may_follow_from_another_error(tmp_path: Path) -> None:
    other = "FileNotFoundError: [Errno 2] No such file or directory: 'last.ckpt'\n"
    assert len(diagnosed(tmp_path, PORT + other + SRUN).causes) == 1
