"""Why an alternative was not taken."""

from __future__ import annotations

from ...model.diagnosis import Alternative
from ..findings import Against, Finding, Why
from . import terms

_TEXT = {
    Why.NOT_ALL_IN: "not all members have entered the operation",
    Why.CANNOT_RUN: "its code cannot be the reason while the process cannot run",
    Why.ALL_JOINED: "every rank has joined",
    Why.CULPRIT_IS_OUTSIDE: "the operation cannot finish while {ranks} {is_are} not in it",
    Why.EXPLAINED_WITHOUT_THEM: "these did not report; a captured rank already explains the wait",
    Why.MAY_HAVE_SKIPPED: "it has passed the line where the others wait: it may have skipped that operation",
    Why.NOT_COUNTED: "stacks do not show operation numbers: a rank that skipped one would look the same",
    Why.PASSED: "a different place alone proves nothing: these ranks have passed the operation",
    Why.NOT_ONE_OPERATION: "the ranks are not in the same operation",
    Why.NOT_HALVES: "the two are not in matching send and receive calls",
    Why.CALLED_IN_ORDER: "not excluded: where every rank calls both in the same order, or they have a group each",
    Why.NOT_SEEN_IN_IT: "not all members of the operation were seen in it",
    Why.LAUNCHED_UNEQUALLY: "not all members have launched the same number of operations",
    Why.NETWORK_SLOWS_ALL: "a slow network would make all ranks wait, also this one",
    Why.UNKNOWN_BUT_OTHERS_MISSING: "they were not seen, but {ranks} {is_are} certainly missing",
    Why.MAY_BE_SLOW: "not excluded: samples further apart would show whether it moves",
    Why.UNRECORDED_GRADIENTS: "not excluded: gradients are reduced without a record here, and it may wait in that",
    Why.UNRECORDED_TRANSFER: "not excluded: gloo's recorder has no sends and receives",
    Why.TRANSFER_NOT_IN_DUMPS: "a send or receive between two of them would not be in the dumps",
    Why.KEY_IS_NO_COLLECTIVE: "a store wait is not a collective: one rank sets the key that the others wait for",
    Why.PARTS_AGREE: "what they send to one another is what they expect",
    Why.AGREE_MAJORITY: "most members of the group agree with one another",
    Why.AGREE_ROLE: "the history of {ranks} differs from that of the ranks with the same role",
    Why.AGREE_PRECEDENT: "calls like it, of other ranks or its own earlier ones, differ",
    Why.AGREE_USUAL: "they are in a call that all made round after round, and no rank had made the other one before",
    Why.AGREE_UNDECIDED: "nothing shows which side is right",
    Why.ALL_ENTERED: "every member has entered the operation",
    Why.NOT_ANSWERING: "it did not answer, so it is unknown where it is",
    Why.ENQUEUED: "it has enqueued what the others wait in",
    Why.SAME_AS_ROUNDS_BEFORE: "they do the same as in the rounds before",
    Why.SAME_AS_ROLE: "their histories agree with those of the ranks with the same role",
    Why.SAME_AS_LINE: "their calls are those that their lines make on other ranks",
    Why.LOG_IS_SURER: "the other evidence names these, with less confidence than the log names {ranks}",
}


def alternative(against: Against, finding: Finding) -> Alternative:
    """The alternative as the report's JSON has it."""
    is_are = terms.choose(finding.ranks, "is", "are")
    text = _TEXT[against.why].format(ranks=terms.ranks(finding.ranks), is_are=is_are)
    return Alternative(against.kind, list(against.ranks), text)
