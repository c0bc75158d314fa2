"""Finding ranks and capturing them: plain Python processes with a rank in their environment, no torch."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.train.faults import outside
from tests.support.plain_ranks import PORT, SLEEPER, dump, processes, ranks
from tests.support.stage import hangdoctor, switches, wait_until

FORKING = """
import multiprocessing, os, sys, time
def helper(): open(sys.argv[1] + '.child', 'w').close(); time.sleep(3600)
multiprocessing.get_context('fork').Process(target=helper, daemon=True).start()
open(sys.argv[1], 'w').close()
time.sleep(3600)
"""


@pytest.mark.parametrize(
    "environ",
    [
        {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "9"},
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
        {"PALS_RANKID": "1"},
    ],
    ids=["torchrun", "slurm", "openmpi", "hydra", "pals"],
)
def test_ranks_are_found_by_every_launchers_variables(environ: dict[str, str]) -> None:
    from hangdoctor.readers.rank_environment import rank_of

    found = rank_of(environ)
    assert found is not None and found[0] == 1
    assert found[1] == (0 if "PALS_RANKID" in environ else 2)


def test_launchers_are_no_ranks() -> None:
    from hangdoctor.readers.rank_environment import is_launcher

    assert is_launcher(
        ["/venv/bin/python", "/venv/bin/torchrun", "--nproc_per_node", "8", "train.py"]
    )
    assert is_launcher(["python", "-m", "torch.distributed.run", "train.py"])
    assert is_launcher(["srun", "-N4", "python", "train.py"])
    assert is_launcher(["python3", "-u", "-m", "deepspeed.launcher.launch", "train.py"])
    assert is_launcher(["/usr/bin/python3", "-m", "hangdoctor", "agent", "--once", "x"])
    assert not is_launcher(["python", "train.py", "torchrun"])
    assert not is_launcher(["python", "-m", "train", "--config", "srun"])
    assert not is_launcher(["python", "-u", "-m", "hangdoctor.train", "--config", "x.yaml"])
    assert not is_launcher(["python", "-m", "agents.train"])
    assert is_launcher(["python", "-m", "hangdoctor.agents"])


def test_children_of_a_rank_are_no_ranks(tmp_path: Path) -> None:
    with processes(tmp_path, [(env, FORKING) for env in ranks(PORT + 1, 2)]) as pids:
        wait_until(lambda: len(list(tmp_path.glob("*.child"))) == 2, "children started")
        verdict = dump(tmp_path, f"127.0.0.1:{PORT + 1}", "--settle", "0.2")
    assert [(r["rank"], r["pid"]) for r in verdict["ranks"]] == list(enumerate(pids))


def test_the_newest_job_is_taken_and_the_person_hears_of_the_others(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir(), second.mkdir()
    name = f"twin-{os.getpid()}"
    older, newest = (
        [(e, SLEEPER) for e in ranks(PORT + i, 2, TORCHELASTIC_RUN_ID=f"{name}-{i}")]
        for i in (2, 3)
    )
    with processes(first, older), processes(second, newest):
        words = ("dump", "--local", "--job", name, "--settle", "0", "--no-bundle", "--json", "-")
        either = hangdoctor(*words, cwd=first)
        named = dump(first, f"{name}-2", "--settle", "0")
    assert json.loads(either.stdout)["job"]["id"] == f"torchrun:{name}-3"
    assert f"{name}-2 (2 ranks of " in either.stderr
    assert f"{name}-2" not in either.stdout, "the report is about its own job"
    assert named["job"]["id"] == f"torchrun:{name}-2"


def test_none_found_says_what_was_looked_for(tmp_path: Path) -> None:
    done = hangdoctor("dump", "--local", "--job", "no-such-job", cwd=tmp_path, code=1)
    assert "no-such-job" in done.stderr or "no rank processes" in done.stderr
    done = hangdoctor("dump", "--pid", "4194303", cwd=tmp_path, code=1)
    assert "there is no process 4194303" in done.stderr
    done = hangdoctor("dump", cwd=tmp_path, code=2)
    assert "--local" in done.stderr
    assert not list(tmp_path.glob("hangdoctor-*"))


def test_pids_without_a_rank_are_numbered_in_their_order(tmp_path: Path) -> None:
    with processes(tmp_path, [({}, SLEEPER), ({}, SLEEPER)]) as pids:
        arguments = [a for p in reversed(pids) for a in ("--pid", str(p))]
        done = hangdoctor(
            "dump", *arguments, "--settle", "0.2", "--json", "-", "--no-bundle", cwd=tmp_path
        )
        verdict = json.loads(done.stdout)
    assert [(r["rank"], r["pid"]) for r in verdict["ranks"]] == [(0, pids[1]), (1, pids[0])]
    assert any("no rank in its environment" in note for note in verdict["notes"])


def test_gpu_and_places_are_in_the_report(tmp_path: Path) -> None:
    environs = ranks(PORT + 4, 2, CUDA_VISIBLE_DEVICES="4,6", LOCAL_WORLD_SIZE="2")
    with processes(tmp_path, [(e, SLEEPER) for e in environs]) as pids:
        text = hangdoctor(
            "dump",
            "--local",
            "--job",
            str(PORT + 4),
            "--settle",
            "0.2",
            "--bundle",
            "kept",
            cwd=tmp_path,
        ).stdout
        verdict = json.loads((tmp_path / "kept" / "diagnosis.json").read_text())
    assert [(r["gpu"], r["local_rank"], r["node"]) for r in verdict["ranks"]] == [
        ("4", 0, os.uname().nodename),
        ("6", 1, os.uname().nodename),
    ]
    assert str(pids[0]) in text and "\x1b" not in text  # piped output has no colours


def test_state_of_every_thread_is_read_before_anything_is_attached() -> None:
    from hangdoctor.model.capture import ProcessSample, ThreadSample
    from hangdoctor.readers.node_session import may_attach

    assert may_attach(
        ProcessSample(0.0, "S", threads=[ThreadSample(1, state="S"), ThreadSample(2, state="R")])
    )
    assert not may_attach(
        ProcessSample(0.0, "S", threads=[ThreadSample(1, state="S"), ThreadSample(2, state="D")])
    )
    for state in ("T", "t", "D", "Z", ""):
        assert not may_attach(ProcessSample(0.0, state, threads=[ThreadSample(1, state=state)]))


@pytest.mark.parametrize("mode", ["--native", "--blocking", ""])
def test_no_thread_stays_stopped_when_hangdoctor_is_killed_in_the_middle(
    tmp_path: Path, mode: str
) -> None:
    with processes(tmp_path, [(e, SLEEPER) for e in ranks(PORT + 5, 2)]) as pids:
        for _ in range(3):
            before = set(_pyspies())
            command = [
                sys.executable,
                "-m",
                "hangdoctor",
                "dump",
                "--local",
                "--job",
                str(PORT + 5),
                "--no-bundle",
                *([mode] if mode else []),
            ]
            tool = subprocess.Popen(
                command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            wait_until(
                lambda b=before, t=tool: set(_pyspies()) - b or t.poll() is not None,
                "py-spy at work",
            )
            tool.kill()
            tool.wait(timeout=10)
            wait_until(lambda b=before: not (set(_pyspies()) - b), "py-spy gone")
            for pid in pids:
                for task in Path(f"/proc/{pid}/task").iterdir():
                    wait_until(
                        lambda t=task: (
                            (t / "stat").read_text().rpartition(")")[2].split()[0] not in "Tt"
                        ),
                        f"{task} runs on",
                    )


def _pyspies() -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if words[0].endswith(b"py-spy") and b"dump" in words:
                found.append(int(entry.parent.name))
    return found


def test_a_stopped_process_is_read_without_being_touched(tmp_path: Path) -> None:
    with processes(tmp_path, [(e, SLEEPER) for e in ranks(PORT + 6, 2)]) as pids:
        with outside.stopped(pids[1]):
            verdict = dump(tmp_path, str(PORT + 6), "--native", "--timeout", "15")
            assert "T (stopped)" in switches(pids[1])
        # No py-spy was in front of it until the end.
        assert not any("deadline" in m["why"] for m in verdict["missing"])
    assert verdict["causes"][0]["kind"] == "stopped" and verdict["causes"][0]["ranks"] == [1]
    assert any("read without stopping it" in note for note in verdict["notes"])


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root to become somebody else",
)
def test_without_the_right_to_read_it_says_what_to_do(tmp_path: Path) -> None:
    # As another user without the right to trace, reading a process of root: nothing but the public part of /proc.
    if not all(folder.stat().st_mode & stat.S_IXOTH for folder in Path(sys.executable).parents):
        pytest.skip("the interpreter of this checkout is not readable for other users")
    with processes(tmp_path, [(ranks(PORT + 7, 2)[0], SLEEPER)]) as pids:
        tmp_path.chmod(0o777)
        done = subprocess.run(
            [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                sys.executable,
                "-m",
                "hangdoctor",
                "dump",
                "--pid",
                str(pids[0]),
                "--settle",
                "0.2",
                "--json",
                "-",
                "--no-bundle",
            ],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            env={
                "PYTHONPATH": str(Path(__file__).parents[2]),
                "PATH": os.environ["PATH"],
                "HOME": "/nonexistent",
            },
        )
    verdict = json.loads(done.stdout)
    assert verdict["status"] == "unknown"
    assert any("ptrace_scope" in note and "CAP_SYS_PTRACE" in note for note in verdict["notes"]), (
        verdict["notes"]
    )
    assert verdict["missing"][0]["what"] == "stack"
    assert verdict["ranks"][0]["state"].startswith("S")  # /proc alone still shows the state


def test_a_dead_rank_is_distinguished_from_its_zombie(tmp_path: Path) -> None:
    environs = ranks(PORT + 8, 3, LOCAL_WORLD_SIZE="3")
    with processes(tmp_path, [(e, SLEEPER) for e in environs]) as pids:
        os.kill(pids[1], signal.SIGSEGV)
        wait_until(lambda: "Z (zombie)" in switches(pids[1]), "zombie")
        verdict = dump(tmp_path, str(PORT + 8), "--settle", "0.2")
    dead = next(c for c in verdict["causes"] if c["kind"] == "dead")
    assert dead["ranks"] == [1] and "SIGSEGV" in dead["summary"]


def test_names_that_are_no_utf8_do_not_end_a_capture(tmp_path: Path) -> None:
    """A path in Latin-1 among a rank's arguments, as old data sets have; it goes into messages and bundles."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    with processes(
        folder,
        [({"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": f"latin-{PORT}"}, SLEEPER)],
    ):
        told = hangdoctor(
            "dump",
            "--local",
            "--job",
            f"latin-{PORT}",
            "--json",
            "-",
            "--bundle",
            str(tmp_path / "b"),
            cwd=tmp_path,
        )
    assert json.loads(told.stdout)["job"]["world_size"] == 1
    assert "caf\ufffd" in (tmp_path / "b" / "capture.json").read_text()
