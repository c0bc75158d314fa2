"""The switch of call tracing: which code is meant, whose requests are obeyed, and that nothing is
there while it is off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.cli.trace.control import outcome_lines
from hangdoctor.cli.trace.target import TracedRank
from hangdoctor.probe.calls import request as requests
from hangdoctor.probe.calls.choice import Choice
from hangdoctor.probe.calls.request import Request
from tests.support.probe_ranks import ROOT, environment
from tests.support.stage import hangdoctor


@pytest.mark.parametrize(
    ("follow", "ignore", "yes", "no"),
    [
        ("megatron,train", "", "megatron megatron.model.gpt train", "megatron_extra torch trainer"),
        ("torch", "torch.nn", "torch torch.optim", "torch.nn torch.nn.functional"),
        (
            "torch,torch.nn.parallel",
            "torch.nn",
            "torch.nn.parallel.distributed torch.optim",
            "torch.nn.functional torch.nn",
        ),
        ("*", "torch", "json threading train", "torch.nn hangdoctor.probe.process_probe"),
        ("json", "json", "", "json json.decoder"),
    ],
)
def test_packages_are_chosen_by_import_name(follow: str, ignore: str, yes: str, no: str) -> None:
    choice = Choice(tuple(filter(None, follow.split(","))), tuple(filter(None, ignore.split(","))))
    assert [m for m in yes.split() if not choice.follows(m)] == []
    assert [m for m in no.split() if choice.follows(m)] == []


def test_a_request_goes_through_the_folder(tmp_path: Path) -> None:
    assert requests.read(tmp_path) is None
    asked = Request(
        serial=7,
        on=True,
        follow=("a", "b.c"),
        ignore=("b.c.d",),
        from_iteration=10,
        ranks="0-3,8",
        size_mb=4.0,
    )
    requests.write(tmp_path, asked)
    path = tmp_path / requests.NAME
    assert requests.read(tmp_path) == asked and path.stat().st_mode & 0o777 == 0o600
    assert [r for r in range(10) if requests.concerns(asked, r)] == [0, 1, 2, 3, 8]
    path.write_text(json.dumps({"serial": 8, "on": False, "later": "field"}))
    assert requests.read(tmp_path) == Request(8, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"serial": 1}',
        '{"serial": 1, "on": true, "follow": "torch"}',
        "\x00",
        "[" * 60_000,
        '{"serial": 1, "on": true, "ranks": "0,x"}',
    ],
)
def test_what_is_no_request_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / requests.NAME).write_text(text)
    assert requests.read(tmp_path) is None


def test_requests_of_others_are_not_obeyed(tmp_path: Path) -> None:
    path = tmp_path / requests.NAME
    (tmp_path / "elsewhere").write_text(requests.encode(Request(1, True)))
    path.symlink_to(tmp_path / "elsewhere")
    assert requests.read(tmp_path) is None, "a link"
    path.unlink()
    path.write_text(requests.encode(Request(1, True)))
    path.chmod(0o666)
    assert requests.read(tmp_path) is None, "a file that anybody may have written"
    path.chmod(0o600)
    assert requests.read(tmp_path) is not None
    if os.getuid() == 0:
        os.chown(path, 65534, 65534)
        assert requests.read(tmp_path) is None, "another user's"
    path.unlink()
    os.mkfifo(path)
    assert requests.read(tmp_path) is None, "no file"


def test_while_it_is_off_nothing_is_installed(tmp_path: Path) -> None:
    """With the probe at work and its heartbeat going, the interpreter has no hook, and none of this
    code is loaded.
    """
    code = (
        "import sys, threading, time\n"
        "import hangdoctor.probe as p\n"
        "assert p.phase('forward') is not None\n"
        "from hangdoctor.probe.process_probe import probe\n"
        "box = probe.recorder.box\n"
        "probe._show_life(probe.recorder)\n"
        "beat = box.words[10]\n"
        "while box.words[10] == beat: time.sleep(0.05)\n"
        "assert sys.getprofile() is None and sys.gettrace() is None\n"
        "assert threading._profile_hook is None and threading._trace_hook is None\n"
        "tools = [sys.monitoring.get_tool(i) for i in range(6)] if sys.version_info >= (3, 12) else []\n"
        "assert not any(tools), tools\n"
        "assert probe.tracer is None\n"
        "loaded = [m for m in sys.modules if m.startswith('hangdoctor.probe.calls')]\n"
        "assert not loaded, loaded\n"
        "import os; assert sorted(os.listdir(box.path.parent)) == [box.path.name]\n"
        "print('off')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.stdout.strip() == "off", done.stderr


def test_from_the_start_in_ranks_only(tmp_path: Path) -> None:
    """`run --trace` traces the rank, not what the rank starts, and takes its files away at a good
    end.
    """
    (tmp_path / "work.py").write_text(
        "import os, subprocess, sys\n"
        "def step(): return 1\n"
        "step()\n"
        "folder = os.environ['HANGDOCTOR_DIR']\n"
        "own = sorted(os.listdir(folder))\n"
        "kinds = ' '.join(sorted(n.rpartition('.')[2] for n in own))\n"
        "child = 'import os; print(len(os.listdir(os.environ[\"HANGDOCTOR_DIR\"])))'\n"
        "seen = subprocess.run([sys.executable, '-c', child], capture_output=True, text=True).stdout.strip()\n"
        "from hangdoctor.readers.calls import read_calls\n"
        "trace = read_calls(next(folder + '/' + n for n in own if n.endswith('.calls')))\n"
        "names = [trace.functions[e.function].name for e in trace.events if e.kind == 'call']\n"
        "print(kinds, seen, trace.rank, trace.state, 'step' in names, set(trace.follow))\n"
    )
    job = tmp_path / "job"
    env = {**environment(job), "RANK": "2", "WORLD_SIZE": "4"}
    command = ("run", "--trace", "--follow", "work", "--", sys.executable, "work.py")
    assert (
        hangdoctor(*command, cwd=tmp_path, env=env).stdout.strip()
        == "blackbox calls ends 3 2 tracing True {'work'}"
    )
    assert list(job.iterdir()) == []
    env.pop("RANK")
    assert (
        "2 "
        not in hangdoctor(
            "run", "--trace", "--", sys.executable, "-c", "print(0)", cwd=tmp_path, env=env
        ).stdout
    )
    assert list(job.iterdir()) == []


def test_what_became_of_a_request_is_said() -> None:
    asked = Request(5, True, from_iteration=9)
    rows = [
        TracedRank(0, 10, "live", "tracing", True, variant="extension"),
        TracedRank(1, 11, "live", "tracing", True, variant="python"),
        TracedRank(2, 12, "live", "waiting", True),
        TracedRank(3, 13, "live"),
        TracedRank(4, 14, "live", note="no call tracing: no room"),
        TracedRank(5, 15, "live", "switched off", True, note="KeyError"),
    ]
    said = list(outcome_lines(asked, rows))
    assert said[0] == "rank 5: off after an internal error; details: hangdoctor trace status"
    assert said[1] == "ranks 0-1: tracing" and said[2].startswith(
        "rank 2: tracing starts at iteration 9"
    )
    assert said[3].startswith("rank 1: tracing in pure Python") and said[4].startswith(
        "rank 3: no answer yet"
    )
    assert said[5:] == ["rank 4: no call tracing: no room"]


def test_ranks_that_learn_later_that_they_are_ranks_begin_when_they_join(tmp_path: Path) -> None:
    """As torch.multiprocessing starts them: RANK is set by the program itself."""
    code = (
        "import os; os.environ.update(RANK='1', WORLD_SIZE='2')\n"
        "from hangdoctor.probe.process_probe import probe\n"
        "assert probe.tracer is None\n"
        "probe.joined(probe.begin())\n"
        "print(probe.tracer.ring.path.exists(), probe.tracer.hook is not None)"
    )
    env = {
        **environment(tmp_path),
        "HANGDOCTOR_TRACE": requests.encode(Request(1, True, ("__main__",))),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "True True", done.stderr
    assert not list(tmp_path.iterdir())


def test_without_room_the_job_goes_on_and_says_so(tmp_path: Path) -> None:
    code = (
        "import os; from hangdoctor.probe.process_probe import probe\n"
        "recorder = probe.begin()\n"
        "recorder.box.path.with_suffix('.calls').mkdir()  # in the way\n"
        "probe._trace_as_told(recorder)\n"
        "print(probe.broken, probe.tracer.broken, recorder.box.map[512:560].split(b'\\0')[0].decode())\n"
        "recorder.box.path.with_suffix('.calls').rmdir()"
    )
    env = {**environment(tmp_path), "RANK": "1", "HANGDOCTOR_TRACED": "True:1:-1"}
    env["HANGDOCTOR_TRACE"] = requests.encode(Request(1, True))
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("False True no call tracing: its file cannot be made"), (
        done.stderr
    )


def test_wrong_usage(tmp_path: Path) -> None:
    for arguments, says in (
        (["run", "--follow", "torch", "--", "true"], "Add --trace"),
        (["trace", "start", "--follow", "not-a-name"], "not an import name"),
        (["trace", "start", "--ranks", "x"], "list of ranks"),
    ):
        done = hangdoctor(*arguments, cwd=tmp_path, code=2)
        assert says in done.stderr and "Traceback" not in done.stderr
    done = hangdoctor("trace", "status", "--folder", str(tmp_path), cwd=tmp_path, code=1)
    assert "hangdoctor run" in done.stderr
