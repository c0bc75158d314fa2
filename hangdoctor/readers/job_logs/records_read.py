"""What the records of one file say, as facts: each is given to the readers of stacks, tables and lists that go on
over several lines, and to the rules. Which lines are read at all is for `lines_read`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...model.log_facts import Asked, LastWords, PythonError, UnreadFailure
from ..debugger_values import DebuggerValues
from . import (
    cuda_numbers,
    exit_lists,
    marks,
    on_one_node,
    one_failed,
    questions,
    tables_read,
    tasks,
)
from .begun import Begun
from .beneath import Beneath
from .collect import Facts
from .crash_places import Found
from .cxx_words import CxxWords, Joined
from .facts_of_file import FactsOfFile
from .jax_barriers import JaxBarriers
from .known_errors import KnownErrors
from .lines_apart import StartLines
from .lines_below import LinesBelow
from .lines_read import ATTENTION, LinesRead
from .prefix import Said
from .python_errors import PythonErrors
from .rules import Rules
from .rules_tried import RulesTried
from .runs import RunNumbers
from .tables_read import TablesRead, Told
from .torn_lines import TornLines
from .tracebacks import Folded, Tracebacks, cut_in_its_name
from .unread_lines import UnreadLines

_BEGIN = 2_000  # lines in which ranks say how they begin
_TRACEBACK = "Traceback (most recent call last)"
_BEGINS = ("recent call", "Routine ", "Stack trace of the", "Fatal Python", *tables_read.BEGINS)


class RecordsRead:
    """Takes the records of one file one after the other."""

    def __init__(self, rules: Rules, facts: Facts, index: int, of_file: Said, attempt: int) -> None:
        self.lines = LinesRead(rules.broad)
        self.runs = RunNumbers()
        self.unread = UnreadLines()
        self._tables = TablesRead()
        self._beneath = Beneath()
        self._begun = Begun()
        self._below = LinesBelow(self._tables, self._beneath, self.lines, of_file)
        self.kept = FactsOfFile(facts, index, attempt, self._below, self.unread)
        self._place = self.kept.place
        known = KnownErrors(self.kept, self._beneath, self._below)
        torn = TornLines(self.lines)
        self._rules = RulesTried(rules, self.kept, self._begun, known, torn)
        self._errors = PythonErrors(rules, self._rules, self.kept, self._beneath, self._below)
        self._stacks = Tracebacks()
        self._barriers = JaxBarriers()
        self._headings = on_one_node.Headings()
        self._questions = questions.Questions()
        self._starts = StartLines()
        self._values = DebuggerValues()
        self._cxx = CxxWords()

    def read(self, said: Said, text: str, of_file: Said) -> None:
        """Take a record, without its prefixes and with them; `of_file`: what is said of lines without any."""
        said = self._beneath.inherit(said, of_file)
        said = self._headings.under(said)
        said = self._hear(said, text)
        if self._is_of_barrier(said, text):
            return
        if self._beneath.look(said.text):
            self.lines.want(1)
            return
        self._take_reason(said, text)
        self.kept.heard.update({self._begun.look(said, self._place.line)} - {-1})
        self._errors.look(said)
        self._ask(said)
        folded = self._stacks.feed(said, self._place.line)
        self._keep_folded(folded, said, text)
        if folded.error is not None:
            self._errors.keep(folded.error, said, text, folded.original)
            return
        head, begins, _ = said.text.partition(_TRACEBACK)
        if begins and head.strip():
            self._by_rules(msgspec.structs.replace(said, text=head), text)
        said, text = self._join_cxx(said, text)
        if not folded.belongs:
            self.kept.course.speak(said.rank, said.local)
            # A progress bar without an end of its line stands before what follows it.
            self._progress(said, text)
            self._by_rules(said, text)

    # ------------------------------------------------------------------ by the readers of several lines

    def _hear(self, said: Said, text: str) -> Said:
        """Give a record to those who take any; who says it, as a table knows."""
        self.kept.hear(said)
        if any(word in said.text for word in _BEGINS):
            self.lines.want(ATTENTION)
        self._values.feed(said.text)
        self.runs.look(said.text, self._place.line)
        placed = on_one_node.by_mpich(said) or said
        told = self._tables.feed(said, text, self._place.line, self._place.clock)
        self._keep_told(told, placed)
        said = self._tables.mpi_stacks.whose(said)
        self._keep_found(self._below.feed(said, self._place.line))
        self.kept.rank_ids.feed(text)
        return said

    def _keep_told(self, told: Iterable[Told], said: Said) -> None:
        """The facts of tables."""
        for one in told:
            self._place.line = one.line or self._place.line
            self.kept.keep(one.fact, one.said or said, one.says)
            if one.goes_on:
                self.lines.want(ATTENTION)

    def _keep_found(self, found: Iterable[Found]) -> None:
        """The failures that only the stack of a runtime shows."""
        now = self._place.line
        for error, said, line in found:
            self._place.line = line
            self.kept.keep(error, said, said.text)
        self._place.line = now

    def _is_of_barrier(self, said: Said, text: str) -> bool:
        """Whether a record tells who missed a barrier of JAX's."""
        missed = self._barriers.feed(said.text)
        if missed is None:
            return False
        self.kept.keep(missed, msgspec.structs.replace(said, rank=-1), text)
        self.lines.want(ATTENTION)
        return True

    def _take_reason(self, said: Said, text: str) -> None:
        """Ray's reason for the end of its actor, which may be its node."""
        if not self._beneath.gives_reason(said.text):
            return
        self._errors.end_message(said)
        lost = self._beneath.lost_node()
        if lost is not None:
            self.kept.keep(lost, said, text)

    def _ask(self, said: Said) -> None:
        """A question that nothing of the program's stands behind."""
        asked = questions.asked_in(said.text)
        if asked is None:
            return
        kept = self.kept.keep(asked, said, asked.question)
        if isinstance(kept, Asked):
            self._questions.keep(kept, self._place.line)

    def _keep_folded(self, folded: Folded, said: Said, text: str) -> None:
        """What a record of a stack tells, beside the error at the end of a traceback."""
        if folded.belongs:
            self.lines.want(ATTENTION)
            self.unread.traceback(self._place.line, said.pid)
        if folded.recorded is not None:
            of_head = folded.recorded_of or said
            wait = self.kept.earlier.add_recorded(of_head, folded.recorded)
            if wait is not None:
                self.kept.keep(wait, of_head, of_head.text)
        if folded.stack is not None:
            self.kept.keep(folded.stack, said, text)

    # ------------------------------------------------------------------ by its words alone

    def _by_rules(self, said: Said, text: str) -> None:
        self._errors.go_on(said)
        self.kept.marks.look(said)
        said = cuda_numbers.in_words(said)
        tried = self._rules.try_all(said, text)
        ends = [*tasks.ends(said.text), *exit_lists.deaths(said.text)]
        if not (tried.known or ends):
            self.unread.look(text, self._place.line)
        if tried.read or ends:
            self.unread.known()
        elif _TRACEBACK not in text and not self._tables.queues.belongs:
            self.unread.feed(said, text, self._place, self.kept.course.attempt)
        if not tried.known:
            self._questions.go_on(said.text, self._place.line)
            if self._place.line <= _BEGIN:
                self._starts.feed(said, self._place.line)
        for fact in ends:
            self.kept.keep(fact, said, text)
        self._rules.join_torn(said, tried.torn)

    def _join_cxx(self, said: Said, text: str) -> tuple[Said, str]:
        """The line; where it holds the words of an exception of C++ whose head stands above, joined with that."""
        found = self._cxx.feed(said, self._place.line)
        if self._cxx.reads:
            self.lines.want(1)
        now = [one.said for one in found if one.line == self._place.line]
        self._keep_thrown(one for one in found if one.line != self._place.line)
        return (now[0], now[0].text) if now else (said, text)

    def _keep_thrown(self, found: Iterable[Joined]) -> None:
        """Exceptions of C++ without words."""
        now = self._place.line
        for one in found:
            self._place.line = one.line
            self._rules.try_all(one.said, one.said.text)
        self._place.line = now

    def _progress(self, said: Said, text: str) -> None:
        if self._tables.in_box:
            return  # the words of an error
        found = marks.progress(said.text)
        if found is not None:
            way, fact = found
            if self.kept.course.reach(way, fact, said.rank):
                self.unread.went_on()
            self.kept.keep(fact, said, text)
        elif (part := marks.part(said.text)) is not None:
            self.kept.keep(part, said, text)
        rank = said.rank if said.marked else marks.begins_with_rank(said.text)
        if rank >= 0:
            self.kept.marks.members.add(rank)
            self.kept.keep(LastWords(rank=rank), said, text)

    # ------------------------------------------------------------------ at the end

    def end(self, of_file: Said) -> list[UnreadFailure]:
        """Keep what the end of the file leaves open; the failures that no rule knows."""
        self._cut_last()
        for said, stack in self._stacks.last_stacks():
            self._place.line = stack.line
            self.kept.keep(stack, said, "stack")
        self._keep_thrown(self._cxx.rest())
        self._keep_found(self._below.rest())
        self._keep_told(self._tables.rest(of_file), of_file)
        cut = self._stacks.unfinished()
        for said, line, error in cut:
            self._place.line = line
            self.unread.cut(line)
            self._errors.keep_cut(error, said, alone=len(cut) == 1)
        self._keep_told(self._tables.cut(of_file, self._place.clock), of_file)
        for apart in self._starts.found():
            self._place.line = apart.line
            self.kept.keep(apart, of_file, apart.says)
        self._tables.boxes.rest()
        self.kept.course.settle()
        one_failed.name_debugged(self.kept.facts.all, self.kept.index, self._values.told)
        return self.unread.found(self.kept.index)

    def _cut_last(self) -> None:
        """An error's name that the file's end may have cut."""
        last = self.kept.facts.all[-1] if self.kept.facts.all else None
        if not isinstance(last, PythonError) or last.file != self.kept.index:
            return
        if last.line >= self._place.line:
            cut_in_its_name(last)
