"""What failed first: a node, a device, a process, a rank's own exception, before the first wait
that reached its limit.

Whatever follows from another process's end names no rank: a closed connection, a watchdog's abort, a
process that the launcher ended.
"""

from __future__ import annotations

from ...model.log_ends import CRASH_CODES
from ...model.log_facts import (
    MPI_ABORT,
    AnyFact,
    Cancelled,
    Ended,
    KnownError,
    NodeLost,
    PythonError,
)
from ...text.ranges import parse_hosts
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import LoggedDeath, NodeFailed
from .candidate import First
from .cleaned_up import by_the_launcher
from .error_findings import only_warned
from .first_death import first_death
from .first_error import first_error
from .gave_up_waiting import for_the_dead
from .scene import Scene, is_dated
from .swept import is_sweep

_ABORTS = frozenset({-6, 134})
_THROWN = ("cxx_exception", "assertion")  # rules of errors by which a program aborts
_REPORT = "actor_died"  # a rule
_MPIRUN = "Open MPI"  # it lost its own process there, and knows no more
_SOON_S = 90.0  # an error so long before a death is no consequence of it


def lost_node(scene: Scene) -> First | None:
    """Slurm's word on nodes: `Node failure on n12`; "ON n3" of a cancelled step names none."""
    lost = scene.of(NodeLost)
    facts: list[AnyFact] = [*lost]
    if not lost:
        facts += [f for f in scene.of(Cancelled) if "NODE FAIL" in f.why]
    if not facts:
        return None
    lists = [text for fact in lost for text in fact.nodes]
    nodes = sorted({node for text in lists for node in parse_hosts(text)})
    ranks = sorted(r for r, n in scene.homes.items() if n in nodes)
    by = lost[0].by if lost else "Slurm"
    named = Ground.LOG_DAEMON if by == _MPIRUN else Ground.LOG_NODE
    finding = Finding(
        kind="unreachable",
        ranks=ranks,
        story=NodeFailed(tuple(nodes), by=by),
        confidence=sure(named if nodes else Ground.LOG_SOME_NODE),
        nodes=nodes,
    )
    return First(finding, facts, bool(nodes))


def failure(scene: Scene) -> First | None:
    """The first of errors and deaths; None where the log holds consequences only."""
    error, death = first_error(scene), first_death(scene)
    if error is None or death is None:
        return error or death
    if only_warned(error.facts) or _is_reported(error, death):
        return death
    if error.finding.kind == "mismatch" and _aborts_only(death):
        return error  # the library ends whichever rank receives what it does not expect
    if isinstance(error.facts[0], PythonError | KnownError) and is_sweep(scene, error.facts[0]):
        return error
    if by_the_launcher(scene, error.facts[0], death.facts):
        return error
    if _only_below(error, death):
        return death
    same = bool(set(error.finding.ranks) & set(death.finding.ranks))
    if same and error.finding.kind == "unreachable":
        return death  # of whom another had not heard, for that
    if _is_of_its_rank(error, death) or for_the_dead(scene, error, death):
        return death
    explains = not error.named and _explains(error, death.facts[0])
    if same or explains or not death.named:
        return error if error.named or explains or not death.named else death
    if isinstance(death.finding.story, LoggedDeath) and _rather_death(error, death):
        return death
    return error


def _is_reported(error: First, death: First) -> bool:
    """Whether the error is another's word on the end of some process, where the kernel says that it killed one."""
    reports = all(
        isinstance(f, PythonError | KnownError) and f.rule == _REPORT for f in error.facts
    )
    story = death.finding.story
    return reports and not error.named and isinstance(story, LoggedDeath) and story.memory


def _only_below(error: First, death: First) -> bool:
    """Whether an error without a name is below a launcher's line on a process that had crashed by then:
    nothing shows that it came first.
    """
    end, said = death.facts[0], error.facts[0]
    crash = isinstance(end, Ended) and end.code in CRASH_CODES and end.by == "torchelastic"
    nobodys = not error.named and max(said.rank, said.local) < 0
    below = said.file == end.file and said.line > end.line
    dated = is_dated(said) and is_dated(end)
    return crash and nobodys and below and not (dated and said.at < end.at)


def _is_of_its_rank(error: First, death: First) -> bool:
    """Whether a process says that it crashed, and its launcher names the one rank of that node that did."""
    one, other = error.finding, death.finding
    crash = one.kind == other.kind == "dead" and not one.ranks and len(other.ranks) == 1
    return crash and bool(one.nodes) and one.nodes == other.nodes


def _aborts_only(death: First) -> bool:
    ends = [f for f in death.facts if isinstance(f, Ended)]
    return bool(ends) and all(f.code in _ABORTS for f in ends)


def _explains(error: First, end: AnyFact) -> bool:
    """Whether an error that a rule knows, whosever it is, stands above the exits of ranks that failed by
    themselves.
    """
    said = error.facts[0]
    own = isinstance(said, KnownError) and error.finding.kind == "error"
    exited = isinstance(end, Ended) and end.code > 0 and end.by != MPI_ABORT
    aborts = isinstance(said, KnownError) and said.rule in _THROWN
    exited |= aborts and isinstance(end, Ended) and end.code in _ABORTS
    return own and exited and said.file == end.file and said.line < end.line


def _rather_death(error: First, death: First) -> bool:
    """A process that was killed did not wait for another's exception: unless that came well before,
    or is one that no neighbour's end explains.
    """
    earlier, later = error.facts[0], death.facts[0]
    if not error.named:
        return True
    known = isinstance(earlier, PythonError | KnownError) and earlier.rule
    if known or later.at <= 0 or earlier.at <= 0:
        return not known
    return later.at - earlier.at < _SOON_S
