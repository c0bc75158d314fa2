"""What to do where ranks made different calls, where some end before others, and where all made the
same call and it does not finish.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from ...model.frame import Frame
from ...text.ranges import format_hosts
from .. import findings as f
from ..findings import Finding, Op
from . import differences, terms
from .advice import by_story, count
from .release import natively, on_node, open_at, pid_of, two_lines

_LARGER = "HANGDOCTOR_BOX_MB=64 hangdoctor run -- CMD (Flight Recorder: TORCH_FR_BUFFER_SIZE=20000)"

_FIELDS = {"reduce_op": "reduce op"}
_MEMBERS = "To record next time which groups each rank makes: hangdoctor run -- CMD."


def line_of(op: Op | None) -> str:
    """``train.py:31``, where the operation was called, of a library's call the user's line; "" where
    that is not known.
    """
    if op is None:
        return ""
    if op.called_from is not None:
        return terms.line(op.called_from)
    if op.site:
        return terms.site(op.site)
    return terms.line(op.frame) if op.frame is not None else ""


def open_line(op: Op | None) -> str:
    """``less +31 /app/train.py``; "" where the file's whole path is not known."""
    if op is None:
        return ""
    if op.called_from is not None or not op.site:
        return open_at(op.called_from or op.frame)
    path, _, line = op.site.rpartition(" (")[2].rstrip(")").rpartition(":")
    known = path.startswith("/") and line.isdigit()
    return f"less +{line} {shlex.quote(path)}" if known else ""


def _sentence(finding: Finding, text: str, op: Op | None) -> str:
    """`text`, and behind it how to open the line of `op`."""
    command, here = open_line(op), on_node(finding)
    if not command:
        return f"{text}."
    return f"{text}. {terms.capital(here.strip())}: {command}." if here else f"{text}: {command}."


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _branch(finding: Finding, op: Op | None, who: str = "") -> str:
    """A branch or exception before the line of `op`; "" where that line is not known."""
    line = line_of(op)
    if not line:
        return ""
    who = who or f"{terms.ranks(finding.ranks)} alone"
    text = f"Before {line}, look for a branch that {who} took, or a swallowed exception"
    return _sentence(finding, text, op)


def _to_another(mine: Op | None, theirs: Op | None) -> bool:
    """Whether both are the same transfer, with another rank each."""
    if mine is None or theirs is None or mine.peer is None or theirs.peer is None:
        return False
    return mine.name == theirs.name and mine.peer != theirs.peer


def _are_transfers(story: f.Diverged) -> bool:
    """Whether neither call is known to be anything else than a send or receive."""
    return all(op is None or op.peer is not None for op in (story.mine, story.theirs))


@by_story.register
def _(story: f.Diverged, finding: Finding) -> str:
    one_call = story.how in ("skipped", "extra", "either") and not story.before_records
    if story.tags and story.how != "own":
        who, line = terms.ranks(finding.ranks), line_of(story.mine)
        return _sentence(finding, f"See how {who} came to another tag at {line}", story.mine)
    if finding.kind == "p2p_unmatched" and not one_call and _are_transfers(story):
        return f"Compare {two_lines(story.mine, story.theirs)}: each send needs one receive on the other side, in the same order."
    if not story.fewer and _to_another(story.mine, story.theirs):
        # Of a call before the records, the line is that of the calls that it was one of.
        return _chosen_peer(finding, story.theirs if story.before_records else story.mine)
    if finding.kind == "mismatch" or story.how == "group":
        return f"Make all members call it on the same group: compare {two_lines(story.mine, story.theirs)}."
    if finding.kind == "end_stall":
        return _ends_apart(finding, story.mine or story.theirs)
    if differences.of_new_groups(story):
        text = f"Every rank must make the same groups in one order: compare the lists that lead to {line_of(story.mine)}"
        return _sentence(finding, text, story.mine)
    if story.before_records:
        return f"The records start too late to show the call. Keep more of them: {_LARGER}."
    return _two_ways(story, finding)


def _chosen_peer(finding: Finding, mine: Op | None) -> str:
    who, line = terms.ranks(finding.ranks), line_of(mine)
    chooses = f"See how {who} {terms.choose(finding.ranks, 'chooses', 'choose')} the other rank"
    return _sentence(finding, f"{chooses} at {line}" if line else chooses, mine)


