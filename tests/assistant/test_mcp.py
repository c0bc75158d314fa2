"""An assistant's questions about a real hung job, by the SDK's own client over standard input and output."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.assistant import answers
from hangdoctor.assistant.tools import Consent, Tools, consent, for_tools
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import BadInput, UsageError
from hangdoctor.storage import bundle
from hangdoctor.storage.incidents import Incidents
from tests.support.stage import Stage, hangdoctor

ROOT = Path(__file__).parents[2]
NAMES = {
    *("jobs", "dump", "dump_cluster", "diagnose"),
    *("incidents", "incident", "stacks", "operations"),
}


def save_an_incident(place: Path, folder: Path) -> str:
    """As a collector does, of a bundle that was captured before."""
    capture = bundle.load(place)
    return Incidents(folder).save(capture, diagnose(capture), "", "stall").id


async def ask(folder: Path, key: str, saved: str) -> dict[str, str]:
    """Each answer by the question; of errors with their text."""
    from mcp import Client, StdioServerParameters, stdio_client

    there = f"--exec 'sh -c {{command}} {{host}}' --hosts n1 --job {key}"
    words = ["-m", "hangdoctor", "mcp", "--folder", str(folder), "--allow", there]
    environ = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder.parent)}
    server = StdioServerParameters(command=sys.executable, args=words, env=environ)
    said: dict[str, str] = {}

    async def call(name: str, **given: Any) -> str:
        found = await client.call_tool(name, given)
        [text] = found.content
        said[" ".join([name, *map(str, given.values())])] = text.text
        assert found.is_error == text.text.startswith("Error"), text.text
        return str(text.text)

    async with Client(stdio_client(server)) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == NAMES
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        await call("jobs")
        await call("stacks", rank=1, capture="capture-1")
        await call("dump", job="no-such-job")
        await call("dump", job=key)
        await call("stacks", rank=1)
        await call("operations", rank=0, last=3)
        await call("operations", rank=7)
        await call("diagnose", path=saved)
        await call("stacks", rank=1, capture=saved)
        await call("incidents")
        await call("incident", id="last")
        await call("dump_cluster", target="--jobid 5")
        said["there"] = await call("dump_cluster", target=there)
    return said


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_the_questions_about_a_hung_job(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="needs the extra mcp")
    environ = {
        "HANGDOCTOR_DIR": str(tmp_path / "boxes"),
        "PYTHONPATH": f"{ROOT / 'hangdoctor' / 'probe' / 'startup'}:{ROOT}",
    }
    with Stage(tmp_path / "job", world=2, environ=environ) as job:
        job.wait_ready()
        job.play("sleep", rank=1)
        saved = str(tmp_path / "saved")
        hangdoctor("dump", "--local", "--job", job.key, "--bundle", saved, cwd=tmp_path)
        id = save_an_incident(Path(saved), tmp_path / "folder")
        said = asyncio.run(ask(tmp_path / "folder", job.key, saved))
        pid = job.pid(1)
    culprit = f"Rank 1 ({os.uname().nodename}, pid {pid}) never reached"
    assert job.key in said["jobs"] and "2 ranks of stage.py" in said["jobs"]
    for question in (f"dump {job.key}", f"diagnose {saved}", "incident last"):
        assert culprit in said[question] and "cause: not_entered" in said[question], question
        assert (
            "waiting in all_reduce: rank 0, for rank 1" in said[question]
            and len(said[question]) < 4000
        )
    unknown = said["dump no-such-job"]
    assert "no job 'no-such-job' on this host" in unknown and "Choose one with `job`." in unknown
    own = {question: answer for question, answer in said.items() if "cluster" not in question}
    assert not [question for question, answer in own.items() if "--job" in answer]
    assert "kept as capture-1" in said[f"dump {job.key}"]
    for question in ("stacks 1", f"stacks 1 {saved}"):
        assert "  sleep (" in said[question].splitlines()[1]
    lines = said["operations 0 3"].splitlines()
    assert len(lines) == 4 and "all_reduce #" in lines[-1] and "entered " in lines[-1]
    assert said["operations 7"] == "rank 7 is not in this capture"
    assert "there is no capture 'capture-1' (captures: none yet)" in said["stacks 1 capture-1"]
    assert said["incidents"].startswith(id) and f"hang not_entered: {culprit}" in said["incidents"]
    assert "has not allowed a capture of '--jobid 5'" in said["dump_cluster --jobid 5"]
    assert "hangdoctor mcp --allow '--jobid 5'" in said["dump_cluster --jobid 5"]
    assert culprit in said["there"]
    assert "kept as capture-2" in said["there"]
    assert not list(tmp_path.glob("hangdoctor-mcp-*"))


def test_captures_beyond_this_host_are_those_that_the_user_named() -> None:
    assert not Consent().allows(["--jobid", "5"])
    some = consent(["--jobid 5", "--hostfile 'my hosts'"])
    assert some.allows(["--jobid", "5"]) and some.allows(["--hostfile", "my hosts"])
    assert not some.allows(["--jobid", "6"]) and not some.allows(["--jobid", "5", "--python", "x"])
    every = consent(["--jobid"])
    assert every.allows(["--jobid", "7.0"]) and not every.allows(["--jobid", "--pid"])
    for words in ("", "--local", "--python x", "5"):
        with pytest.raises(UsageError, match="is no target on other nodes"):
            consent([words])


def test_an_answer_names_the_parameter_of_the_tool_and_not_the_flag() -> None:
    assert for_tools("hangdoctor: 2 jobs. Choose one by a process id of it: --job KEY.") == (
        "2 jobs. Choose one by a process id of it: `job`."
    )
    read = "Ranks have left black boxes. Read them: hangdoctor diagnose /dev/shm/x-1."
    assert for_tools(read).endswith("the tool `diagnose` with the path /dev/shm/x-1.")
    assert for_tools("hangdoctor dump --jobid 5") == "hangdoctor dump --jobid 5"


def test_an_answer_has_a_limit_and_hides_nothing() -> None:
    said = answers.cut(f"line {n} \x1b[31m" + "x" * 90 for n in range(1000))
    assert len(said) < answers.MOST_CHARACTERS + 100
    assert said.splitlines()[-1].endswith(" more lines)") and "\x1b" not in said
    assert answers.cut(iter(["a", "b"])) == "a\nb"


def test_a_path_that_is_not_there_and_incidents_that_are_not(tmp_path: Path) -> None:
    tools = Tools(Consent(), tmp_path)
    try:
        with pytest.raises(BadInput, match="does not exist"):
            tools.diagnose(str(tmp_path / "nothing"))
        with pytest.raises(BadInput, match="there is no capture yet, and no incident: "):
            tools.stacks(0)
        with pytest.raises(BadInput, match="has no incidents"):
            tools.incidents()
    finally:
        tools.close()


def test_without_the_extra_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    """The rest of hangdoctor does not ask for it."""
    (tmp_path / "mcp.py").write_text("raise ImportError('blocked')\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-m", "hangdoctor", "mcp"]
    done = subprocess.run(command, env=environ, timeout=60, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert "hangdoctor mcp needs the package mcp" in done.stderr
    assert "-m pip install 'mcp>=2.3,<3'" in done.stderr
