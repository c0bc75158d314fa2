"""One name for a job, whichever verb printed it; and what is said, and what not, with --quiet."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hangdoctor.cli import complete
from hangdoctor.readers.box_folders import find_boxes
from hangdoctor.readers.discover import Found, Job
from hangdoctor.readers.jobnames import is_exactly, names_job
from tests.support.plain_ranks import PORT, SLEEPER, processes, ranks
from tests.support.stage import hangdoctor

RUN = f"livejob{PORT}"
SCRIPT = f"scripted{PORT}.py"
RANK = """
import hangdoctor.probe, time
hangdoctor.probe.install()
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.barrier()
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One rank of a torchrun with a run id, with a black box: its folder."""
    place = tmp_path_factory.mktemp("named")
    folder = str(place / "boxes")
    (place / SCRIPT).write_text(RANK)
    [environ] = ranks(
        PORT + 60, 1, TORCHELASTIC_RUN_ID=RUN, HANGDOCTOR_DIR=folder, OMP_NUM_THREADS="1"
    )
    with subprocess.Popen(
        [sys.executable, place / SCRIPT], env=os.environ | environ, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            yield folder
        finally:
            process.kill()


@pytest.mark.torch
@pytest.mark.parametrize(
    "name",
    [
        f"torchrun:{RUN}",
        RUN,
        f"{RUN}-127.0.0.1-{PORT + 60}",
        f"127.0.0.1:{PORT + 60}",
        RUN.upper(),
        SCRIPT,
    ],
    ids=[
        "key",
        "part",
        "folder",
        "address",
        "capitals",
        "script",
    ],  # ports differ between the workers of one test run
)
def test_every_verb_takes_the_name_that_any_verb_prints(
    probed: str, tmp_path: Path, name: str
) -> None:
    dump = hangdoctor(
        "dump",
        "--local",
        "--job",
        name,
        "--settle",
        "0",
        "--no-bundle",
        "--json",
        "-",
        cwd=tmp_path,
    )
    assert json.loads(dump.stdout)["job"]["id"] == f"torchrun:{RUN}"
    for folder in ((), ("--folder", probed)):
        assert (
            "never traced"
            in hangdoctor("trace", "status", "--job", name, *folder, cwd=tmp_path).stdout
        )
    hangdoctor("trace", "export", probed, "--job", name, "-o", "timeline", cwd=tmp_path)


@pytest.mark.torch
def test_the_shell_offers_the_script_of_a_job_and_its_name(
    probed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_boxes(probed, live_only=True)
    monkeypatch.setattr("hangdoctor.readers.box_folders.find_boxes", lambda **_: found)
    context = click.Context(click.Command("dump"))
    offered = complete.jobs_here(context, click.Option(["--job"]), "")
    assert offered == [SCRIPT, f"{RUN}-127.0.0.1-{PORT + 60}"]
    assert complete.jobs_here(context, click.Option(["--job"]), "scripted") == [SCRIPT]


@pytest.mark.torch
def test_a_name_of_another_job_is_refused_by_all(probed: str, tmp_path: Path) -> None:
    for verb in (("dump", "--local", "--no-bundle"), ("trace", "status", "--folder", probed)):
        refused = hangdoctor(*verb, "--job", f"torchrun:not-{RUN}", cwd=tmp_path, code=1)
        assert f"not-{RUN}" in refused.stderr


@pytest.mark.parametrize(
    ("wanted", "names", "named"),
    [
        ("torchrun:a", ["a-127.0.0.1-29500"], True),
        ("127.0.0.1:29500/812", ["run-127.0.0.1-29500"], True),
        ("", ["x"], True),
        ("slurm:7.0", ["slurm-7.0"], True),
        ("torchrun:", ["a"], False),
        ("torchrun:b", ["a-127.0.0.1-29500"], False),
    ],
)
def test_names_and_parts_of_names(wanted: str, names: list[str], named: bool) -> None:
    assert names_job(wanted, *names) is named


def test_the_whole_name_goes_before_a_part_of_another() -> None:
    assert (
        is_exactly("slurm:7.1", "slurm-7.1")
        and not is_exactly("slurm:7.1", "slurm-7.10")
        and not is_exactly("", "")
    )
    environ = {"MASTER_ADDR": "n1", "MASTER_PORT": "9", "TORCHELASTIC_RUN_ID": "x"}
    job = Job(
        "torchrun:x",
        [
            Found(
                pid=1,
                ppid=0,
                rank=0,
                world_size=1,
                local_rank=0,
                local_world_size=1,
                job="torchrun:x",
                started=0.0,
                user="me",
                argv=["python"],
                environ=environ,
            )
        ],
    )
    assert (
        job.names == ["torchrun:x", "x-n1-9"] and job.is_named("x-n1-9") and not job.is_named("y")
    )


def test_quiet_is_the_sentence_alone_where_there_was_a_choice(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir(), second.mkdir()
    with (
        processes(first, [(e, SLEEPER) for e in ranks(PORT + 61, 1)]),
        processes(second, [(e, SLEEPER) for e in ranks(PORT + 62, 1)]),
    ):
        flags = ("--local", "--job", f"127.0.0.1:{PORT + 61}", "--settle", "0")
        quiet = hangdoctor(
            "dump", *flags, "--quiet", "--json", "verdict", "--no-bundle", cwd=tmp_path
        )
        loud = hangdoctor("dump", *flags, "--no-bundle", cwd=tmp_path)
        words = ("--local", "--settle", "0", "--quiet", "--no-bundle")
        unnamed = hangdoctor("dump", *words, cwd=tmp_path)
        top = hangdoctor("top", "--once", cwd=tmp_path)
    assert quiet.stderr == "" and len(quiet.stdout.splitlines()) == 1
    told = ", named by --job; also on this host: "
    assert told in loud.stderr
    kept = (tmp_path / "verdict").read_text() + loud.stdout
    assert "also on this host" not in kept, "whoever reads the report has no use for other jobs"
    [line] = unnamed.stderr.splitlines()
    how = r"captured job .*\b\d+ ranks? of .+, pid \d+, .+\), .* \(choose another with --job KEY\); also on this host: "
    assert re.match(f"hangdoctor: {how}", line), line
    assert "; also on this host: " in top.stderr and "(--job KEY)" in top.stdout


def test_quiet_still_says_why_no_node_answered(tmp_path: Path) -> None:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        "#!/bin/sh\necho 'ssh: connect to host n1 port 22: Connection refused' >&2\nexit 255\n"
    )
    ssh.chmod(0o755)
    (tmp_path / "hosts").write_text("n1\n")
    env = os.environ | {"PATH": f"{ssh.parent}:{os.environ['PATH']}"}
    said = hangdoctor(
        "dump", "--hostfile", "hosts", "--quiet", "--no-bundle", cwd=tmp_path, env=env
    )
    assert (
        "no rank was captured (n1: ssh: connect to host n1 port 22: Connection refused)"
        in said.stdout
    )


def test_what_may_not_be_read_is_explained_once(tmp_path: Path) -> None:
    """A report on a process without a stack: the reason is in the sentence, and nowhere again."""
    pyspy = "not permitted to read the process"
    from hangdoctor.diagnosis import diagnose
    from hangdoctor.model.capture import JobCapture, NodeCapture, ProcessSample, RankCapture
    from hangdoctor.report.terminal_report import plain

    samples = [ProcessSample(float(at), "S", stack_error=pyspy) for at in range(2)]
    note = f"stacks could not be read: {pyspy}; the verdict rests on /proc alone"
    node = NodeCapture(
        "n1",
        notes=[note],
        ranks=[
            RankCapture(pid=9, rank=r, node="n1", world_size=2, samples=samples) for r in range(2)
        ],
    )
    diagnosis = diagnose(JobCapture("pids:9", [node], world_size=2))
    assert plain(diagnosis).count(pyspy) == 1
    assert "stacks could not be read: see the verdict; the verdict rests on /proc alone" in plain(
        diagnosis
    )
    assert {m.why for m in diagnosis.missing} == {pyspy}  # for programs it is there for each
