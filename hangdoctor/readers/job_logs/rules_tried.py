"""What the rules find in a line, in one that was broken in two, and in the last line of a traceback."""

from __future__ import annotations

from msgspec import Struct

from ...model.log_facts import AnyFact, KnownError, WaitsFor
from . import on_one_node
from .begun import Begun
from .facts_of_file import FactsOfFile
from .known_errors import KnownErrors
from .logged import ENDS_AT_INFO
from .prefix import Said
from .rules import OF_A_RANK, Rule, Rules, fact_of
from .torn_lines import TornLines

# Rules that know the form of a line, and not its words
_IN_OTHER_WORDS = (*OF_A_RANK, "nccl_warned")
_NOTICE = " NCCL INFO "  # what NCCL tells by the way, as of a plug-in that is not there
_BEGIN = 40  # characters in which it stands


class Tried(Struct):
    """What the rules know of a line."""

    known: bool = False  # one of them knows it
    read: bool = False  # one knows its words, and not only its form
    torn: bool = False  # it may have been broken in two


class RulesTried:
    """Of one file."""

    def __init__(
        self,
        rules: Rules,
        kept: FactsOfFile,
        begun: Begun,
        errors: KnownErrors,
        torn: TornLines,
    ) -> None:
        self._rules, self._kept, self._begun = rules, kept, begun
        self._errors, self._torn = errors, torn

    def try_all(self, said: Said, line: str) -> Tried:
        """Keep what rules find in the words of a line, each in its turn."""
        tried = Tried()
        whole: set[type[AnyFact]] = set()
        torn: set[type[AnyFact]] = set()
        notice = _NOTICE in f" {said.text[:_BEGIN]}"
        for rule in self._rules.of(said.text):
            elsewhere = (rule.last and tried.known) or (rule.rest and self._torn.open)
            elsewhere |= notice and rule.role == "cause" and rule.id not in ENDS_AT_INFO
            applied = not elsewhere and self._apply(rule, said, said.text, line)
            if rule.fact is WaitsFor:
                continue  # the line may be of a failure all the same
            tried.known |= applied
            tried.read |= applied and rule.id not in _IN_OTHER_WORDS
            if applied and not rule.fixed.get("cut"):
                whole.add(rule.fact)
            elif rule.wraps:
                torn.add(rule.fact)
        tried.torn = bool(torn - whole)
        return tried

    def join_torn(self, said: Said, torn: bool) -> None:
        """Try a line as the rest of one that was broken in two; `torn`: it may itself be the first part of one."""
        joined = self._torn.joined(said)
        if joined is not None:
            rules = [rule for rule in self._rules.of(joined.text) if rule.wraps]
            found = [self._apply(r, joined.said, joined.text, joined.text) for r in rules]
            if not any(found):
                self._torn.wait(joined)
        if torn:
            self._torn.hold(said)

    def try_beside_error(self, said: Said, line: str) -> None:
        """Keep what the last line of a traceback tells beside its error."""
        wrapping = []
        for rule in self._rules.of(said.text):
            between = rule.text is not None and rule.text.between
            if rule.fact is KnownError and not (between and rule.role == "cause"):
                continue
            applied = self._apply(rule, said, said.text, line)
            if rule.wraps:
                wrapping.append(applied)
        if wrapping and not any(wrapping):
            self._torn.hold(said)

    def _apply(self, rule: Rule, said: Said, text: str, line: str) -> bool:
        """Keep what a rule finds; whether it found anything."""
        if rule.text is not None and rule.text.between:
            said = self._begun.whose(said, self._kept.place.line)
        if rule.fact is KnownError:
            said = on_one_node.placed(said)
        found = False
        for fields in rule.facts(text):
            if rule.id in OF_A_RANK and max(said.own_rank(), said.local, said.task) < 0:
                continue
            fact = fact_of(rule, fields)
            if fact is None:
                continue
            found = True
            if isinstance(fact, KnownError):
                self._errors.keep(rule, fact, said, text, line)
            else:
                self._kept.keep(fact, said, line)
        return found
