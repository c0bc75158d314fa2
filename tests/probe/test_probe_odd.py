"""Odd programs and settings: the probe neither changes what they do nor gives up recording for
them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.probe.identity import megabytes
from tests.support.probe_ranks import environment, ranks

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short one: the path of a Unix socket has room for 107 bytes."""
    return tmp_path_factory.mktemp("f")


def odd(env: dict[str, str], what: str) -> list[str]:
    with ranks("odd.py", 1, env, what) as started:
        code, out, err = started[0].end()
    assert code == 0 and "hangdoctor" not in err and "Traceback" not in err, err
    return out.splitlines()


def test_a_call_that_torch_refuses_does_not_switch_the_probe_off(tmp_path: Path) -> None:
    said, root = odd(environment(tmp_path), "refused")
    assert said.endswith(" on") and "done" not in said.split()
    assert root == "0"


def test_keys_that_can_be_gone_through_once_are_left_to_the_store(tmp_path: Path) -> None:
    assert odd(environment(tmp_path), "generator") == ["DistStoreError on"]


def test_a_handlers_exception_is_the_jobs_wherever_its_code_is_installed(tmp_path: Path) -> None:
    assert odd(environment(tmp_path), "handler") == ["on"]


def test_a_stderr_of_the_jobs_own_is_no_reason_to_stop(tmp_path: Path) -> None:
    assert odd(environment(tmp_path), "stderr") == ["on running"]


def test_counts_that_are_no_whole_numbers(tmp_path: Path) -> None:
    assert odd(environment(tmp_path), "numbers") == ["on 3 2 '' 3", "on -1"]


def test_a_handler_may_speak_to_the_probe_while_it_begins(tmp_path: Path) -> None:
    assert odd(environment(tmp_path), "beginning") == ["on"]


def test_without_a_worker_server_the_record_goes_on_and_says_why(tmp_path: Path) -> None:
    # Python's own start comes before the rank's number is known: a folder stands where each
    # possible socket would be.
    hook = "import os\nos.makedirs(os.path.join(os.environ['HANGDOCTOR_DIR'], f'hangdoctor-{process_name(os.getpid())}.sock', 'x'))\n"
    hook = f"from hangdoctor.probe.identity import process_name\n{hook}"
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(hook)
    env = environment(tmp_path / "boxes")
    env["PYTHONPATH"] += os.pathsep + str(tmp_path / "hooks")
    [said] = odd(env, "socket")
    assert said.startswith(("on ['no worker server: ", 'on ["no worker server: '))


def test_what_others_write_while_the_worker_server_is_made(tmp_path: Path) -> None:
    with ranks("odd.py", 1, environment(tmp_path), "meanwhile") as started:
        code, out, err = started[0].end()
    assert (code, out.splitlines()) == (0, ["stderr is a pipe", "on"]), err
    assert err.splitlines() == ["half a line, and the rest", "from a program"]


def test_nothing_is_printed_at_the_end_where_the_folder_has_changed(tmp_path: Path) -> None:
    assert odd(environment(tmp_path / "boxes"), "moved") == []


def test_the_folder_is_meant_from_where_the_rank_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert odd(environment(Path("boxes")), "elsewhere") == [f"True {tmp_path / 'boxes'}"]


def test_sizes_from_the_environment() -> None:
    told = ("8", "0.5", "4M", "nan", "inf", "-1", "", "1e400")
    assert [megabytes({"S": text}, "S", 4.0) for text in told] == [
        8.0,
        0.5,
        4.0,
        4.0,
        4.0,
        4.0,
        4.0,
        4.0,
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a container")
def test_containers_that_count_processes_by_themselves_share_a_folder(tmp_path: Path) -> None:
    for _ in range(2):  # in each the rank is process 1
        code = "from hangdoctor.probe.process_probe import probe; import os; print(os.getpid(), probe.begin().box.path, flush=True); os._exit(0)"
        command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
        done = subprocess.run(
            command, env=environment(tmp_path, RANK="0"), capture_output=True, text=True, timeout=60
        )
        if done.stderr.startswith("unshare: "):
            pytest.skip(f"no namespaces here: {done.stderr}")
        number, path = done.stdout.split()
        assert number == "1" and Path(path).name.startswith(f"{socket.gethostname()}-1-")
    # The kernel may give the second namespace the number of the first, which is over: one box or
    # two, but never "-1.blackbox".
    assert not (tmp_path / f"{socket.gethostname()}-1.blackbox").exists()
