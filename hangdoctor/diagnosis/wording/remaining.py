"""The sentence where no rank is named: why the job is healthy, or why nothing could be said."""

from __future__ import annotations

from collections.abc import Sequence

from ...stacks.inner_wait import InnerWait
from ..findings import StillAlone
from ..health import Reason, Remaining
from ..own_loops import Differs, OwnLoop
from . import ras_words, terms, unnamed_words

_WHYS = 4  # nodes whose reason for silence is in the sentence
_SIDES = 6  # places at which ranks stand, in the sentence


def _behind(of: Remaining) -> str:
    """Ranks of the job, or the communicators in which some are behind."""
    return terms.ranks(of.ranks) if of.ranks else f"members of communicator {_some(of.whys)}"


def _some(whys: tuple[str, ...]) -> str:
    more = len(whys) - _WHYS
    return ", ".join(whys[:_WHYS]) + (f" and {more} more" if more > 0 else "")


def healthy(of: Remaining | None) -> str:
    """Why the job is healthy; None: the operations show it."""
    if of is None:
        return "Operations made progress, or ended cleanly, on every rank."
    if of.reason is Reason.ALL_MOVED:
        who = f"All {of.number} ranks" if of.number > 1 else "The rank"
        return f"{who} moved between the samples."
    if of.reason is Reason.OTHERS_MOVED:
        has, it = terms.choose(of.ranks, "has", "have"), terms.choose(of.ranks, "it", "them")
        others = "the other rank goes" if of.number == 1 else f"the {of.number} others go"
        return f"No hang seen: {terms.ranks(of.ranks)} {has} ended with exit code 0, and {others} on without {it}."
    if of.reason is Reason.MOST_MOVED:
        moved = f"{len(of.ranks)} of {terms.count(of.number, 'rank')} moved between the samples"
        return f"No hang seen: {moved}, and the others were running in a collective, send or recv."
    if of.reason is Reason.SLEEP_BY_TURNS and of.op is not None:
        passed = f"{terms.ranks(of.ranks)} left {terms.op(of.op)}, a collective of all ranks"
        return (
            f"No hang seen: {passed}, between the samples, and all {of.number} ranks ran meanwhile."
        )
    return "Every rank made progress in its collectives, sends or receives between the samples."


def _at(of: Remaining) -> str:
    """``: rank 0 is in __next__ (iterators.py:648), and whether it moves ...``"""
    if of.sides and of.op is None:
        return f": {_standing(of)}, and whether they move from there, a second one would show"
    if of.op is None:
        return ""
    who = of.called or terms.ranks(of.ranks)
    where = f"{who} {terms.choose(of.ranks, 'is', 'are')} in {terms.place_of(of.op)}"
    if of.inner is not None:
        where = (
            f"{who} {terms.choose(of.ranks, 'waits', 'wait')} {_for(of.inner, of.ranks)}{_from(of)}"
        )
    if of.fed:
        who += f" {terms.choose(of.ranks, 'waits', 'wait')}"
        fills = "the thread or process that fills its queue, as a data loader does"
        where = f"{who} for the next item in {terms.place_of(of.op)}, so for {fills}"
    return f": {where}, and whether {terms.choose(of.ranks, 'it moves', 'they move')} from there, a second one would show"


def _for(inner: InnerWait, ranks: Sequence[int]) -> str:
    """``for its device (urEventWait)``."""
    its = terms.choose(ranks, "its", "their")
    it = terms.choose(ranks, "it", "they")
    what = {
        "device": f"for {its} device",
        "child": f"for the end of a process that {it} started",
        "thread": f"for the end of a thread of {its} own",
        "exit": f"at the end of the program for {its} other threads",
    }[inner.what]
    return f"{what} ({inner.call.own_name})"


def _from(of: Remaining) -> str:
    """The user's frame around the wait; "" where it is the wait itself."""
    at = of.op.frame if of.op is not None else None
    if of.inner is None or at is None or at == of.inner.call:
        return ""
    return f" in {terms.frame(at)}" if at.file.endswith(".py") else ""


def unknown(of: Remaining) -> str:
    """Why nothing could be said, and what would decide it."""
    texts = _by_ras(of) | _few_seen(of) | _all_wait(of) | _at_work(of)
    return f"Could not tell: {texts[of.reason]}."