def _two_ways(story: f.Diverged, finding: Finding) -> str:
    """Where to look for the branch at which the rank and the others parted."""
    who, mine, theirs = terms.ranks(finding.ranks), line_of(story.mine), line_of(story.theirs)
    if story.fewer and theirs:
        text = f"See how {who} came to fewer sends and receives than its neighbours expect at {theirs} (a number of micro-batches, a swallowed exception)"
        return _sentence(finding, text, story.theirs)
    if finding.left_loop is not None:
        return out_of_loop(finding, finding.left_loop)
    if story.how == "skipped" and theirs:
        text = f"See why {who} passed {theirs} without the call (a branch, a swallowed exception)"
        return _sentence(finding, text, story.theirs)
    makes = terms.choose(finding.ranks, "makes", "make")
    if story.how == "extra" and mine:
        return _sentence(finding, f"See why {who} alone {makes} the call at {mine}", story.mine)
    if not mine or not theirs or mine == theirs:
        return _branch(finding, story.mine or story.theirs)
    if story.again:
        text = f"See what leads {who} alone to {mine} twice in a row (a retry after an error, a loop without a batch)"
        return _sentence(finding, text, story.mine)
    if story.how == "either" and finding.frame is not None:  # the calls may be a library's
        own = Op("", frame=finding.frame)
        text = f"See what leads {who} alone to {line_of(own)} (a branch, a swallowed exception, a batch more)"
        return _sentence(finding, text, own)
    if story.how == "either":
        text = f"See what leads {who} alone to {mine} and not to {theirs} (a branch, a swallowed exception, a batch more)"
        return _sentence(finding, text, story.mine)
    text = f"Look for a branch that leads {who} to {mine} instead of {theirs}"
    return _sentence(finding, text, story.mine)


def out_of_loop(finding: Finding, line: Frame) -> str:
    """For a rank that left a loop before the others; `line` is behind it."""
    own = Op("", frame=line)
    text = f"See what ends the loop before {line_of(own)} earlier on {terms.ranks(finding.ranks)} (fewer batches, a stop of its own)"
    return _sentence(finding, text, own)


@by_story.register
def _(story: f.Disagrees, finding: Finding) -> str:
    if story.fields[:1] == ("op",) and finding.left_loop is not None:
        return out_of_loop(finding, finding.left_loop)
    if story.fields[:1] == ("op",):
        lines = two_lines(story.mine, story.theirs)
        return f"Compare {lines}: one calls another operation there, or the rank skipped calls (a branch, a swallowed exception)."
    if story.fields[:1] == ("order of groups",):
        lines = two_lines(story.mine, story.theirs)
        return f"Every rank must make the same groups in one order: compare {lines} on all ranks, and the settings that the order comes from{_environment(finding)}."
    what = " and ".join(_FIELDS.get(name, name) for name in story.fields) or "arguments"
    same = f"Make all members call it with the same {what}: compare {two_lines(story.mine, story.theirs)}"
    if story.fields[:1] == ("mesh shape",):
        return f"{same}, and the settings that it comes from{_environment(finding)}."
    return f"{same}."


def _environment(finding: Finding) -> str:
    """The command that shows with which variables the rank was started; "" of several."""
    pid = pid_of(finding) if len(finding.ranks) == 1 else 0
    show = f"tr '\\0' '\\n' < /proc/{pid}/environ"
    return f"; those of {terms.ranks(finding.ranks)}{on_node(finding)}: {show}" if pid else ""


@by_story.register
def _(story: f.OtherPartners, finding: Finding) -> str:
    who, line = terms.ranks(finding.ranks), line_of(story.op)
    others, at = terms.ranks(story.awaited_by), f" at {line}" if line else ""
    text = f"Compare how {who} and {others} choose the ranks that they send to and receive from{at} (an older file, another list)"
    return _sentence(finding, text, story.op)


@by_story.register
def _(story: f.OtherRound, finding: Finding) -> str:
    who, own = (
        terms.ranks(finding.ranks),
        next(op for rank, op in story.sides if rank in finding.ranks),
    )
    text = f"See what {who} takes its number of micro-batches, or its schedule, from (an older file, a count of its own), and compare it with that of {terms.ranks(story.others)}"
    return _sentence(finding, text, own)


