"""Errors of Python, at the end of their tracebacks: what a rule knows of them, who logged them, and what the next
lines of their message tell.
"""

from __future__ import annotations

from ...model.log_facts import PythonError
from ...stacks.user_code import is_users
from ...text.late import late
from .beneath import Beneath
from .ending_others import is_agents, is_of_end
from .facts_of_file import FactsOfFile
from .lines_below import LinesBelow
from .logged import Logged, named_by
from .prefix import Said, Speaker
from .raised_again import RaisedAgain
from .rules import Rule, Rules
from .rules_tried import RulesTried

_TORN = 25  # lines of others between the parts of a traceback
_NEAR = 60  # lines of all speakers
_MORE = 4  # lines that the message of an error may go on in
# Where torch and what stands on it call and await collectives
_COLLECTIVES = late(
    r"torch/distributed/(?:distributed_c10d|c10d_logger|_functional_collectives|nn/functional)\.py$|deepspeed/comm/\w+\.py$"
)
_OF_ACTOR = late(r"\(pid=(\d{1,9}), ip=([\w.:-]{1,80})")  # which Ray says has died


class PythonErrors:
    """Of one file."""

    def __init__(
        self,
        rules: Rules,
        tried: RulesTried,
        kept: FactsOfFile,
        beneath: Beneath,
        below: LinesBelow,
    ) -> None:
        self._rules, self._tried, self._kept = rules, tried, kept
        self._beneath, self._below = beneath, below
        self._logged = Logged()
        self._again = RaisedAgain()
        # Errors that no rule knew: their message may go on in the next lines.
        self._unknown: dict[Speaker, tuple[PythonError, int]] = {}

    def look(self, said: Said) -> None:
        """Any line, before the stacks take it: a logger may print a traceback below it."""
        self._logged.look(said)

    def keep(self, error: PythonError, said: Said, text: str, original: bool) -> None:
        """An error, by the last line of its traceback; `original`: that another one was raised from."""
        error.local = self._kept.earlier.spawned(said)
        self._tried.try_beside_error(said, text)
        rule = self._rules.known(f"{error.error}: {error.message}") or self._in_collective(error)
        if self._beneath.is_report(error, said) or is_of_end(error.frames):
            error.role = "launcher"
        if rule is not None:
            error.rule, error.role = rule.id, rule.role
            _name(error, rule, said.text)
        if error.role == "consequence" and is_agents(error.frames):
            error.role = "launcher"
        head = self._logged.head_of(said)
        if original and self._again.take(error, said.speaker()):
            return
        if head is not None:
            error.logged = True
            error.rank = named_by(head) if error.rank < 0 else error.rank
        repeated = self._logged.is_repeated(said, error.error)
        kept = self._kept.keep(error, said, text)
        if repeated and isinstance(kept, PythonError) and kept.times > 1:
            kept.logged = True
        self._again.keep(kept, said.speaker())
        self._below.begin_error(kept, said)
        if rule is None and isinstance(kept, PythonError):
            self._unknown[said.speaker()] = (kept, _MORE)

    def _in_collective(self, error: PythonError) -> Rule | None:
        """The rule that knows it by its words and by where it was raised."""
        inner = error.frames[0].file if error.frames else ""
        if not _COLLECTIVES.search(inner):
            return None
        return self._rules.known(f"in a collective: {error.error}: {error.message}")

    def go_on(self, said: Said) -> None:
        """A line that may belong to the message of an error: what it tells of that."""
        if not self._unknown:
            return
        waiting = self._unknown.pop(said.speaker(), None)
        if waiting is None:
            return
        error, left = waiting
        if self._kept.place.line > error.line + _NEAR:
            return  # others spoke for long
        if said.at and not error.at:
            return  # a record of its own, with its time, as of JAX's service behind a traceback
        known = self._rules.known(said.text)
        if known is not None and known.role == "launcher" and error.message:
            return  # another process speaks
        if known is not None and known.role == "note":
            return  # no error's words: what its process printed next
        if known is not None and known.role == "consequence" and _is_own(error):
            return  # what a library printed after it, as JAX's of the other processes
        if known is not None:
            error.rule, error.role = known.id, known.role
            error.values = known.values(said.text)
        elif left > 1:
            self._unknown[said.speaker()] = (error, left - 1)

    def end_message(self, said: Said) -> None:
        """A line that is no part of the message of an error."""
        self._unknown.pop(said.speaker(), None)

    def keep_cut(self, error: PythonError, said: Said, alone: bool) -> None:
        """The error of a traceback whose last line is not in the file; `alone`: no other one is like that."""
        error.local = self._kept.earlier.spawned(said)
        if error.rank < 0 and said.rank < 0:
            error.rank = self._logged.rank_of_head(said)
        if alone:
            self._complete(error, said)
        self._kept.keep(error, said, "traceback without its last line")

    def _complete(self, error: PythonError, said: Said) -> None:
        """A traceback that another rank's lines tore: its message may go on behind them. The only error
        that a rule knows of the same speaker, after its beginning.
        """
        begin = self._kept.place.line
        later = [f for f in self._kept.known_errors() if begin < f.line <= begin + _TORN]
        own = [f for f in later if f.role == "cause" and not f.logged]
        same = [f for f in own if (f.rank, f.local, f.task) == (said.rank, said.local, said.task)]
        if len(same) == len(own) == 1 and self._rules.is_own(same[0].rule):
            error.rule, error.values = same[0].rule, same[0].values


def _is_own(error: PythonError) -> bool:
    """Whether the user's own line raised it, in words of its own."""
    return bool(error.message and error.frames) and is_users(error.frames[0])


def _name(error: PythonError, rule: Rule, text: str) -> None:
    """Rank and node, where the error's own words tell them."""
    error.values = told = rule.values(text)
    error.rank = int(told["rank"]) if told.get("rank") else error.rank
    error.node = told.get("node") or error.node
    died = _OF_ACTOR.search(text) if rule.id == "actor_died" else None
    if died is not None and not error.pid:
        error.pid, error.node = int(died[1]), died[2]
    if rule.id == "actor_creation":
        error.pid = int(told.get("pid") or error.pid)
    if rule.id == "spark_task":
        error.worker = told["worker"]