def _few_seen(of: Remaining) -> dict[Reason, str]:
    """Where ranks, or their stacks, are missing."""
    who, others = terms.ranks(of.ranks), terms.ranks(of.others)
    wait = terms.choose(of.ranks, "waits", "wait")
    where = f" in {terms.op(of.op)}" if of.op is not None else ""
    return {
        Reason.NOT_CAPTURED: f"no rank was captured{_nodes(of)}",
        Reason.SOME_NOT_SEEN: _not_seen(of),
        Reason.PART: (
            f"{who} {wait}{where}, and the files do not show whether the job has more ranks: "
            "print the stacks of all of them"
        ),
        Reason.UNNAMED: unnamed_words.unknown(of.places) if of.places else "",
        Reason.NO_STACKS: f"no stack of {who} could be read: {'; '.join(of.whys)}",
        Reason.SOME_NOT_CAPTURED: (
            f"all captured ranks wait ({who}{where}) and {others} {terms.choose(of.others, 'was', 'were')} not captured: "
            "capture the whole job (--jobid, --hostfile)"
        ),
        Reason.SOME_NOT_STARTED: (
            f"{others} {terms.choose(of.others, 'is', 'are')} still importing, and no process of {who} is there: "
            f"{terms.choose(of.ranks, 'it', 'they')} may not have been started yet. "
            "Capture again in a minute, and see whether the launcher did"
        ),
        Reason.ONE_RANK: f"only one {'process' if of.nameless else 'rank'} was captured, and {'it' if of.nameless else who} waits{where}; capture the others too",
        Reason.ONE_SAMPLE: f"no rank is in a known collective, send or recv, and there is only one sample{_at(of)}",
    }


def _all_wait(of: Remaining) -> dict[Reason, str]:
    """Where all wait, and nothing shows for whom."""
    who = terms.ranks(of.ranks)
    wait = terms.choose(of.ranks, "waits", "wait")
    where = f" in {terms.op(of.op)}" if of.op is not None else ""
    return {
        Reason.ALL_WITHOUT_WORK: (
            f"{who} {wait} for work from the engine, and for no other rank. "
            "If requests hang, the engine or the server before it does: py-spy dump --pid of VLLM::EngineCore"
        ),
        Reason.TWO_SIDES: (
            f"{_waiting_apart(of)}, and stacks do not show which of them made other calls{_under(of)}{_within(of)}{_halves(of)}{_smaller(of)}"
            f"{'' if of.uncounted else '. Black boxes (hangdoctor run) count the calls'}"
        ),
        Reason.CHOSEN_GROUPS: (
            f"{who} {wait}{where}, whose line takes its group from a variable, and stacks do not show whether it is the same "
            "on all: if some ranks use their groups in another order, they block each other. Black boxes (hangdoctor run) show it"
        ),
        Reason.ALL_RECEIVE: (
            f"{who} {wait}{where}, none of them sends, and which of them should "
            "does not show. See what was sent last: a message may have been dropped, or answered by none"
        ),
        Reason.ALL_AT_STORE: (
            f"{_waiting_apart(of) if of.sides else f'{who} {wait}{where}'} for {_keys(of)}, and which rank was to set "
            f"{'them' if of.sides else 'it'} does not show: one that has ended, or one of these. See whether all processes are still there"
        ),
        Reason.ALL_SEND: (
            f"{who} all {wait}{where} and none receives: each waits until the one that it sends to receives, a circle "
            "in which none is wrong alone. Let some receive first, or send and receive in one call (sendrecv, batch_isend_irecv)"
        ),
        Reason.ALL_EXCHANGE: (
            f"{who} {wait}{where}, and stacks do not show with which ranks they "
            "exchange: one may have other partners than the rest. Black boxes (hangdoctor run) record them"
        ),
    }


_KEYS = 3  # that are named


def _keys(of: Remaining) -> str:
    """``a key``, ``rollout/12/3``, ``weights/13 and rollout/12/3``."""
    if not of.keys or len(of.keys) > _KEYS:
        return "keys of the store" if of.sides else "a key"
    return " and ".join(of.keys)