@by_story.register
def _(story: f.InOther, finding: Finding) -> str:
    if story.how is f.Apart.ROOTS:
        at = line_of(story.op)
        return f"Make all members call it with the same root{f', at {at}' if at else ''}."
    if story.how is f.Apart.OTHER_GROUP:
        lines = [line for op in (story.op, story.their_op) if (line := line_of(op))]
        first, *other = dict.fromkeys(lines) or [""]
        compare = f": compare {first} with {other[0]}" if other else f", at {first}"
        return f"Make all members call it on the same group{compare if first else ''}."
    if story.how is f.Apart.CALLED_ALONE:
        text = f"Let all ranks of its group make that call, or none: only {terms.ranks(finding.ranks)} comes to it"
        return _sentence(finding, text, story.op)
    parted = _both_ends(story, finding) or _parted(story, finding)
    if not parted and story.how not in (f.Apart.SMALLER_SIDE, f.Apart.NO_ORDER, f.Apart.RING):
        parted = _other_way(story, finding)
    return _joined(parted, count(finding))


def _both_ends(story: f.InOther, finding: Finding) -> str:
    """The lines of ranks that wait for one another in sends and receives; "" of anything else."""
    if story.how is not f.Apart.RING or finding.kind != "p2p_unmatched":
        return ""
    return _two_lines(story.sides)


def _two_lines(sides: Iterable[tuple[object, Op]]) -> str:
    """The lines of two transfers that wait for one another; "" where they are one, or not known."""
    lines = list(dict.fromkeys(line for _, op in sides if (line := line_of(op))))
    if len(lines) < 2:
        return ""
    return (
        f"Compare {lines[0]} with {lines[1]}: one rank makes a send or receive more than the other, "
        "such as of one micro-batch."
    )


def _parted(story: f.InOther, finding: Finding) -> str:
    """The two lines of a function that both sides are in; "" where their stacks share none."""
    if finding.parting is None:
        return ""
    mine, theirs = finding.parting
    odd = [rank for rank in finding.ranks if rank not in story.others]
    who = f"{terms.capital(terms.are(odd))} at {terms.frame(mine)}"
    text = f"{who}, {terms.ranks(story.others)} at {terms.frame(theirs)}: see what leads them apart (a branch, a swallowed exception)"
    return _sentence(finding, text, Op("", frame=mine))


def _who_alone(story: f.InOther, finding: Finding) -> str:
    """Ranks that took a branch alone; of two sides it is not known which one."""
    if story.how is f.Apart.EITHER:
        ahead = [rank for rank in finding.ranks if rank not in story.others]
        return f"only one of {terms.ranks(ahead)} and {terms.ranks(story.others)}"
    return f"{terms.ranks(finding.ranks)} alone"


def _other_way(story: f.InOther, finding: Finding) -> str:
    """Which line to open: the call that was passed by, or the one that is too many."""
    who, mine, theirs = terms.ranks(finding.ranks), line_of(story.op), line_of(story.their_op)
    if story.how in (f.Apart.AHEAD, f.Apart.PAST) and theirs and theirs != mine:
        text = f"See why {who} passed {theirs} without the call (a branch, a swallowed exception)"
        return _sentence(finding, text, story.their_op)
    makes = terms.choose(finding.ranks, "makes", "make")
    if story.how is f.Apart.BEHIND and mine:
        return _sentence(finding, f"See why {who} alone {makes} the call at {mine}", story.op)
    return _branch(finding, story.op, _who_alone(story, finding))


@by_story.register
def _(story: f.Ring, finding: Finding) -> str:
    if finding.kind == "p2p_unmatched":
        return (
            _two_lines(story.sides)
            or "Compare the sends and receives in the evidence: one side posts them in a different order."
        )
    if story.mine is not None:
        return _branch(finding, story.mine, f"only one of {terms.ranks(finding.ranks)}")
    if story.whole:
        return "All ranks have to make these calls in one order: compare the operations in the evidence, their groups and lines."
    return f"Keep more of the records, so that they show the wrong call: {_LARGER}."


@by_story.register
def _(story: f.StillIn, finding: Finding) -> str:
    pid = pid_of(finding)
    if story.op.name and line_of(story.op):
        return _ends_apart(finding, story.op)
    if not story.op.name and story.op.frame is not None:
        at = terms.frame(story.op.frame)
        return _sentence(finding, f"See why {at} does not end", story.op)
    return f"See where it is{natively(finding, pid)}." if pid else ""


