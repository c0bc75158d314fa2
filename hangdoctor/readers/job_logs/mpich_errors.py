"""The stack of an error of MPICH's, one call a line, the innermost last: it has the reason.

Fatal error in PMPI_Init: Other MPI error, error stack:
MPIR_Init_thread(467)..............:
MPID_Init(177).....................: channel initialization failed
MPIDI_OFI_init(882)................: OFI fi_getinfo() failed

Intel's and Cray's MPI print the same.
"""

from __future__ import annotations

import re

from ...model.log_facts import AnyFact, KnownError
from ...text.late import late
from .failure_words import is_own

_OF_MPICH = ("mpi_start", "mpi_other", "mpi_peer", "mpi_misuse")
_CALL = late(
    r"^\s*(?:\d{1,7}: )?(?P<name>\w{3,80})\(\d{1,6}\)\.{0,80}:(?:\s+(?P<why>\S.{0,200}))?\s*$"
)
# A call with its arguments, which only says that it failed.
_NO_REASON = late(r"^\w{3,60}\(.{0,400}\) failed$")
# Of the place in libfabric's part only the last word is for people: (ofi_send.h:34:MPIDI_OFI_send:Invalid argument)
_SOURCE = late(r" \([\w./-]{1,80}:\d{1,6}:\w{1,80}:([A-Z][\w ,/-]{2,60})\)$")
# That something failed, and not what: the name of the function then says more
_VAGUE = late(r"^(?:fail(?:ed|ure)?\b\s?){1,2}(?:during collective)?\W{0,4}$", re.IGNORECASE)
# Of the progress of all connections, which another process' end stops, too
_OF_OTHERS = late(r"progress engine failure|failure during collective", re.IGNORECASE)
# What a network card says of a request of this process
_LOCAL = late(r"Invalid request descriptor|Local (?:QP operation|protection|length) error", re.I)
_PLACE = late(r"\s{1,12}\([\w./-]{1,80}:\d{1,6}:\w{1,80}:")
_PLACE_ENDS = late(r"\([\w./-]{1,80}:\d{1,6}:\w{1,80}:$")
# What no other process can be the reason of.
_OWN = late(
    r"Permission denied|No space left|Cannot allocate|unable to allocate|out of memory|No such file"
    r"|fi_getinfo\(\) failed|No data available|\bPMIx?\d?[_ ][Ii]nit\w{0,20} (?:returned|failed)|\bOFI (?!poll|call|t?send|t?recv)[\w ]{3,60} failed",
    re.IGNORECASE,
)
# What MPI compares among the ranks of a collective: no lost process looks like it
_DISAGREE = late(
    r"\b(?:do(?:es)? not|don't) (?:match|agree) (?:across|between|among|on all) |mismatch(?:ed)? (?:across|between|among) "
    r"|Mismatch(?:ed)? (?:in )?(?:collective|data ?type|root|count)",
    re.IGNORECASE,
)
_INSIDE = "internal_"
_SIZES = late(
    r"(?:message )?(sizes do not match) across processes.{0,60}?: (Received -?\d{1,18} but expected -?\d{1,18})"
)
_INNER = 120  # characters of the reason that are kept
MOST = 24  # lines of a stack


class MpichErrors:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._error: KnownError | None = None
        self._left = 0
        self._broken = ""  # a line of it that was broken behind its reason

    def begin(self, fact: AnyFact) -> bool:
        """An error; whether its stack comes next."""
        if not isinstance(fact, KnownError) or fact.rule not in _OF_MPICH:
            return False
        self._error, self._left, self._broken = fact, MOST, ""
        call = fact.values.get("call", "")
        if call.startswith(_INSIDE):  # the name within MPICH of what the program called
            fact.values["call"] = call.replace(_INSIDE, "MPI_", 1)
        return True

    def feed(self, text: str) -> None:
        """A later line: the reason, the more so the later it comes."""
        if self._error is None:
            return
        text = self._joined(text)
        match = _CALL.match(text)
        self._left -= 1
        if match is None or self._left <= 0:
            self._error = None
            return
        why = _SOURCE.sub(r": \1", (match["why"] or "").strip())
        if not why or _NO_REASON.match(why):
            return
        if _VAGUE.match(why):
            why = f"{match['name']}: {why}"
        self._error.values["why"] = f"({why[:118]})"
        self._error.values.pop("inner", None)
        if self._error.rule in ("mpi_other", "mpi_misuse") and _DISAGREE.search(why):
            _disagree(self._error, why)
            self._error = None
            return
        own = _LOCAL.search(why) or (is_own(why) and not _OF_OTHERS.search(why))
        if self._error.role == "consequence" and own:
            self._error.values["inner"] = why[:_INNER]
        if self._error.rule == "mpi_start" and _OWN.search(why):
            self._error.role = "cause"

    def _joined(self, text: str) -> str:
        """The line; one that only has the place in the source, or goes on from there, behind the line before.

        MPIDI_OFI_handle_cq_error(1310): OFI poll failed
          (ofi_events.c:1312:MPIDI_OFI_handle_cq_error:
           Input/output error - Invalid request descriptor)
        """
        before, self._broken = self._broken, text.rstrip()
        goes_on = _PLACE_ENDS.search(before) is not None and text.startswith(" ")
        if not before or not (goes_on or _PLACE.match(text)):
            return text
        joint = "" if goes_on else " "
        self._broken = f"{before}{joint}{text.strip()}"
        return self._broken


def _disagree(error: KnownError, why: str) -> None:
    """An error of a collective becomes the mismatch that MPI found there."""
    error.rule, error.role = "mpi_disagree", "cause"
    told = _SIZES.sub(r"\1 (\2)", why[:_INNER])
    if error.values.get("call"):
        error.values["in"] = f"in {error.values['call']}"
    error.values["says"] = told.replace(" in the collective routine", "")
