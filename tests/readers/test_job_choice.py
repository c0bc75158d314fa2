"""How jobs on one host are listed and chosen: by tables, and with real processes where /proc
decides.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from hangdoctor.errors import NoRanksFound, UsageError
from hangdoctor.readers import job_choice, job_process, job_words, node
from hangdoctor.readers.discover import Found, Job
from hangdoctor.readers.jobnames import key_of
from hangdoctor.readers.node import CaptureOptions
from tests.support.stage import wait_until


def rank(pid: int, number: int, **more: Any) -> Found:
    of = {"ppid": 1, "world_size": 2, "local_rank": number, "local_world_size": 2, "job": "j"}
    of |= {"started": float(pid), "user": min(job_words.own_users()), "argv": ["python", "a.py"]}
    of |= {"environ": {"RANK": str(number)}}
    return Found(pid=pid, rank=number, **(of | more))


def job(key: str, at: float, ranks: int = 2, **more: Any) -> Job:
    return Job(key, [rank(int(at) * 10 + n, n, **more) for n in range(ranks)], at)


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (["python", "-u", "/a/train.py", "--epochs", "3"], "train.py"),
        (["python", "-m", "pkg.train", "x.py"], "pkg.train"),
        (["python", "-W", "ignore", "-X", "dev", "t.py"], "t.py"),
        (["python", "-c", "pass", "not-a-script.py"], "python -c"),
        (["python", "-"], "python"),
        (["my title: step 3"], "my title: step 3"),
        (["python", "evil\x1b[2J\u202e.py"], "evil\\u{1b}[2J\\u{202e}.py"),
        (["python", "n" * 300], "n" * 40),
        ([], "python"),
    ],
)
def test_what_a_rank_runs(argv: list[str], script: str) -> None:
    assert job_words.script_of(rank(1, 0, argv=argv)) == script


_SPAWNS = """import multiprocessing, time
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    one = context.Process(target=time.sleep, args=(600,), daemon=True)
    one.start()
    print(one.pid, flush=True)
    one.join()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_spawned_rank_has_the_script_of_its_parent(tmp_path: Path, method: str) -> None:
    script = tmp_path / "spawns.py"
    script.write_text(_SPAWNS.format(method=method))
    words = [sys.executable, str(script)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        try:
            child = psutil.Process(int(parent.stdout.readline()))
            wait_until(lambda: len(child.cmdline()) > 1, "it has begun its own program")
            spawned = rank(child.pid, 0, argv=child.cmdline(), ppid=child.ppid())
            assert job_words.script_of(spawned) == "spawns.py"
        finally:
            os.killpg(parent.pid, 9)


def test_a_job_in_brief() -> None:
    one = job("torchrun:a", 5.0)
    assert job_words.in_brief(one, now=170.0) == "a (2 ranks of a.py, pid 50, 2 min)"
    two = job("torchrun:a", 5.0, ranks=1, user="bob")
    brief = job_words.in_brief(two, with_user=True, now=51.0)
    assert brief == "a (of bob, 1 of 2 ranks of a.py, pid 50, 1 s)"
    many = [job(f"j{n}", float(n)) for n in range(1, 9)]
    assert job_words.listed(many).endswith(" and 2 more")


def test_the_job_that_is_meant_where_none_is_named() -> None:
    own, newer, other = job("own", 3.0), job("newer", 5.0), job("other", 9.0, user="bob")
    alone = job("alone", 10.0, ranks=1, world_size=1, local_world_size=1)
    rest = job("rest", 11.0, ranks=1)
    assert job_choice.preferred([alone, other, newer, own]) is newer
    assert job_choice.preferred([rest, newer]) is rest, "that a rank is missing may be the reason"
    assert job_choice.preferred([rest, other, alone]) is rest, "own before others'"
    assert job_choice.why_taken(newer, [other, newer]).startswith("your newest (")
    assert job_choice.why_taken(newer, [alone, newer]).startswith("the newest with several ranks (")
    assert job_choice.why_taken(newer, [newer, own]).startswith("the newest (")
    single = job("single", 11.0, ranks=1, world_size=1, user="bob")
    assert job_choice.preferred([single, other, job("old", 1.0, user="eve")]) is other


def _a_name_is_no_process(pid: int, of: Job) -> None:
    """A job whose name is the number of another job's process, to one that asks again and again."""
    named = Job(f"x:{pid}", [rank(7, 0)], 1.0)
    assert job_choice.select_job([named, of], str(pid))[0] is named
    meant = job_process.Meant(str(pid))
    assert meant.among([of, named]) == [named]
    assert meant.among([of]) == [], "it has ended"
    meant = job_process.Meant(str(pid))
    assert meant.among([of]) == [of]
    assert meant.among([named, of]) == [of], "one of that name has come later"


_SAME_NUMBER = """
import subprocess
import time
from hangdoctor.readers.discover import Job
from hangdoctor.readers.job_process import Meant
from tests.readers.test_job_choice import rank

def start():
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write("699")
    return subprocess.Popen(["sleep", "600"])

first = start()
job = Job("j", [rank(first.pid, 0)], 1.0)
meant = Meant("700")
before = meant.among([job])
first.kill()
first.wait()
time.sleep(0.05)  # the kernel counts starts in ticks of 10 ms
assert start().pid == first.pid
print(len(before), len(meant.among([job])), len(Meant("700").among([job])))
"""


def test_another_process_under_the_same_number_is_not_meant() -> None:
    """In a process namespace of its own, where the next number can be chosen."""
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    words = [*namespace, sys.executable, "-c", _SAME_NUMBER]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if ended.returncode and "unshare" in ended.stderr:
        pytest.skip("process namespaces cannot be made here")
    assert ended.stdout.split() == ["1", "0", "1"], ended.stderr


def test_any_process_of_a_job_names_it() -> None:
    """A launcher, its rank and what the rank has started, as real processes."""
    sleep = "import time; print('up', flush=True); time.sleep(600)"
    start = "import subprocess, sys; p = subprocess.Popen([sys.executable, *sys.argv[1:]]);"
    start += "print(p.pid, flush=True); p.wait()"
    words = [sys.executable, "-c", start, "-c", start, "-c", sleep]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as top:
        assert top.stdout is not None
        try:
            number, child = int(top.stdout.readline()), int(top.stdout.readline())
            assert top.stdout.readline() == "up\n"
            here = Job("a:43673", [rank(number, 0)], 1.0)
            jobs = [job("b:1", 400_000.0), here]
            for pid in (top.pid, number, child):
                assert job_choice.select_job(jobs, str(pid))[0] is here
                assert job_process.Meant(str(pid)).among(jobs) == [here]
            with subprocess.Popen([sys.executable, "-c", sleep]) as stranger:
                assert job_process.jobs_of(str(stranger.pid), jobs) == []
                stranger.kill()
            assert job_process.jobs_of("1", jobs) == [], "the first process is above all"
            assert job_choice.select_job(jobs, "43673")[0] is here, "a name comes first"
            assert job_process.Meant("43673").among(jobs) == [here]
            assert job_process.Meant("").among(jobs) == jobs
            _a_name_is_no_process(number, here)
        finally:
            os.killpg(top.pid, 9)


def test_the_script_of_one_job_names_it() -> None:
    pipe = job("torchrun:a", 1.0, argv=["python", "-u", "/home/me/pipe.py", "--steps", "3"])
    module = job("torchrun:b", 2.0, argv=["python", "-m", "pkg.train"])
    here = [pipe, module]
    for wanted in ("pipe.py", "pipe", "/home/me/pipe.py"):
        assert job_choice.select_job(here, wanted)[0] is pipe
        assert job_choice.named(here, wanted) == [pipe]
        assert job_choice.key_of(wanted, here) == "torchrun:a"
        assert job_process.Meant(wanted).among(here) == [pipe]
    for wanted in ("pkg.train", "train", "train.py"):
        assert job_choice.select_job(here, wanted)[0] is module
    with pytest.raises(NoRanksFound, match=r"no job 'pip\.py'"):
        job_choice.select_job(here, "pip.py")
    assert job_choice.key_of("later.py", here) == "later.py", "it may not have begun"


def test_a_job_is_named_by_the_script_above_its_ranks(tmp_path: Path) -> None:
    """As the driver of Ray, whose workers run no script of the user's."""
    driver = tmp_path / "fit.py"
    driver.write_text(
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(p.pid, flush=True)\np.wait()\n"
    )
    words = [sys.executable, str(driver)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as top:
        assert top.stdout is not None
        try:
            below = rank(int(top.stdout.readline()), 0, argv=["ray::RayTrainWorker"])
            here, other = Job("ray:1", [below], 1.0), job("b:1", 400_000.0)
            assert job_choice.select_job([other, here], "fit.py")[0] is here
            assert job_process.Meant("fit.py").among([other, here]) == [here]
            runs_it = job("c:1", 500_000.0, argv=["python", "/x/fit.py"])
            assert job_choice.named([here, runs_it], "fit.py") == [runs_it], "its ranks run it"
        finally:
            os.killpg(top.pid, 9)


def test_a_name_comes_before_a_script_and_a_script_of_several_names_none() -> None:
    first, second = job("torchrun:a", 1.0), job("torchrun:b", 2.0)
    named = job("torchrun:a.py", 3.0, argv=["python", "other.py"])
    assert job_choice.named([first, named], "a.py") == [named]
    asks = (
        lambda: job_choice.select_job([first, second], "a.py"),
        lambda: job_choice.named([first, second], "a.py"),
        lambda: job_choice.key_of("a.py", [first, second]),
    )
    for ask in asks:
        with pytest.raises(UsageError, match=r"2 jobs run a\.py: a .*, b .*") as said:
            ask()
        assert "--job KEY" in said.value.help


def test_what_an_ended_job_has_left_is_named_where_it_is_not_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = {"": [Path("/shm/last")], "mine": [Path("/shm/mine")]}
    monkeypatch.setattr(node.blackbox, "left_behind", lambda name: left.get(name, []))
    help_of = {
        wanted: node._with_ended("Running here: x.", CaptureOptions(job=wanted))
        for wanted in ("mine", "pipe.py", "")
    }
    assert help_of["mine"].endswith("hangdoctor diagnose /shm/mine. Running here: x.")
    last = "of the job that ended last, black boxes are here: hangdoctor diagnose /shm/last."
    assert all(help_of[name].lower().endswith(last) for name in ("pipe.py", ""))
    assert node._with_ended("Help.", CaptureOptions(slurm_job="9")) == "Help."


def test_ranks_of_a_shells_loop_are_one_job_with_and_without_a_run_for_each(tmp_path: Path) -> None:
    """No address names the job: they meet in a file. Each has its own `hangdoctor run`."""
    environ = {
        k: v for k, v in os.environ.items() if not k.startswith(("MASTER", "TORCH", "SLURM"))
    }
    environ |= {"WORLD_SIZE": "2", "HANGDOCTOR_DIR": str(tmp_path / "boxes")}
    run = f"{sys.executable} -m hangdoctor run -- "
    rank = f"{sys.executable} -c 'import os, time; print(os.getpid(), flush=True); time.sleep(600)'"
    loop = f"RANK=0 {rank} & RANK=1 {run}{rank} & wait"
    with subprocess.Popen(
        ["bash", "-c", loop], env=environ, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        pids = [int(shell.stdout.readline()) for _ in range(2)]
        try:
            keys = {key_of(process, process.environ()) for process in map(psutil.Process, pids)}
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
    assert keys == {f"parent:{shell.pid}"}
