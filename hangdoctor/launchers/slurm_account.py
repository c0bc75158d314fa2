"""Slurm's account of a job: how it ended, on which nodes, and where its output is.

`scontrol` knows a job until a few minutes after its end, `sacct` for as long as the site keeps its
accounts; a site without accounting has the first only.
"""

from __future__ import annotations

import calendar
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ..errors import JobNotFound, LauncherError
from ..model.log_facts import AnyFact, Cancelled, Ended, Finished, OomKill
from .remote import query
from .slurm_job import clean_environment

_ANSWER_S = 20.0
_NO_SUCH_JOB = "Invalid job id"  # of scontrol
_FIELD = re.compile(r"(\w+)=(.*?)(?=\s+\w+(?::\w+)?=|$)")
_COLUMNS = "JobID,State,ExitCode,NodeList,Start,End,WorkDir"
_WHYS = {
    "NODE_FAIL": "NODE FAILURE",
    "TIMEOUT": "TIME LIMIT",
    "PREEMPTED": "PREEMPTION",
    "CANCELLED": "",
    "DEADLINE": "TIME LIMIT",
}


class Account(Struct):
    """What Slurm says of one job."""

    job: str
    state: str
    exit_code: int = 0
    exit_signal: int = 0
    nodes: str = ""
    ended: float = 0.0
    outputs: list[Path] = []

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state not in ("RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED")

    def sentence(self) -> str:
        """The account as a line of the chain."""
        code = f"{self.exit_code}:{self.exit_signal}"
        return f"Slurm: job {self.job} {self.state}, exit code {code}, nodes {self.nodes or '?'}"

    def facts(self) -> list[AnyFact]:
        """The same as facts of a log."""
        if self.state in _WHYS:
            return [Cancelled(why=_WHYS[self.state])]
        if self.state == "OUT_OF_MEMORY":
            return [OomKill(events=1)]
        if self.state == "COMPLETED":
            return [Finished()]
        code = -self.exit_signal if self.exit_signal else self.exit_code
        return [Ended(code=code, by="slurm job")] if code and self.over else []


def account_of(job: str) -> Account:
    """Slurm's account of a job.

    Raises:
        JobNotFound: neither scontrol nor sacct knows it.
        LauncherError: there is no Slurm here, or it does not answer.
    """
    env = clean_environment(os.environ)
    answer = query(("scontrol", "show", "job", "-o", job), _ANSWER_S, env)
    lines = [line for line in answer.output.splitlines() if "JobId=" in line]
    if lines:
        return from_scontrol(job, lines[0])
    found = _from_sacct(job, env)
    if found is not None:
        return found
    instead = "Name its output instead: hangdoctor diagnose slurm-JOB.out"
    said = "".join(answer.errors.strip().splitlines()[-1:])
    if answer.code is None or (said and _NO_SUCH_JOB not in said):
        why = said or f"no answer within {_ANSWER_S:.0f} s"
        raise LauncherError(f"Slurm's controller did not answer: {why}", instead)
    raise JobNotFound(f"Slurm knows no job {job}", instead)


def from_scontrol(job: str, line: str) -> Account:
    """The account in a line of `scontrol show job -o`."""
    told = {name: value.strip() for name, value in _FIELD.findall(line)}
    code, _, signal = told.get("ExitCode", "0:0").partition(":")
    outputs = [told.get(name, "") for name in ("StdOut", "StdErr")]
    account = Account(
        job=job,
        state=told.get("JobState", ""),
        exit_code=int(code or 0),
        exit_signal=int(signal or 0),
        nodes=told.get("NodeList", "").replace("(null)", ""),
        ended=_stamp(told.get("EndTime", "")),
    )
    names = {"x": told.get("JobName", ""), "u": told.get("UserId", "").partition("(")[0]}
    folder = Path(told.get("WorkDir") or ".")
    account.outputs = _paths(outputs, folder, account, names)
    return account


def _from_sacct(job: str, env: Mapping[str, str]) -> Account | None:
    """The account that the site keeps; with the output's path where this sacct tells it."""
    for columns in (f"{_COLUMNS},StdOut,StdErr", _COLUMNS):
        try:
            answer = query(
                ("sacct", "-j", job, "-X", "-P", "-n", f"--format={columns}"), _ANSWER_S, env
            )
        except LauncherError:
            return None
        rows = [line.split("|") for line in answer.output.splitlines() if line.strip()]
        if rows:
            return _of_row(job, rows[-1])
    return None


def _of_row(job: str, row: list[str]) -> Account:
    code, _, signal = row[2].partition(":")
    state = row[1].split(" ")[0]
    account = Account(
        job, state, int(code or 0), int(signal or 0), nodes=row[3], ended=_stamp(row[5])
    )
    account.outputs = _paths(row[7:9], Path(row[6] or "."), account, {})
    return account


def _paths(told: list[str], folder: Path, account: Account, names: Mapping[str, str]) -> list[Path]:
    """The files of output, with Slurm's patterns filled in; the default name where none is given."""
    array, _, task = account.job.partition("_")
    first = account.nodes.split(",")[0].split("[")[0]
    values = {"j": account.job, "A": array, "a": task, "J": account.job, "N": first, "%": "%"}
    values |= names
    wanted = [t for t in told if t and t != "/dev/null"] or [f"slurm-{account.job}.out"]
    paths = [
        folder / re.sub(r"%\d*([jAaJNxu%])", lambda m: values.get(m[1], m[0]), text)
        for text in dict.fromkeys(wanted)
    ]
    return [path for path in paths if path.is_file()]


def _stamp(text: str) -> float:
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0.0
