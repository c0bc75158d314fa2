"""`hangdoctor demo` with a small job of its own: the verdict, and a bundle that the next command
finds.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from tests.support.stage import hangdoctor

JOB = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    print("fault: rank 1 sleeps", flush=True)
    time.sleep(3600)
dist.barrier()
"""


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_the_demo_keeps_a_bundle_outside_of_the_current_folder_and_says_what_is_next(
    tmp_path: Path,
) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "here").mkdir()
    env = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    said = hangdoctor(
        "demo", "--script", str(tmp_path / "job.py"), "--ranks", "2", cwd=tmp_path / "here", env=env
    ).stdout
    bare, _, verdict, what, last = said.splitlines()[-5:]
    assert (verdict.startswith("HANG Rank 1 ") and "all_gather #1" in verdict) or "#" in verdict
    assert bare.startswith("Without the black box") and " #" not in bare
    assert what.startswith("DO   See why <module> (job.py:7) sleeps.")
    [following] = re.findall(r"^bundle \S+ \(a page to send: hangdoctor (report \S+)\)$", last)
    [kept] = list((tmp_path / "tmp").iterdir())  # the job's own files are gone
    assert following.split()[1] == str(kept) and not list((tmp_path / "here").iterdir())
    assert kept.name.startswith("hangdoctor-demo-")
    told = hangdoctor(*following.split(), cwd=tmp_path / "here", env=env).stderr
    page = kept.with_name(f"{kept.name}.html")
    assert page.stat().st_size > 0 and str(page) in told


def test_what_the_job_said_before_it_failed_is_printed_in_lines(tmp_path: Path) -> None:
    pytest.importorskip("torch")  # the demo asks for it first
    (tmp_path / "job.py").write_text(
        "import os, pathlib, time\n"
        "said = pathlib.Path(__file__).with_name('said')\n"
        "if os.environ['RANK'] == '0':  # lines of two ranks may come mixed\n"
        "    print('Error: one')\n    print('an Error: two', flush=True)\n    said.touch()\n"
        "while not said.exists():  # or torchrun ends it before it has said anything\n"
        "    time.sleep(0.02)\n"
        "raise SystemExit(3)\n"
    )
    done = hangdoctor(
        "demo", "--script", str(tmp_path / "job.py"), "--ranks", "2", cwd=tmp_path, code=1
    )
    said = done.stderr.splitlines()
    assert "hangdoctor: the job ended with exit code 1 before the fault" in said
    assert "  Error: one" in said and "  an Error: two" in said


@pytest.mark.torch
@pytest.mark.timeout(280)
def test_the_demo_as_it_is_shown_names_the_rank_of_its_own_trainer(tmp_path: Path) -> None:
    """What `make demo` runs: the bundled trainer with eight ranks, 2 x 2 x 2."""
    pytest.importorskip("deepspeed")
    # Below pytest's own folder the sockets of the data loaders' workers would get names over 108
    # bytes.
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TMPDIR": folder}
        said = hangdoctor("demo", cwd=tmp_path, env=env, timeout=270).stdout
    assert re.search(r"^HANG Rank 5 \(.* #\d+ .*confidence 9\d %\)$", said, re.M)
    assert "layout dp=2 pp=2 tp=2" in said and "\niteration 5/200\n" in said
    progress = [line for line in said.splitlines() if line.startswith("iteration")]
    assert max(map(len, progress)) < 20
