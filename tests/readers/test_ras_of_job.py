"""RAS is asked where the job has it, and another job's answer is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hangdoctor.model.capture import RankCapture
from hangdoctor.readers import ras_of_job, ras_reader
from tests.readers.test_ras_reader import DATA, JSON, TEXT, FakeRasServer

SAYS = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def process(address: str) -> Iterator[int]:
    """A process whose environment has this address: its pid."""
    words = [sys.executable, "-c", SAYS]
    env = {ras_of_job.VARIABLE: address} if address else {}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=env, **pipes) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.kill()


def test_it_is_asked_at_the_jobs_own_address_and_another_job_is_not_believed() -> None:
    server = FakeRasServer()
    try:
        with process(f"localhost:{server.port}") as pid:
            found, note = ras_of_job.ask([RankCapture(pid=pid, rank=0)], 5.0)
    finally:
        server.close()
    assert found is None
    assert f"localhost:{server.port} answered for another job" in note
    assert "NCCL_RAS_ADDR" in note


def test_an_answer_that_names_a_process_of_the_job_is_its_own() -> None:
    report = ras_reader.read_file(DATA / JSON)
    named = {r.process.pid for c in report.communicators for r in [*c.ranks, *c.missing]}
    assert ras_of_job.is_about(report, {min(named)})
    assert not ras_of_job.is_about(report, {max(named) + 1})


def test_an_answer_that_does_not_name_all_processes_is_believed() -> None:
    assert ras_of_job.is_about(ras_reader.read_file(DATA / TEXT), {1})


def test_addresses() -> None:
    default = ("127.0.0.1", ras_reader.PORT)
    for told, meant in (
        ("node7:1234", ("node7", 1234)),
        ("[::1]:1234", ("::1", 1234)),
        (":1234", ("127.0.0.1", 1234)),
        ("node7", default),
        ("node7:99999", default),
        ("", default),
    ):
        with process(told) as pid:
            assert ras_of_job.address([pid]) == meant, told
    assert ras_of_job.address([]) == default
