"""A verb on the nodes of a host file (over a stand-in for ssh) and of a PBS job (over the real
mpiexec): preflight and trace.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stage import hangdoctor

SSH = """#!/bin/sh
for last; do host=$before; before=$last; done
exec sh -c "$last"
"""
RANK = """
import hangdoctor.probe, time
hangdoctor.probe.install()
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.barrier()
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A host file and a PBS job of this host, and an ssh that goes no further."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    (tmp_path / "hosts").write_text("localhost slots=8\n")
    return os.environ | {
        "PATH": f"{ssh.parent}:{os.environ['PATH']}",
        "PBS_NODEFILE": str(tmp_path / "hosts"),
    }


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[str]:
    """One rank that carries the probe: the folder of its black box."""
    environ = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "OMP_NUM_THREADS": "1",
        "HANGDOCTOR_DIR": str(tmp_path / "boxes"),
    }
    with subprocess.Popen(
        [sys.executable, "-c", RANK], env=os.environ | environ, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            yield environ["HANGDOCTOR_DIR"]
        finally:
            process.kill()


needs_mpiexec = pytest.mark.skipif(
    shutil.which("mpiexec") is None, reason="needs mpiexec (scripts/setup-slurm)"
)


@pytest.mark.full
@needs_mpiexec
def test_preflight_asks_the_nodes_of_a_pbs_job_and_says_who_is_silent(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "hosts").write_text("localhost\nnowhere.invalid\n")
    flags = ("--pbs", "--gpus", "0", "--timeout", "30", "--json", "-", "--exit-code")
    done = hangdoctor("preflight", *flags, cwd=tmp_path, code=10, env=environ)
    told = json.loads(done.stdout)
    [reached] = [f for f in told["findings"] if f["check"] == "reached"]
    assert (
        told["nodes"] == ["localhost", "nowhere.invalid"] and "1 of 2 nodes answered" in done.stderr
    )
    assert (reached["verdict"], reached["nodes"]) == ("fail", ["nowhere.invalid"])
    assert [f["nodes"] for f in told["findings"] if f["check"] == "ptrace"] == [["localhost"]]


def test_a_pbs_job_is_needed_and_one_target_only(tmp_path: Path, environ: dict[str, str]) -> None:
    outside = {k: v for k, v in environ.items() if k != "PBS_NODEFILE"}
    for verb in (("preflight",), ("trace", "status"), ("trace", "stop")):
        done = hangdoctor(*verb, "--pbs", cwd=tmp_path, code=2, env=outside)
        assert "PBS_NODEFILE is not set" in done.stderr, done.stderr
        done = hangdoctor(*verb, "--pbs", "--hostfile", "hosts", cwd=tmp_path, code=2, env=environ)
        assert "more than one target was given" in done.stderr and "--pbs" in done.stderr


@pytest.mark.torch
@pytest.mark.parametrize(
    "target",
    [("--hostfile", "hosts"), pytest.param(("--pbs",), marks=[needs_mpiexec, pytest.mark.full])],
)
def test_call_traces_are_switched_on_all_nodes(
    tmp_path: Path, environ: dict[str, str], boxes: str, target: tuple[str, ...]
) -> None:
    def trace(*words: str) -> subprocess.CompletedProcess[str]:
        return hangdoctor("trace", *words, *target, "--folder", boxes, cwd=tmp_path, env=environ)

    assert "rank 0: tracing" in trace("start", "--follow", "json", "--wait", "30").stderr
    [row] = json.loads(trace("status", "--json").stdout)
    shown = (row["rank"], row["node"], row["state"], row["follow"])
    assert shown == (0, "localhost", "tracing", "json")
    tail = trace("tail", "--rank", "0", "--no-wait")
    assert "rank 0: " in tail.stderr and "connection" not in tail.stderr, tail.stderr
    absent = ("trace", "tail", "--rank", "7", *target, "--folder", boxes)
    done = hangdoctor(*absent, cwd=tmp_path, code=1, env=environ)
    assert f"rank 7 was not found with a probe on the nodes of {target[0]}" in done.stderr
    own = ("--exec", "sh -c {command} {host}", "--hosts", "anywhere", "--folder", boxes)
    done = hangdoctor("trace", "status", "--json", *own, cwd=tmp_path, env=environ)
    assert [(r["node"], r["state"]) for r in json.loads(done.stdout)] == [("anywhere", "tracing")]
    assert "rank 0: stopped" in trace("stop", "--wait", "30").stderr
    wrong = hangdoctor(
        "trace", "start", *target, "--job", "no-such-job", cwd=tmp_path, code=1, env=environ
    )
    assert "no rank of" in wrong.stderr and "no rank of job no-such-job" in wrong.stderr
