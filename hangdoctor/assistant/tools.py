"""The tools themselves, without the protocol: each returns a text, or raises a HangdoctorError.

Captures and diagnoses run as commands of their own, with a time limit: what hangs there ends there. A
capture is kept in a folder of this process, which goes with it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ..diagnosis import diagnose
from ..errors import BadInput, HangdoctorError, LauncherError, UsageError
from ..model.diagnosis import Diagnosis
from ..readers import discover, job_choice, job_words, waiting_agents
from ..storage import bundle
from ..storage.incidents import Incidents
from ..transport import address
from . import answers

_LIMIT_S = 180.0
_MOST_INCIDENTS = 10
_MOST_OPERATIONS = 60
# Words of a target that stand alone: all that a job id behind them can name is this user's.
_OPEN_ENDED = ("--jobid",)
_TARGETS = ("--jobid", "--hostfile", "--pbs", "--k8s", "--ray", "--exec", "--hosts", "-n", "-c")


_PARAMETERS = (
    (re.compile(r"--job(?: (?:KEY|NAME))?\b(?!id)"), "`job`"),
    (re.compile(r"\bhangdoctor diagnose (\S+)"), r"the tool `diagnose` with the path \1"),
    (re.compile(r"^hangdoctor: ", re.M), ""),
)


class Consent(Struct, frozen=True):
    """What the user has allowed beyond this host: targets as flags of `dump`."""

    targets: tuple[tuple[str, ...], ...] = ()

    def allows(self, words: Sequence[str]) -> bool:
        """Whether this target was named, or is a job of a kind that was allowed as a whole."""
        wanted = tuple(words)
        if wanted in self.targets:
            return True
        is_job = len(wanted) == 2 and wanted[0] in _OPEN_ENDED and wanted[1][:1].isdigit()
        return is_job and wanted[:1] in self.targets


def consent(targets: Sequence[str]) -> Consent:
    """From the flags of the command line.

    Raises:
        UsageError: one is no target of `dump` on other nodes.
    """
    split = []
    for target in targets:
        words = tuple(shlex.split(target))
        if not words or words[0] not in _TARGETS:
            raise UsageError(
                f"--allow '{target}' is no target on other nodes",
                "Write it as flags of dump: --allow '--jobid 12345', or '--jobid' for all your jobs.",
            )
        split.append(words)
    return Consent(tuple(split))


def for_tools(said: str) -> str:
    """What a verb said of its own flags, in the words of the tools: they have parameters instead."""
    for flag, parameter in _PARAMETERS:
        said = flag.sub(parameter, said)
    return said


class Tools:
    """One for each server."""

    def __init__(self, allowed: Consent, folder: Path | None = None) -> None:
        """`folder` is a job's, for its incidents; None for the newest in ~/.hangdoctor/jobs."""
        self.allowed, self.folder = allowed, folder
        self._scratch = tempfile.TemporaryDirectory(prefix="hangdoctor-mcp-")
        self._captures: dict[str, Path] = {}

    def close(self) -> None:
        """Remove the captures."""
        self._scratch.cleanup()

    # ----------------------------------------------------------------- this host

    def jobs(self) -> str:
        """The training jobs on this host."""
        found = job_choice.all_here()
        several = len({job.user for job in found}) > 1
        lines = [job_words.in_brief(job, with_user=several) for job in found]
        lines += map(answers.waiting, waiting_agents.find(discover.uid_of(""), ways=False))
        return answers.cut(iter(lines or ["no rank processes found on this host"]))

    def dump(self, job: str = "") -> str:
        """Capture a job of this host and diagnose it."""
        named = [f"--job={job}"] if job else []
        return self._capture(["--local", *named])

    def dump_cluster(self, target: str) -> str:
        """Capture a job on other nodes, where the user has allowed it."""
        words = shlex.split(target)
        if not self.allowed.allows(words):
            known = "; ".join(shlex.join(one) for one in self.allowed.targets) or "none"
            raise UsageError(
                f"the user has not allowed a capture of {target!r} (allowed: {known})",
                f"The user can start this server with: hangdoctor mcp --allow {shlex.quote(target)}",
            )
        return self._capture(words)

    def _capture(self, words: Sequence[str]) -> str:
        name = f"capture-{len(self._captures) + 1}"
        place = Path(self._scratch.name) / name
        diagnosis = self._command("dump", *words, "--bundle", str(place))
        if bundle.is_bundle(place):
            self._captures[name] = place
        lines = [*answers.verdict(diagnosis), f"kept as {name}: ask for its stacks and operations"]
        return answers.cut(iter(lines))

    def _command(self, verb: str, *words: str) -> Diagnosis:
        """The diagnosis that a verb of hangdoctor writes.

        Raises:
            LauncherError: it failed, with its own last words, or took too long.
        """
        command = [sys.executable, "-m", "hangdoctor", verb, *words, "--json", "-", "--quiet"]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LauncherError(f"{verb} was ended after {_LIMIT_S:.0f} s") from error
        try:
            return msgspec.json.decode(done.stdout, type=Diagnosis)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            said = done.stderr.decode("utf-8", "replace").strip()[-600:]
            raise LauncherError(
                for_tools(said) or f"{verb} exited with code {done.returncode}"
            ) from error

    # ----------------------------------------------------------------- what was saved

    def diagnose(self, path: str) -> str:
        """Diagnose a bundle, job logs, dumps or black boxes."""
        place = Path(path).expanduser()
        if not place.exists():
            raise BadInput(f"{path} does not exist")
        return answers.cut(answers.verdict(self._command("diagnose", str(place.absolute()))))

    def incidents(self) -> str:
        """The newest incidents and events of the training."""
        kept = self._incidents()
        listed = [*answers.incidents(kept.rows(), _MOST_INCIDENTS)]
        said = answers.events(kept.events(_MOST_INCIDENTS), _MOST_INCIDENTS)
        return answers.cut(iter([*listed, *said]))

    def incident(self, id: str = "last") -> str:
        """One incident, diagnosed again from its bundle."""
        kept = self._incidents()
        row = kept.find(id)
        diagnosis = diagnose(bundle.load(kept.folder / row.id), lenient=True)
        head = [f"{row.id} {answers.clock(row.at)}: {row.reason}"]
        acted = [f"action {line}" for line in row.actions.splitlines()]
        return answers.cut(iter([*head, *acted, *answers.verdict(diagnosis)]))

    def stacks(self, rank: int, capture: str = "") -> str:
        """The stacks of one rank in a capture."""
        loaded = bundle.load(self._bundle(capture))
        return answers.cut(answers.stacks(diagnose(loaded, lenient=True).stacks, rank))

    def operations(self, rank: int, capture: str = "", last: int = 20) -> str:
        """The last operations of one rank in a capture."""
        many = min(max(1, last), _MOST_OPERATIONS)
        return answers.cut(answers.operations(bundle.load(self._bundle(capture)), rank, many))

    def _bundle(self, named: str) -> Path:
        """A capture of this server, by default the newest; else a bundle by its path, or an
        incident by its id.

        Raises:
            HangdoctorError: there is none of that name.
        """
        if not named and self._captures:
            return list(self._captures.values())[-1]
        if named in self._captures:
            return self._captures[named]
        place = Path(named).expanduser()
        if named and bundle.is_bundle(place):
            return place
        try:
            kept = self._incidents()
            return kept.folder / kept.find(named or "last").id
        except HangdoctorError as error:
            if not named:
                raise BadInput(
                    f"there is no capture yet, and no incident: {error}",
                    "Capture first: the tool `dump`.",
                ) from error
            known = ", ".join(self._captures) or "none yet"
            raise BadInput(
                f"there is no capture '{named}' (captures: {known}), and no such incident: {error}",
                "Capture first: the tool `dump`.",
            ) from error

    def _incidents(self) -> Incidents:
        if self.folder is not None:
            return Incidents(self.folder, create=False)
        every = address.job_folder("-").parent.glob("*/incidents/index.sqlite")
        newest = sorted(every, key=lambda path: path.stat().st_mtime)
        if not newest:
            raise BadInput(
                "no collector has saved incidents in ~/.hangdoctor/jobs",
                "Start the server with the job's folder: hangdoctor mcp --folder DIR",
            )
        return Incidents(newest[-1].parents[1], create=False)
