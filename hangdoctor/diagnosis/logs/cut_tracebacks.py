"""Tracebacks without their last line: whether other lines tell how they ended, so that they are no cause."""

from __future__ import annotations

from ...model.frame import Frame
from ...model.log_facts import (
    AnyFact,
    Cancelled,
    GlooTimeout,
    KnownError,
    Mismatch,
    PeerClosed,
    PythonError,
    Signalled,
    TimedOut,
)
from ...stacks.user_code import is_standard
from ...text.late import late
from ..findings.log_remaining import LogRemaining, Undecided
from ..findings.named import Op
from .by_torch import still_waiting
from .candidate import is_named
from .scene import HCCL_WAIT, LIMITS, Scene

_STARTS = frozenset({"_bootstrap", "_bootstrap_inner", "run", "_run_code", "_run_module_as_main"})
_FIRST = late(r"\b((?:local_)?(?:main_process|rank_zero|zero|master)_first)\(")
_WAITS = late(
    r"\b((?:monitored_)?barrier|wait_for_everyone|\w{0,40}store\.(?:get|wait|multi_get)"
    r"|\w{0,40}(?:mq|queue)\.(?:dequeue|get))\("
)
_INNERMOST = 3  # frames
_RIGHT_ABOVE = 3  # lines
_BY_THE_WAY = (
    "worker_of_rank",
    "asyncio_cancelled",
    "ray_killed",
)  # rules: no failure is behind it


def is_explained(scene: Scene, position: int, cut: AnyFact) -> bool:
    """Whether other lines tell how a traceback without its last line ended, as torch's check of
    operations does, which raises what it finds on every rank; or the job had not begun.
    """
    if scene.of(Mismatch) or (cut.rank < 0 and still_waiting(scene)):
        return True
    if _is_the_launchers(scene, cut) or _had_lost(scene, position, cut):
        return True
    if any(f.file == cut.file and f.line < cut.line for f in scene.of(Cancelled)):
        return True  # it may be how the job ended
    said = [v for v in _words_of_victims(scene, position) if _is_ordered(v, cut)]
    return any(
        _speaker(v) != _speaker(cut) or _is_whole(v, cut) or _is_right_above(v, cut) for v in said
    )


def says_nothing(cut: AnyFact) -> bool:
    """Whether it names nobody, and has only frames by which Python starts any process or thread; or ends
    in a barrier, whose rank waits for others.
    """
    if not isinstance(cut, PythonError):
        return False
    if _awaited_in(cut) is not None:
        return True
    starts = all(is_standard(frame) and frame.name in _STARTS for frame in cut.frames)
    return starts and bool(cut.frames) and not is_named(cut)


def cut_in_wait(scene: Scene) -> LogRemaining | None:
    """The wait for other ranks in which a traceback without its last line ends."""
    for cut in scene.of(PythonError):
        wait = _awaited_in(cut) if not (cut.error or cut.survived) else None
        if wait is not None:
            call, frame = wait
            ranks = (cut.rank,) if cut.rank >= 0 else ()
            return LogRemaining(
                Undecided.CUT_IN_WAIT,
                ranks,
                Op(call, frame=frame),
                process=cut.pid,
                last=scene.quote(cut),
            )
    return None


def _awaited_in(cut: PythonError) -> tuple[str, Frame] | None:
    """The call by which it waits for other ranks, and the frame of it: one in which all wait for the first."""
    for frame in cut.frames:
        match = _FIRST.search(frame.code)
        if match is not None:
            return match[1], frame
    for frame in cut.frames[:_INNERMOST]:
        match = _WAITS.search(frame.code)
        if match is not None:
            return match[1], frame
    return None


def _is_ordered(said: AnyFact, cut: AnyFact) -> bool:
    """Whether something shows which of the two came first: one file, or stamps of both."""
    return said.file == cut.file or min(said.at, cut.at) > 0


def _is_whole(said: AnyFact, cut: AnyFact) -> bool:
    """Whether nothing shows whose the cut one is, and a whole error stands before it in the same file: the
    end of the job was there already.
    """
    whole = isinstance(said, PythonError) and bool(said.error)
    return whole and cut.rank < 0 and said.file == cut.file


def _is_right_above(said: AnyFact, cut: AnyFact) -> bool:
    """Whether it is what the library below Python had logged of the same failure."""
    of_library = isinstance(said, KnownError) and said.file == cut.file
    lines = _RIGHT_ABOVE + said.times - 1  # it may have said so again and again until then
    return of_library and cut.rank < 0 and 0 < cut.line - said.line <= lines


def _speaker(fact: AnyFact) -> tuple[int, int]:
    return fact.rank, fact.pid


def _words_of_victims(scene: Scene, position: int) -> list[PythonError | KnownError]:
    """What others said before that a failure explains: by then it had come."""
    said = [f for at, f in scene.positioned(PythonError, KnownError) if at < position]
    return [
        f
        for f in said
        if isinstance(f, PythonError | KnownError)
        and f.role == "consequence"
        and not f.survived
        and f.rule not in _BY_THE_WAY
    ]


def _is_the_launchers(scene: Scene, fact: AnyFact) -> bool:
    """Whether it follows the launcher's word that it was asked to end, and no rank says it."""
    asked = [f for f in scene.of(Signalled) if f.file == fact.file]
    return fact.rank < 0 and any(f.line < fact.line for f in asked)


def _had_lost(scene: Scene, position: int, fact: AnyFact) -> bool:
    """Whether its rank had said before that it lost another one, or waited to a limit."""
    lost = scene.positioned(PeerClosed, GlooTimeout, TimedOut, KnownError)
    return fact.rank >= 0 and any(
        f.rank == fact.rank and at < position
        for at, f in lost
        if not isinstance(f, KnownError) or f.rule in (*LIMITS, HCCL_WAIT)
    )