@by_story.register
def _(story: f.LeftWithout, finding: Finding) -> str:
    return _ends_apart(finding, story.op)


def _ends_apart(finding: Finding, op: Op | None) -> str:
    """Ranks whose loops around `op` have different numbers of rounds."""
    line = line_of(op)
    if not line:
        return ""
    who = terms.ranks(finding.ranks)
    text = f"Compare how many steps and batches {who} and the others have in the loop at {line}"
    return _sentence(finding, text, op)


@by_story.register
def _(story: f.OwnGroup, finding: Finding) -> str:
    where = line_of(story.op)
    at = f" at {where}" if where else ""
    return f"Let every rank make every group{at}, in one order, and then take its own; or pass use_local_synchronization=True."


@by_story.register
def _(story: f.NoneLeaves, finding: Finding) -> str:
    if story.later:
        return _joined(_same_groups(story), "" if finding.boxed else _MEMBERS)
    if story.starting:
        names = "GLOO_SOCKET_IFNAME" if finding.gloo else "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME"
        interfaces = f"the interface ({names})"
        return f"Check MASTER_ADDR and MASTER_PORT on every node, {interfaces} and the firewall."
    pid = pid_of(finding)
    native = natively(finding, pid) if pid else ""
    return f"See which thread of {terms.ranks(finding.ranks[:1])} is still in a collective{native}."


def _same_groups(story: f.NoneLeaves) -> str:
    """What to compare where ranks may make different groups."""
    lines = [line for op in (story.op, *(op for _, op in story.sides)) if (line := line_of(op))]
    at = f" at {' and '.join(dict.fromkeys(lines))}" if lines else ""
    what = "mesh_shape or ranks, and the settings that they come from"
    return f"Every rank must make the same groups in one order: compare on all ranks{at} {what}."


@by_story.register
def _(story: f.AllIn, finding: Finding) -> str:
    compared = _compare(story)
    if story.tags:
        return _joined(compared, count(finding))
    return _joined(compared, _hardware(finding), "" if story.counted else count(finding))


def _compare(story: f.AllIn) -> str:
    """The two lines to compare; "" where they are not known."""
    if story.other is None or story.one_tag:
        return ""
    lines = [terms.place_of(op) for op in (story.op, story.other)]
    what = "tags" if story.counted or story.tags else "tags and sizes"
    return f"Compare the {what} in {lines[0]} and {lines[1]}." if all(lines) else ""


@by_story.register
def _(story: f.HeldBehind, finding: Finding) -> str:
    pid = pid_of(finding)
    native = natively(finding, pid) if pid else ""
    see = f"See what its transport waits for{native}." if native else ""
    return _joined(see, count(finding))


@by_story.register
def _(story: f.OwnOrder, finding: Finding) -> str:
    where = f" at {terms.place_of(story.op)}" if terms.place_of(story.op) else ""
    return f"See what orders the groups{where}: with use_local_synchronization all members have to make those that they share in one order."


@by_story.register
def _(story: f.PartsApart, finding: Finding) -> str:
    first = story.pairs[0]
    where = f" at {terms.place_of(story.op)}" if terms.place_of(story.op) else ""
    ranks = terms.ranks(sorted({first.sender, first.receiver}))
    return _joined(
        f"Print the sizes that {ranks} give{where}: what a rank expects has to be what the other sends, "
        "also after one has dropped or padded some (an expert's capacity)."
    )


def _hardware(finding: Finding) -> str:
    """Commands for the links and GPUs of the nodes; NVIDIA's where a rank has a GPU."""
    nodes = sorted({*finding.nodes, *(home.node for home in finding.homes if home.node)})
    where = f"On {_some(nodes)}" if nodes else f"On the nodes of {terms.ranks(finding.ranks)}"
    if any(home.gpu for home in finding.homes):
        look = "dmesg -T | grep -iE 'xid|nvlink|mlx5'; nvidia-smi -q -d ECC; ibstat"
        return f"{where}: {look}. To see the link at the next hang: NCCL_DEBUG=INFO."
    return f"{where}: dmesg -T | tail; ip -s link; ss -ti state established."


def _some(nodes: Sequence[str]) -> str:
    return terms.host_names(nodes) if len(nodes) > 1 else format_hosts(nodes)
