"""What counts as right: one verdict against one truth.

exact    the ranks of all causes together are the culprits, or one of the sets that the evidence
         cannot tell from them
victim   a rank is named that is in no such set, nor in a wider one that holds the culprit and that
         this evidence cannot narrow: it merely waits
kind     every cause bears a name that fits the fault
status   hang for a hang; for a job that is none, anything but hang
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hangdoctor.model.diagnosis import Cause, Diagnosis


@dataclass(frozen=True)
class Expected:
    """The truth about one case as one kind of evidence can show it."""

    ranks: list[int]  # culprits; none where the job does not hang
    kinds: list[str]
    hang: bool = True
    alternatives: list[list[int]] = field(
        default_factory=list
    )  # other sets that this evidence cannot tell from `ranks`
    wider: list[int] = field(
        default_factory=list
    )  # not exact and no victim: stacks cannot tell who of these it was
    innocent_if_slow: list[int] = field(
        default_factory=list
    )  # of a job that does not hang: who may be called slow
    status: str = ""  # "": a hang where `hang`, otherwise anything else; "any": none is asked for
    difference: str = (
        ""  # what the culprit's calls differ in; "" where they do not, or no record has it
    )
    undecidable: bool = False  # another culprit could have left the same evidence
    # Any set that holds the culprits and nothing but these is all that the evidence singles out.
    between: list[int] = field(default_factory=list)
    nothing_shown: bool = False  # the evidence holds nothing of it: naming none is right


@dataclass
class Result:
    """One case in one mode."""

    part: str  # real, simulated
    mode: str
    kind: str
    seed: int
    place: str  # layout, or rank, step and place of the fault
    status: str = ""
    named: list[tuple[str, list[int]]] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)
    exact: bool = False
    victim: bool = False
    kind_right: bool = False
    kind_said: bool = True  # False of a tool that names ranks alone
    explained: bool | None = None  # None: there is no difference of calls to explain
    same_evidence: bool = False  # it says another difference, which leaves the same evidence
    silent_alike: bool = False  # it names silent ranks, each of which could have left the same
    undecided: bool = False  # not exact: it would be of another job that leaves the same evidence
    took_s: float = 0.0
    summary: str = ""
    no_evidence: bool = False  # this mode has nothing to read of such a case
    undecidable: bool = False  # another culprit could have left the same: naming both is right
    said: list[Said] = field(default_factory=list)  # each cause of the verdict


@dataclass
class Said:
    """One cause that a verdict named: how sure it was, and whether that was so."""

    kind: str
    confidence: float
    right: bool


def judge(result: Result, diagnosis: Diagnosis, truth: Expected) -> Result:
    """Fill in what the verdict was and whether it is right."""
    result.status = diagnosis.status
    result.named = [(c.kind, sorted(c.ranks)) for c in diagnosis.causes or diagnosis.open]
    result.expected = truth.ranks
    result.undecidable = truth.undecidable or truth.nothing_shown
    result.summary = diagnosis.summary
    result.said = [
        Said(c.kind, c.confidence, is_right(c, truth)) for c in diagnosis.causes or diagnosis.open
    ]
    named = {r for _, ranks in result.named for r in ranks}
    if truth.nothing_shown:
        result.exact = not named and diagnosis.status == "unknown"
        result.victim = not named <= set(truth.ranks)
        result.kind_right = result.exact
        return result
    if not truth.hang and truth.undecidable:  # it may as well hang there
        result.exact = named <= set(truth.between)
        result.victim = not result.exact
        result.kind_right = all(kind in truth.kinds for kind, _ in result.named)
        return result
    if not truth.hang:
        fits = diagnosis.status in (truth.status or diagnosis.status, "any")
        calm = fits and diagnosis.status != "hang"
        result.exact = calm and named <= set(truth.innocent_if_slow)
        result.victim = diagnosis.status == "hang" or not named <= set(truth.innocent_if_slow)
        result.kind_right = (
            all(kind == "slow" for kind, _ in result.named) and diagnosis.status != "hang"
        )
        return result
    sets = [set(truth.ranks), *map(set, truth.alternatives)]
    named_all = (
        [*sets, set(truth.wider)] if set(truth.ranks) <= named else sets
    )  # a pair without the culprit is not a pair
    wanted = truth.status or "hang"
    within = set(truth.ranks) <= named <= set(truth.between)
    result.exact = wanted in (diagnosis.status, "any") and (named in sets or within)
    result.victim = bool(named) and not any(named <= s for s in named_all)
    named_or_not = bool(result.named) or not truth.ranks
    result.kind_right = named_or_not and all(kind in truth.kinds for kind, _ in result.named)
    if truth.difference and result.exact:
        said = {cause.difference for cause in diagnosis.causes or diagnosis.open}
        result.explained = said == {truth.difference}
    return result


def is_right(cause: Cause, truth: Expected) -> bool:
    """Whether a cause holds by itself: its kind, and no rank in it that the evidence shows to be
    innocent.

    A cause that names two sides, one of which it says to be at fault, holds where the culprit is
    one of them.
    """
    ranks = set(cause.ranks)
    if not truth.hang:
        return cause.kind == "slow" and ranks <= set(truth.innocent_if_slow)
    if cause.kind not in truth.kinds or not ranks:
        return False
    either = bool(ranks & set(truth.ranks)) and ranks <= set(truth.wider)
    return either or any(ranks <= set(some) for some in (truth.ranks, *truth.alternatives))


@dataclass(frozen=True)
class Tally:
    """Shares over some results."""

    cases: int
    exact: float
    victim: float
    kind: float

    @classmethod
    def of(cls, results: Iterable[Result]) -> Tally:
        """Shares over some results; 0 of none."""
        some: Sequence[Result] = list(results)
        n = len(some)
        share = [
            sum(getattr(r, f) for r in some) / n if n else 0.0
            for f in ("exact", "victim", "kind_right")
        ]
        return cls(n, *share)
