"""What the lines of one file say, as facts: by the rules, and by the readers of stacks, tables and lists that go on
over several lines. Which lines are read at all is for `lines_read`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

import msgspec

from ...model.frame import Frame
from ...model.log_facts import (
    AnyFact,
    Asked,
    Cancelled,
    Ended,
    Finished,
    KnownError,
    LastWords,
    LogFile,
    PythonError,
    ThreadStack,
    TimedOut,
    Took,
    UnreadFailure,
    WaitsFor,
)
from ...text.late import late
from ..debugger_values import DebuggerValues
from . import (
    exit_lists,
    marks,
    on_one_node,
    one_failed,
    questions,
    source,
    tables_read,
    tasks,
    unread,
)
from .begun import Begun
from .beneath import Beneath
from .collect import Facts
from .course import Course
from .crash_places import CrashPlaces
from .ending_others import is_agents, is_of_end
from .file_names import NamedFile, under_header
from .habits import Habits, habits
from .hccl_tasks import RankIds
from .introduced import rank_named
from .jax_barriers import JaxBarriers
from .lines_apart import StartLines
from .lines_read import LinesRead
from .logged import ENDS_AT_INFO, Logged, is_warning, named_by
from .mpich_errors import MOST, MpichErrors
from .named_below import NamedBelow
from .named_in_line import of_whom
from .npu_tails import NpuTails
from .prefix import Said, Speaker, records, strip
from .raised_again import RaisedAgain
from .rewrapped import Rewrapped
from .rules import OF_A_RANK, Rule, Rules, fact_of
from .runs import RunNumbers
from .shipped import Line, Shipper, form_of
from .stamps import ANYWHERE, Clock
from .tables_read import TablesRead, Told
from .tracebacks import Tracebacks, cut_in_its_name, own_frame
from .unread_failures import UnreadFailures
from .words_above import WordsAbove
from .wrapped_lines import unwrapped

_HEARD = late(rb"\[rank(\d{1,7})\]")
_ATTENTION = 12  # lines after one that a stack or table may go on in
_LONGEST = 20_000  # characters of a line
_BEGIN = 2_000  # lines in which ranks say how they begin
_INDENT = "  "  # of a line that a person broke, and no terminal
_TORN = 3  # lines that a broken one is joined with
_RANK_ID = late(r"\bRankID:(\d{1,7})\)")  # torch_npu's own line below the error
_STACK = 16  # lines below an error in which the stack of its runtime may begin
_MORE = 4  # lines that the message of an error may go on in
_OF_ACTOR = late(r"\(pid=(\d{1,9}), ip=([\w.:-]{1,80})")  # which Ray says has died
_REPEATED = late(r"\[repeated (\d{1,6})x across cluster\]")  # Ray's, at the end of a line
_KEPT = 300  # characters of a line that the fact has itself
_BACK = 1 << 16  # bytes in which a stamp is looked for before a line without one
_CUT = late(rb"\[(?:r|ra|ran|rank\d{0,7}\]?:?)?\s*\[?")  # all that is there of a last line
# The verdict of `hangdoctor run` itself, in the job's output.
_OWN = late(r"^(?:\[?\w{0,12}\]?: ?)?hangdoctor: ")
_TRACEBACK = "Traceback (most recent call last)"
# Rules that know the form of a line, and not its words
_IN_OTHER_WORDS = (*OF_A_RANK, "nccl_warned")
_NOTICE = " NCCL INFO "  # what NCCL tells by the way, as of a plug-in that is not there
_BEGINS = ("recent call", "Routine ", "Stack trace of the", "Fatal Python", *tables_read.BEGINS)


class FileScan:
    """Turns the lines of one file into facts."""

    def __init__(self, rules: Rules, facts: Facts, index: int, of_file: Said, attempt: int) -> None:
        self.rules, self.facts, self.index = rules, facts, index
        self.of_file = self._own = of_file
        self.course = Course(attempt)
        self.clock = Clock()
        self.heard: set[int] = set()
        self.marks = marks.Marks()
        self.runs = RunNumbers()
        self._usual = Habits()
        self._shipper = Shipper(None)
        self._stacks = Tracebacks()
        self._tables = TablesRead()
        self._barriers = JaxBarriers()
        self._rank_ids = RankIds()
        self._npu = NpuTails()
        self._mpich = MpichErrors()
        self._rewrapped = Rewrapped()
        self._headings = on_one_node.Headings()
        self._logged = Logged()
        self._again = RaisedAgain()
        self._beneath = Beneath()
        self._begun = Begun()
        self.unread: list[UnreadFailure] = []
        self._questions = questions.Questions()
        self._starts = StartLines()
        self._values = DebuggerValues()
        self._read = LinesRead(rules.broad)
        self._line = 0  # of the line that is read
        self._at = 0.0  # the last stamp
        self._trouble, self._trouble_line = "", 0
        self._failures = UnreadFailures()
        self._above = WordsAbove()
        self._places = CrashPlaces()
        self._below = NamedBelow()
        self._speaks = of_file  # who speaks in the line that is read, by its prefix
        self._torn: list[tuple[str, Said, int]] = []
        self._waits: dict[Speaker, TimedOut] = {}
        self._passed = (b"", 0)  # the block that is read, and where in it
        self._spawned: dict[Speaker, int] = {}
        # Errors that no rule knew: their message may go on in the next lines.
        self._unknown: dict[Speaker, tuple[PythonError, int]] = {}

    def run(self, name: str, stream: IO[bytes]) -> LogFile:
        """Read the stream to its end."""
        size, end = 0, b""
        for number, block in enumerate(source.blocks(stream)):
            if number == 0:
                block = source.Block(unwrapped(block.data), block.edge)
                self._learn(block.data[: 1 << 16])
            size += len(block.data)
            end = block.data.rstrip(b"\n").rpartition(b"\n")[2] or end
            self.heard.update(int(n) for n in _HEARD.findall(block.data))
            before = self._line
            if not block.edge:
                self.of_file = self._own  # which file was shown last is not read
            for line in self._read.of(block):
                self._line = before + line.number
                self._passed = (block.data, line.begin)
                self._take(line.data)
            self._line = before + block.data.count(b"\n")
        for rest in self._shipper.rest():
            self._take_line(rest)
        lines = self._line
        self._at_end()
        cut = _CUT.fullmatch(end) is not None
        return LogFile(name, lines, size, self._trouble, self._trouble_line, cut)

    def _at_end(self) -> None:
        """What the end of the file leaves open."""
        last = self.facts.all[-1] if self.facts.all else None
        if isinstance(last, PythonError) and last.file == self.index and last.line >= self._line:
            cut_in_its_name(last)
        for said, stack in self._stacks.last_stacks():
            self._line = stack.line
            self._keep(stack, said, "stack")
        self._keep_stacks(self._places.rest())
        self._keep_told(self._tables.rest(self.of_file), self.of_file)
        torn = self._stacks.unfinished()
        for said, line, error in torn:
            self._line = line
            error.local = self._spawned.pop(said.speaker(), -1)
            if error.rank < 0 and said.rank < 0:
                error.rank = self._logged.rank_of_head(said)
            self._failures.cut(line)
            if len(torn) == 1:
                self._complete(error, said)
            self._keep(error, said, "traceback without its last line")
        self._keep_told(self._tables.cut(self.of_file, self.clock), self.of_file)
        for apart in self._starts.found():
            self._line = apart.line
            self._keep(apart, self.of_file, apart.says)
        self._tables.boxes.rest()
        self.course.settle()
        self.unread = self._above.added_to(self._failures.found())
        for failure in self.unread:
            failure.file = self.index
        one_failed.name_debugged(self.facts.all, self.index, self._values.told)

    def _complete(self, error: PythonError, said: Said) -> None:
        """A traceback that another rank's lines tore: its message may go on behind them. The only error
        that a rule knows of the same speaker, after its beginning.
        """
        later = [f for f in self.facts.all if isinstance(f, KnownError) and f.file == self.index]
        own = [f for f in later if f.line > self._line and f.role == "cause" and not f.logged]
        same = [f for f in own if (f.rank, f.local, f.task) == (said.rank, said.local, said.task)]
        if len(same) == len(own) == 1 and self.rules.is_own(same[0].rule):
            error.rule, error.values = same[0].rule, same[0].values

    def _learn(self, begin: bytes) -> None:
        """What the first lines show of all: who ships them, and which prefixes they have."""
        lines = [_text(line) for line in begin.split(b"\n")]
        form = form_of(lines)
        sample = Shipper(form)
        self._shipper = Shipper(form)
        self._usual = habits(line.text for record in lines for line in sample.lines(record))
        self.marks.world = max(self.marks.world, self._usual.world)

    # ------------------------------------------------------------------ what a line says

    def _take(self, raw: bytes) -> None:
        for line in self._shipper.lines(_text(raw)):
            self._take_line(line)

    def _take_line(self, line: Line) -> None:
        if line.text.startswith("==> ") and (named := under_header(line.text)) is not None:
            self._show(named)
            return
        known = line.known(self.of_file)
        pieces = line.text.split("\r") if "\r" in line.text else [line.text]
        for piece in pieces[-40:]:
            before = known
            whole = self._rewrapped.lines(piece[:_LONGEST])
            for record in (record for text in whole for record in records(text)):
                if _OWN.match(record) is None:
                    before = self._record(record, self._behind(known, before))

    def _show(self, named: NamedFile) -> None:
        """The lines of another file come next."""
        told = {"rank": named.rank, "local": named.local, "node": named.node}
        self.of_file = msgspec.structs.replace(self._own, **told)
        if named.rank >= 0:
            self.heard.add(named.rank)

    def _behind(self, known: Said, before: Said) -> Said:
        """What is known of a record by the one before it in its line, which begins with what a launcher puts
        before each line.
        """
        if not (self._usual.hosts or self._usual.tasks):
            return known
        node = known.node or before.node
        task = known.task if known.task >= 0 else before.task
        return msgspec.structs.replace(known, node=node, task=task)

    def _record(self, text: str, known: Said) -> Said:
        """Read one record; returns who says it."""
        said = strip(text, known, self._usual, self.clock)
        self._read_record(said, text)
        return said

    def _read_record(self, said: Said, text: str) -> None:
        said = self._beneath.inherit(said, self.of_file)
        said = self._headings.under(said)
        self._listen(said)
        self._values.feed(said.text)
        self.runs.look(said.text, self._line)
        placed = on_one_node.by_mpich(said) or said
        self._keep_told(self._tables.feed(said, text, self._line, self.clock), placed)
        said = self._tables.mpi_stacks.whose(said)
        self._feed_places(said)
        self._mpich.feed(said.text)
        self._rank_ids.feed(text)
        self._npu.feed(said.text, self._line)
        missed = self._barriers.feed(said.text)
        if missed is not None:
            self._keep(missed, msgspec.structs.replace(said, rank=-1), text)
            self._read.want(_ATTENTION)
            return
        if self._beneath.look(said.text):
            self._read.want(1)
            return
        if self._beneath.gives_reason(said.text):
            self._unknown.pop(said.speaker(), None)  # it is no part of another error's message
            lost = self._beneath.lost_node()
            if lost is not None:
                self._keep(lost, said, text)
        self.heard.update({self._begun.look(said, self._line)} - {-1})
        self._logged.look(said)
        self._ask(said)
        folded = self._stacks.feed(said, self._line)
        if folded.belongs:
            self._read.want(_ATTENTION)
            self._failures.traceback(self._line, said.pid)
        if folded.recorded is not None:
            self._add_recorded(folded.recorded_of or said, folded.recorded)
        if folded.stack is not None:
            self._keep(folded.stack, said, text)
        if folded.error is not None:
            self._error(folded.error, said, text, folded.original)
            return
        head, begins, _ = said.text.partition(_TRACEBACK)
        if begins and head.strip():
            self._by_rules(msgspec.structs.replace(said, text=head), text)
        if not folded.belongs:
            # A progress bar without an end of its line stands before what follows it.
            self._progress(said, text)
            self._by_rules(said, text)

    def _keep_told(self, told: Iterable[Told], said: Said) -> None:
        """The facts of tables."""
        for one in told:
            self._line = one.line or self._line
            self._keep(one.fact, one.said or said, one.says)
            if one.goes_on:
                self._read.want(_ATTENTION)

    def _feed_places(self, said: Said) -> None:
        """The line to those who read where a process was, and on which node."""
        self._speaks = said
        self._keep_stacks(self._places.feed(said, self._line))
        if self._places.reads:
            self._read.want(1)
        self._below.feed(said)

    def _keep_stacks(self, found: Iterable[tuple[KnownError, Said, int]]) -> None:
        """The failures that only the stack of a runtime shows."""
        now = self._line
        for error, said, self._line in found:
            self._keep(error, said, said.text)
        self._line = now

    def _ask(self, said: Said) -> None:
        """A question that nothing of the program's stands behind."""
        asked = questions.asked_in(said.text)
        if asked is None:
            return
        kept = self._keep(asked, said, asked.question)
        if isinstance(kept, Asked):
            self._questions.keep(kept, self._line)

    def _listen(self, said: Said) -> None:
        """Who says a line, and when."""
        if said.rank >= 0:
            self.heard.update({said.rank, *said.also})
        if said.rank >= 0 or said.worker:
            self.marks.listen(said)
        if said.at > 0:
            self._at = said.at
        if any(word in said.text for word in _BEGINS):
            self._read.want(_ATTENTION)

    def _go_on(self, said: Said) -> None:
        """A message of several lines: what a later one tells of the error."""
        waiting = self._unknown.pop(said.speaker(), None)
        if waiting is None:
            return
        error, left = waiting
        number = _RANK_ID.search(said.text)
        if number is not None and error.rank < 0:
            error.rank = int(number[1])
        known = self.rules.known(said.text)
        if known is not None and known.role == "launcher" and error.message:
            return  # another process speaks
        if known is not None:
            error.rule, error.role = known.id, known.role
            error.values = known.values(said.text)
        elif left > 1:
            self._unknown[said.speaker()] = (error, left - 1)

    def _by_rules(self, said: Said, text: str) -> None:
        if self._unknown:
            self._go_on(said)
        self.marks.look(said)
        known, read, torn = self._try_rules(said, text)
        ends = [*tasks.ends(said.text), *exit_lists.deaths(said.text)]
        told = known or bool(ends)
        if not told and not self._trouble and unread.speaks_of_trouble(text):
            self._trouble, self._trouble_line = unread.kept(text), self._line
        if read or ends:
            self._failures.known()
        elif _TRACEBACK not in text and not self._tables.queues.belongs:
            self._failures.feed(said, text, self._line, self._at, self.course.attempt)
            self._above.feed(said, self._line, self._at, self.course.attempt)
        if not known:
            self._questions.go_on(said.text, self._line)
            if self._line <= _BEGIN:
                self._starts.feed(said, self._line)
        for fact in ends:
            self._keep(fact, said, text)
        self._join_torn(said, torn)

    def _try_rules(self, said: Said, text: str) -> tuple[bool, bool, bool]:
        """(whether a rule knows the line, whether by its words, whether it may have been broken in two)."""
        known = read = False
        whole: set[type[AnyFact]] = set()
        torn: set[type[AnyFact]] = set()
        notice = f" {said.text[:40]}".find(_NOTICE) >= 0
        for rule in self.rules.of(said.text):
            elsewhere = (rule.last and known) or (rule.rest and bool(self._torn))
            elsewhere |= notice and rule.role == "cause" and rule.id not in ENDS_AT_INFO
            applied = not elsewhere and self._apply(rule, said, said.text, text)
            if rule.fact is WaitsFor:
                continue  # the line may be of a failure all the same
            known |= applied
            read |= applied and rule.id not in _IN_OTHER_WORDS
            if applied and not rule.fixed.get("cut"):
                whole.add(rule.fact)
            elif rule.wraps:
                torn.add(rule.fact)
        return known, read, bool(torn - whole)

    def _apply(self, rule: Rule, said: Said, text: str, line: str) -> bool:
        """Keep what a rule finds; whether it found anything."""
        found = False
        if rule.text is not None and rule.text.between:
            said = self._begun.whose(said, self._line)
        if rule.fact is KnownError:
            said = on_one_node.placed(said)
        for fields in rule.facts(text):
            fact = fact_of(rule, fields)
            if rule.id in OF_A_RANK and max(said.own_rank(), said.local, said.task) < 0:
                continue
            if fact is not None:
                found = True
                if isinstance(fact, KnownError):
                    gone = rule.text is not None and rule.text.kind in ("dead", "unreachable")
                    ends = gone or rule.id in ENDS_AT_INFO
                    fact.logged = not ends and is_warning(said, text)
                    again = _REPEATED.search(line[_KEPT:])
                    if again is not None:
                        fact.values = {**fact.values, "repeated": again[1]}
                    speaker = on_one_node.started_alone(fact, said)
                    kept = self._keep(fact, marks.name_other(fact, speaker), line)
                    self._name_beneath(kept)
                    if rule.id == "actor_creation":
                        self._beneath.creates(text, said)
                    if self._mpich.begin(kept, text) or self._tables.boxes.begin(kept, said):
                        self._read.want(MOST)
                    continue
                self._keep(fact, said, line)
        return found

    def _join_torn(self, said: Said, torn: bool) -> None:
        """A long line that was broken in two: its halves, tried together."""
        waiting, self._torn = self._torn, []
        for head, first, left in waiting:
            if said.rank not in (-1, first.rank):
                self._torn += [(head, first, left - 1)] if left > 1 else []
                continue  # another one's line
            space = " " if head[-1:].isspace() else ""
            whole = (
                head.rstrip()
                + space
                + (said.text.lstrip() if said.text.startswith(_INDENT) else said.text)
            )
            joined = [r for r in self.rules.of(whole) if r.wraps]
            if not any([self._apply(rule, first, whole, whole) for rule in joined]) and left > 1:
                self._torn.append((whole, first, left - 1))
        if torn:
            self._keep_torn(said)

    def _keep_torn(self, said: Said) -> None:
        self._torn = [(said.text, said, _TORN)]
        self._read.want(_TORN)

    def _progress(self, said: Said, text: str) -> None:
        if self._tables.in_box:
            return  # the words of an error
        found = marks.progress(said.text)
        if found is not None:
            way, fact = found
            if self.course.reach(way, fact, said.rank):
                self._trouble = ""  # the job went on
                self._failures.went_on()
            self._keep(fact, said, text)
        elif (part := marks.part(said.text)) is not None:
            self._keep(part, said, text)
        rank = said.rank if said.marked else marks.begins_with_rank(said.text)
        if rank >= 0:
            self.marks.members.add(rank)
            self._keep(LastWords(rank=rank), said, text)

    def _add_recorded(self, said: Said, frame: Frame) -> None:
        """The line of the program that made the call which timed out; the line that names that may be
        missing.
        """
        wait = self._waits.get(said.speaker())
        if wait is None and said.rank >= 0:
            self._keep(TimedOut(op=frame.name, says=said.text), said, said.text)
        elif wait is not None:
            best = own_frame([frame, *([wait.frame] if wait.frame is not None else [])])
            wait.frame = wait.frame if wait.frame is not None and best is wait.frame else frame

    def _error(self, error: PythonError, said: Said, text: str, original: bool) -> None:
        """A Python error, with what a rule knows of it; `original`: that another one was raised from."""
        error.local = self._spawned.pop(said.speaker(), -1)
        line = f"{error.error}: {error.message}"
        wrapping: list[bool] = []
        for rule in self.rules.of(said.text):
            between = rule.text is not None and rule.text.between
            if rule.fact is not KnownError or (between and rule.role == "cause"):
                applied = self._apply(rule, said, said.text, text)
                wrapping += [applied] if rule.wraps else []
        if wrapping and not any(wrapping):
            self._keep_torn(said)
        rule_of = self.rules.known(line)
        if self._beneath.is_report(error, said) or is_of_end(error.frames):
            error.role = "launcher"
        if rule_of is not None:
            error.rule, error.role = rule_of.id, rule_of.role
            _name(error, rule_of, said.text)
        if error.role == "consequence" and is_agents(error.frames):
            error.role = "launcher"
        head = self._logged.head_of(said)
        if original and self._again.take(error, said.speaker()):
            return
        if head is not None:
            error.logged = True
            error.rank = named_by(head) if error.rank < 0 else error.rank
        kept = self._keep(error, said, text)
        self._again.keep(kept, said.speaker())
        self._name_beneath(kept)
        if rule_of is None and isinstance(kept, PythonError):
            self._unknown[said.speaker()] = (kept, _MORE)

    def _name_beneath(self, error: AnyFact) -> None:
        """Which actor an error of Ray's is about, and why that ended, the next lines tell."""
        if isinstance(error, PythonError | KnownError) and error.rule == "actor_died":
            self._beneath.name(error)
            self._read.want(_ATTENTION)

    # ------------------------------------------------------------------ keeping

    def _keep(self, fact: AnyFact, said: Said, text: str) -> AnyFact:
        fact.file, fact.line, fact.attempt = self.index, self._line, self.course.attempt
        fact.says = fact.says or text
        for name in ("rank", "local", "task", "pid", "group_rank"):
            if hasattr(fact, name) and getattr(fact, name) in (-1, 0):
                told = getattr(said, name)
                if told not in (-1, 0) or getattr(fact, name) == -1:
                    setattr(fact, name, told)
        fact.node = fact.node or said.node
        fact.worker = fact.worker or said.worker
        if isinstance(fact, KnownError) and fact.rank < 0:
            own = said.own_rank()
            fact.rank = own if own >= 0 else max(marks.watched(text), self._rank_ids.of(text))
            if fact.rank < 0 and fact.role == "cause" and not (fact.pid or fact.worker):
                fact.rank = of_whom(text)
        if isinstance(fact, Finished) and fact.rank < 0:
            fact.rank = rank_named(said.text)
            self.heard.update({fact.rank} - {-1})
        if isinstance(fact, Took) and fact.rank < 0:
            fact.rank = rank_named(said.text)
        if hasattr(fact, "group") and not fact.group:
            fact.group = said.group
        self._stamp(fact, said)
        if isinstance(fact, Ended) and fact.by == "torchelastic" and said.agent:
            self.marks.agents.setdefault(said.agent, []).append(self._line)
        for rank in said.also:
            self.facts.add(msgspec.structs.replace(fact, rank=rank))
        kept = self.facts.add(fact)
        self._npu.keep(kept)
        self._remember(fact, kept, said)
        return kept

    def _stamp(self, fact: AnyFact, said: Said) -> None:
        if fact.at > 0:
            return
        if said.at > 0:
            fact.at = said.at
        elif isinstance(fact, PythonError | ThreadStack | KnownError) and not self._at:
            fact.at, fact.inherited = self._before(), True
        else:
            fact.at, fact.inherited = self._at, True

    def _before(self) -> float:
        """The last stamp before this line, from lines that were passed over."""
        data, at = self._passed
        back = data[max(0, at - _BACK) : at]
        seen = list(ANYWHERE.finditer(back))
        return self.clock.find(_text(back[seen[-1].start() :][:40])) if seen else 0.0

    def _remember(self, fact: AnyFact, kept: AnyFact, said: Said) -> None:
        self._tables.mpi_stacks.hold(kept)
        self._above.end(kept)
        spoke = self._speaks
        if any([self._places.begin(kept, spoke), self._below.begin(kept, spoke)]):
            self._read.want(_STACK)
        if isinstance(kept, TimedOut):
            self._waits[said.speaker()] = kept
        elif isinstance(fact, Ended | Cancelled | Finished):
            self.course.end()
            if isinstance(fact, Finished):
                self.course.finish(said.rank)
        elif isinstance(kept, PythonError | KnownError):
            self.course.fail(kept)
        if isinstance(fact, Ended) and fact.by == "spawn":
            self._spawned[said.speaker()] = fact.local
        wait = self._waits.get(said.speaker())
        work = getattr(fact, "at_work", -1)
        if wait is not None and work == wait.seq >= 0 and not wait.group:
            wait.group = getattr(fact, "group", "")


def _name(error: PythonError, rule: Rule, text: str) -> None:
    """Rank and node, where the error's own words tell them."""
    error.values = told = rule.values(text)
    error.rank = int(told["rank"]) if told.get("rank") else error.rank
    error.node = told.get("node") or error.node
    died = _OF_ACTOR.search(text) if rule.id == "actor_died" else None
    if died is not None and not error.pid:
        error.pid, error.node = int(died[1]), died[2]
    if rule.id == "actor_creation":
        error.pid = int(told.get("pid") or error.pid)
    if rule.id == "spark_task":
        error.worker = told["worker"]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
