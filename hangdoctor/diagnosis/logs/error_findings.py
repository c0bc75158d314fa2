"""The finding that an error of a log makes: who had it, alone or with others, what it says, and how sure that
is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, structs

from ...model.frame import Frame
from ...model.log_ends import CRASHES
from ...model.log_facts import NAN_GUARD, AnyFact, Ended, KnownError, PythonError, RuleText
from ...text.late import late
from ...text.ranges import format_ranks
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import FailedFirst, LinkBroken, Someone
from . import lost_devices, shared_gpus
from .candidate import Error, First, one_place, someone
from .nccl_reasons import with_its_reason
from .no_rank import without_rank
from .one_of_them import (
    can_have_said,
    crashed_too,
    exited_alike,
    further_stacks,
    said_by_more,
)
from .relayed import relayed
from .scene import Scene, is_dated, nodes_named, ranks_named

ONE_MOMENT_S = 2.0  # which clocks of nodes differ by
OF_ACTORS = ("actor_died", "actor_creation")  # rules
_MESH = "gloo_mesh"  # another one
_OF_CARDS = ("gpu_page_fault", "gpu_fault")  # others
_MESH_SAYS = "Gloo connectFullMesh failed"
_REPEATED = late(r" ?\[repeated (\d{1,6})x across cluster\]")  # Ray's
_VALUE = late(r"\{(:? ?)([a-z_]{1,20})\}")
# Rules of errors that say no more than how a process ended; a bus error is mostly that of a full file system
_OF_PLACES = frozenset({*CRASHES, "fortran", "fortran_gnu"} - {"bus_error"})
# Rules of what drivers and kernels say of a device of their node
_DEVICE = late(r"(?:xid(?!_app)|gpu_lost$|pcie_|kernel_efa$)")
# Rules of errors whose lines name devices, or ranks, other than who says so.
_OF_DEVICES = {
    lost_devices.RULE: lost_devices.lost_devices,
    shared_gpus.RULE: shared_gpus.shared_gpus,
}


def only_warned(facts: Sequence[AnyFact]) -> bool:
    """Whether all of them are warnings, which a program prints and goes on."""
    return all(isinstance(f, KnownError) and f.logged for f in facts)


def line_of(error: PythonError) -> tuple[str, int] | None:
    """Where it was raised: function and line."""
    return (error.frame.name, error.frame.line) if error.frame is not None else None


def of_errors(scene: Scene, first: Error, alike: Sequence[Error]) -> First:
    """The candidate that an error makes, with those like it."""
    text = scene.logs.rules.get(first.rule) or RuleText(meaning="")
    if text.between:
        return _of_link(text, alike)
    by_device = _OF_DEVICES.get(first.rule)
    named = by_device(scene, text, alike) if by_device is not None else None
    return named or _of_speakers(scene, text, first, alike)


class _Alike(Struct):
    """What failed like the first error, beside those that printed the same."""

    every: list[AnyFact]  # all facts, those of the error too
    exited: Sequence[AnyFact]  # tasks that ended with the same code
    more: int  # processes that have no name
    nodes: tuple[str, ...]  # of the exited, and of those without a name


def _of_speakers(
    scene: Scene,
    text: RuleText,
    first: Error,
    alike: Sequence[Error],
) -> First:
    """The error as that of the processes that printed it."""
    crashed, exited = crashed_too(scene, alike), exited_alike(scene, alike)
    more = said_by_more(scene, alike) or len(crashed.nameless)
    with_it = _Alike(
        every=[*alike, *crashed.ends, *exited],
        exited=exited,
        more=more,
        nodes=tuple(sorted(nodes_named(exited) or set(crashed.nameless))),
    )
    # Who receives what does not fit is one side of it, and mostly the one that made the right call.
    mismatch = text.kind == "mismatch"
    ranks = [] if mismatch else ranks_named(with_it.every)
    nodes = [] if mismatch else scene.places(ranks, with_it.every)
    is_named = bool(ranks or nodes)
    story = _story(scene, text, first, alike, with_it, nodes=nodes, several=len(ranks) > 1)
    frame = _frame(first, alike)
    if frame is not None and frame.line and first.rule in _OF_PLACES:
        story = structs.replace(story, advice="")  # the place itself says where to look
    ground = _ground(first, story, ranks, alike_elsewhere=more > 0 or bool(exited))
    if not is_named and story.someone == Someone() and not (mismatch or story.device):
        ranks = can_have_said(scene, alike)
        nodes = scene.nodes(ranks)
        story = structs.replace(story, one_of=bool(ranks))
    finding = Finding(
        kind=text.kind,  # type: ignore[arg-type]
        ranks=ranks,
        story=story,
        confidence=sure(ground),
        nodes=nodes,
        frame=frame,
    )
    finding.where.frame = str(frame) if frame is not None else None
    return First(finding, with_it.every, is_named)


def _story(
    scene: Scene,
    text: RuleText,
    first: Error,
    alike: Sequence[Error],
    with_it: _Alike,
    *,
    nodes: Sequence[str],
    several: bool,
) -> FailedFirst:
    raised = _raised(first)
    speakers = tuple(ranks_named(alike))
    mismatch = text.kind == "mismatch"
    return FailedFirst(
        error=raised.error,
        message=_REPEATED.sub("", raised.message),
        meaning=filled(text.meaning, _with_all_cards(with_its_reason(scene, first, alike), alike))
        or _inner(first),
        advice=filled(text.advice, first),
        someone=_who(scene, first, alike, [*alike, *further_stacks(scene, alike)]),
        nodes=tuple(scene.places(speakers, alike) if mismatch else nodes),
        by=speakers if mismatch else (),
        went_on=only_warned([first]),
        thread=raised.thread,
        others=len(ranks_named(with_it.exited)) or _repeated(first, alike, with_it.more),
        others_on=with_it.nodes,
        spoke=speakers if with_it.exited else (),
        together=several and _is_unordered(text, first, alike),
        device=_DEVICE.match(first.rule) is not None and someone(first, alike) == Someone(),
    )


def _is_unordered(text: RuleText, first: Error, alike: Sequence[AnyFact]) -> bool:
    """Whether nothing shows which of those that failed alike was first."""
    if first.rule in CRASHES or not first.rule:
        return True
    if text.kind != "error":
        return False
    dated = [f.at for f in alike if is_dated(f)]
    return len(dated) < 2 or max(dated) - min(dated) < ONE_MOMENT_S


def _raised(first: Error) -> PythonError:
    """The exception; of an engine's that repeats a worker's, that one."""
    if not isinstance(first, PythonError):
        return PythonError(message=first.says)
    inner = _inner(first)
    return PythonError(message=inner) if inner else first


def _inner(first: Error) -> str:
    """What a worker without a rank had said, whose error an engine repeats."""
    return relayed(first) if first.rank < 0 else ""


def _frame(first: Error, alike: Sequence[Error]) -> Frame | None:
    """Where it was raised; None where they raised it in several places, and of an actor's end, of which
    the place is that of who asked for it.
    """
    if isinstance(first, KnownError):
        return one_place(alike)
    places = {line_of(f) for f in alike if isinstance(f, PythonError)}
    alone = len(places) <= 1 and first.rule not in OF_ACTORS
    return _raised(first).frame if alone else None


def _repeated(first: Error, alike: Sequence[Error], more: int) -> int:
    """How many more had the same, without a line of their own."""
    cards = _cards(alike)
    if first.rule in _OF_CARDS and len(cards) > 1:
        return len(cards) - 1  # of as many processes, and the lines of all are mixed
    told = [int(m[1]) for f in alike for m in _REPEATED.finditer(f.says)]
    told += [int(f.values.get("repeated", 0)) for f in alike]
    return max(more, *told, 0)


def _cards(alike: Sequence[Error]) -> list[str]:
    """The GPUs that their lines name, of one moment."""
    dated = [f.at for f in alike if is_dated(f)]
    if dated and max(dated) - min(dated) >= ONE_MOMENT_S:
        return []
    told = [f.values.get("gpu") or f.values.get("card") for f in alike]
    return sorted({card for card in told if card})


def _with_all_cards(first: Error, alike: Sequence[Error]) -> Error:
    """The error with the numbers of all GPUs of its kind, where theirs are numbers."""
    cards = _cards(alike) if first.rule in _OF_CARDS else []
    if len(cards) < 2 or not all(card.isdigit() for card in cards):
        return first
    return structs.replace(first, values={**first.values, "gpu": format_ranks(map(int, cards))})


def _who(
    scene: Scene,
    first: Error,
    alike: Sequence[Error],
    speakers: Sequence[AnyFact],
) -> Someone:
    """Who has an error without a rank."""
    part = without_rank(scene, first, alike)
    if relayed(first) and not first.worker:
        return Someone(worker_of=part.part if part is not None and part.part else "an engine")
    return part or someone(first, speakers)


def _ground(
    first: Error, story: FailedFirst, ranks: Sequence[int], alike_elsewhere: bool
) -> Ground:
    """How sure it is."""
    if isinstance(first, PythonError) and not first.error:
        return Ground.LOG_ERROR_CUT
    if story.thread:
        return Ground.LOG_THREAD
    if story.went_on:
        return Ground.LOG_WARNED
    if story.together or alike_elsewhere:
        return Ground.LOG_ALIKE
    if ranks and first.rule == NAN_GUARD and not first.values.get("rank"):
        return Ground.LOG_CHECKED
    return Ground.LOG_ERROR if ranks else Ground.LOG_ERROR_SOMEONE


def filled(text: str, fact: AnyFact) -> str:
    """A rule's text with what its pattern took from the line in the place of `{name}`, or of `{ name}` and
    `{: name}`, which are left out where it took nothing.
    """
    values = fact.values if isinstance(fact, Error) else {}

    def value(match: re.Match[str]) -> str:
        told = values.get(match[2])
        if told is None:
            return "" if match[1] else match[0]
        return match[1] + told

    return _VALUE.sub(value, text)


def mesh(scene: Scene) -> First | None:
    """gloo could not connect the ranks with one another, and nothing else is known."""
    known = [f for f in scene.of(KnownError) if f.rule == _MESH]
    raised = [f for f in scene.of(PythonError) if f.message.startswith(_MESH_SAYS)]
    text = scene.logs.rules.get(_MESH)
    if text is None or not known or scene.of(Ended):
        return None
    return _of_link(text, [*known, *raised])


def _of_link(text: RuleText, alike: Sequence[Error]) -> First:
    """Who says that a connection failed is only one end of it."""
    peers = _told(alike, "peer") or _told(alike, "to")
    by = tuple(ranks_named(alike))
    hosts = tuple(sorted(nodes_named(alike)))
    processes = {(f.node, f.pid) for f in alike if f.pid and f.rank < 0}
    finding = Finding(
        kind=text.kind,  # type: ignore[arg-type]
        ranks=[],
        story=LinkBroken(
            by,
            tuple(peers),
            filled(text.meaning, alike[0]),
            text.advice,
            hosts=hosts,
            process=alike[0].pid if len(processes) == 1 and not by else 0,
            processes=len(processes),
        ),
        confidence=sure(Ground.LOG_LINK),
        nodes=sorted({*hosts, *peers}) if peers else [],  # neither end alone
    )
    return First(finding, [*alike], False)


def _told(alike: Sequence[Error], name: str) -> list[str]:
    """What the lines say of the other end under this name, each once."""
    return sorted({fact.values[name] for fact in alike if fact.values.get(name)})