def _at_work(of: Remaining) -> dict[Reason, str]:
    """Where ranks work, are in some other code, or have ended."""
    who = terms.ranks(of.ranks)
    wait = terms.choose(of.ranks, "waits", "wait")
    return {
        Reason.NONE_WAITS: (
            f"no rank waits in a collective, send or recv; {who} {terms.choose(of.ranks, 'is', 'are')} working"
            f"{_not_found(of)}. Capture again with a larger --settle, or when the job stalls"
        ),
        Reason.OWN_LOOP: _own_loop(of.loop) if of.loop is not None else "",
        Reason.SOME_WAIT: (
            f"{who} {wait} in a collective, send or recv"
            f"{_working(of)}. Capture again with a larger --settle: who is still working then is slow or stuck"
        ),
        Reason.OVER: (
            "the job has ended, and no rank left an error, an exit code or a wait. "
            "The job's own output may name the process that failed: pass it to hangdoctor diagnose, too"
        ),
        Reason.STILL_APART: (
            f"no rank moves, and none is in a known collective, send or recv: {_standing(of)}. Begin at the place that is no "
            "call of a library that waits for other ranks"
        ),
        Reason.NOTHING_STANDS_OUT: (
            "no rank differs from the others. Two samples further apart (--settle 10) or black boxes (hangdoctor run) would show more"
        ),
    }


def _by_ras(of: Remaining) -> dict[Reason, str]:
    """Where NCCL RAS alone was given."""
    return {
        Reason.RAS_NO_DATA: (
            f"NCCL RAS got no data from {ras_words.lost(of.lost) if of.lost is not None else ''}, and nothing in it "
            "shows that others wait: a process may answer late. Repeat it with ncclras -v -t 30; "
            "if the same process is missing again, see whether it is alive"
        ),
        Reason.RAS_GAP: (
            f"NCCL RAS counts one operation fewer for {_behind(of)}, which is usual in a healthy job. "
            "This is one snapshot; repeat it after 30 s: a rank whose count has not changed by then is stuck"
        ),
        Reason.RAS_MOVED: (
            f"NCCL RAS counts fewer operations for {_behind(of)}, and more than in the snapshot before: "
            "the job moves, or moved until then"
        ),
        Reason.RAS_ERROR: (
            f"NCCL RAS lists errors of ranks about another process alone ({'; '.join(of.whys)}): "
            "these ranks lost it; which one it was does not show. Read its log or capture stacks"
        ),
        Reason.RAS_STATES: (
            f"NCCL RAS sees the ranks of a communicator in different states ({_some(of.whys)}): it is being "
            "set up or taken down. Repeat it after 30 s: a rank that stays behind is stuck"
        ),
        Reason.RAS_TIMEOUTS: (
            f"NCCL RAS lists no fault, but {of.number} of its requests timed out: some processes or nodes "
            "answer late or not at all. Repeat it with ncclras -v -t 30; hangdoctor dump shows which"
        ),
        Reason.RAS_EQUAL: (
            f"NCCL RAS reaches all {terms.count(of.number, 'rank')}, with equal counts. "
            "If ranks time out, it is probably the network, a link or a GPU; stacks of all ranks would show where they wait"
        ),
    }


def _under(of: Remaining) -> str:
    """``. Ranks 0,2 come there under 'rank in reporters'``; "" where none does."""
    few, condition = of.under
    if not few:
        return ""
    who = terms.capital(terms.ranks(few))
    return f". {who} alone {terms.choose(few, 'comes', 'come')} there under '{condition}'"


def _within(of: Remaining) -> str:
    """By what a few were led to another call from inside that of the others; "" where none were."""
    if of.within is None:
        return ""
    few, frame = of.within
    who, come = terms.capital(terms.ranks(few)), terms.choose(few, "comes", "come")
    alone = terms.choose(few, "it", "they")
    return f". {who} {come} there from inside the call of the others, by {terms.frame(frame)}: a hook, or a handler of a signal that {alone} alone got"


def _halves(of: Remaining) -> str:
    """``. Rank 2 waits for the other side of a send or receive, which it does not name``; "" of none."""
    if not of.halves or len(of.halves) > 1:
        return ""
    who = terms.capital(terms.ranks(of.halves))
    return f". {who} waits for the other side of its send or receive, which its stack does not name"


def _smaller(of: Remaining) -> str:
    """``. The line of ranks 0,2 names a smaller group: see which ranks are in it, ...``; "" of none."""
    if not of.smaller:
        return ""
    who = terms.ranks(of.smaller)
    return f". The line of {who} names a group: see which ranks are in it, one of these may not have come"


def _standing(of: Remaining) -> str:
    """Which ranks are where, the most first."""
    shown = [f"{terms.ranks(ranks)} at {terms.place_of(op)}" for ranks, op in of.sides[:_SIDES]]
    more = len(of.sides) - len(shown)
    return ", ".join([*shown, *([f"and at {more} other places"] if more else [])])


def _waiting_apart(of: Remaining) -> str:
    """Who waits in which operation; of two, with the functions."""
    if not of.sides:
        return ""
    (one, mine), *rest = of.sides
    wait = terms.choose(one, "waits", "wait")
    if len(rest) > 1:
        first = f"{terms.ranks(one)} {wait} in {terms.op_at_line(mine)}"
        return f"{first}, {terms.in_operations(rest)}"
    [(other, theirs)] = rest
    return (
        f"{terms.ranks(one)} {wait} in {terms.op(mine)}, {terms.ranks(other)} in {terms.op(theirs)}"
    )


def _not_found(of: Remaining) -> str:
    """Who may be gone, which others that ask for it in a loop of their own do not notice."""
    if not of.others:
        return ""
    others, it = terms.ranks(of.others), terms.choose(of.others, "it has", "they have")
    return f", and no process of {others} was found: see in the job's output whether {it} ended, since the others may wait for that"


def _working(of: Remaining) -> str:
    """Who works meanwhile, "" where none does."""
    if not of.others:
        return ""
    return f" while {terms.ranks(of.others)} {terms.choose(of.others, 'is', 'are')} working"


def _nodes(of: Remaining) -> str:
    more = f"; and {len(of.whys) - _WHYS} more" if len(of.whys) > _WHYS else ""
    return f" ({'; '.join(why.rstrip('.') for why in of.whys[:_WHYS])}{more})" if of.whys else ""


def _own_loop(of: OwnLoop) -> str:
    """What all ranks may wait for in vain, and on which of them a variable differs."""
    number = f"all {of.samples}" if of.samples > 2 else "both"
    times = f"in {number} samples over {terms.duration(of.seconds)}"
    text = f"{terms.ranks(of.ranks)} sleep and wake in one loop, {terms.frame(of.frame)}, {times}"
    differs = f"; there {_apart(of.differs)}" if of.differs is not None else ""
    vain = "If they wait for a key, a file or a count, it does not come"
    return f"{text}{differs}. {vain}; if the loop is the job's own pace, the job may be healthy"


def _apart(of: Differs) -> str:
    """``n is 1 on rank 2 and 3 on ranks 0-1,3``."""
    few, most = [f"{value} on {terms.ranks(ranks)}" for value, ranks in (of.few, of.most)]
    return f"{of.name} is {few} and {most}"


def _see_variables(of: OwnLoop) -> str:
    """The commands that show what the ranks wait for."""
    first, *rest = [f"py-spy dump --locals --pid {pid}" for _, pid, _ in of.asked]
    (node, _, rank), *others = of.asked
    text = f"See what rank {rank} waits for{f', on {node}' if node else ''}: {first}"
    for command, (there, _, other) in zip(rest, others, strict=True):
        text += f"; and rank {other}{f', on {there}' if there not in ('', node) else ''}: {command}"
    return f"{text}. Compare the keys, paths and counts."


def which_of(ranks: Sequence[int]) -> str:
    """``Could not tell which of ranks 0,5 is wrong. ``"""
    return f"Could not tell which of {terms.ranks(ranks)} is wrong. "


def lead(of: StillAlone | None) -> str:
    """`` Rank 3 alone had not moved for 29 s: it was in chunks (tune.py:61).``; "" for None."""
    if of is None:
        return ""
    seconds = terms.duration(of.seconds)
    return f" Rank {of.rank} alone had not moved for {seconds}: it was in {terms.frame(of.frame)}."


def unstopped(nodes: Sequence[str]) -> str:
    """`` py-spy could not stop a process on n3, ...``; "" for none."""
    if not nodes:
        return ""
    where = terms.host_names(list(nodes))
    return f" py-spy could not stop a process on {where}: where it may stop the others, that one is inside of the kernel or of a driver, so look there first."


def advice(of: Remaining, by_hand: str, nodes: Sequence[str]) -> str:
    """What shows why nodes did not answer, or what ranks wait for in a loop of their own; "" where that
    is not the reason, or not known.
    """
    if of.loop is not None:
        return _see_variables(of.loop)
    if of.reason not in (Reason.NOT_CAPTURED, Reason.SOME_NOT_SEEN) or not by_hand or not nodes:
        return ""
    command = by_hand.replace("{node}", nodes[0])
    return f"See why: {command}. It has to end soon and to ask nothing. Then capture again; where nodes are only slow, with a larger --timeout."


def _not_seen(of: Remaining) -> str:
    were = terms.choose(of.ranks, "was", "were")
    why = _nodes(of) or ": capture the whole job (--jobid, --hostfile)"
    return f"operations made progress, or ended cleanly, on every captured rank, but {terms.ranks(of.ranks)} {were} not captured{why}"
