"""What the logs come to in words where they name no rank."""

from __future__ import annotations

import signal

from ...text.late import late
from ...text.ranges import format_ranks
from ..findings.log_remaining import LogRemaining, Undecided, WentOnAfter
from ..findings.log_stories import Quote
from . import log_leads, terms
from .log_words import next_time
from .terms import choose


def remaining(of: LogRemaining) -> str:
    """Why the logs name no rank, and what would have decided it."""
    if of.reason is Undecided.FROM_OUTSIDE:
        return f"The job was {_from_outside(of)}, and nothing hung: {_last(of)}."
    if of.reason is Undecided.ENDED_CLEANLY:
        last = f", after iteration {of.iteration}" if of.iteration >= 0 else ""
        shown = "by the exit codes of its ranks" if of.source == "boxes" else "as its log shows"
        return f"The job ended cleanly{last}, {shown}."
    beside = ""
    if of.ras and of.reason in _WAITS:
        beside = f". NCCL RAS reaches all {of.ras} ranks with equal counts: {_BEYOND}"
    return f"Could not tell: {_reason(of)}{beside}{log_leads.all_of(of)}."


_BAR = late(r"\|[\u2588-\u258f# -]{2,200}\|")  # drawn by tqdm
_BEYOND = "no process is missing, so it is probably the network, a link or a GPU"
_WAITS = (Undecided.EQUAL_COUNTERS, Undecided.WAITERS_ONLY, Undecided.ONE_WAITER)


def _reason(of: LogRemaining) -> str:
    who = terms.ranks(of.ranks) or _process(of) or "a rank"
    op = terms.op(of.op) if of.op is not None and of.op.name else "an operation"
    only = choose(of.ranks or 1, "waits", "wait")
    decide = f"counters of all ranks would show who did not come. {next_time(of.no_recorder)}"
    texts = {
        Undecided.WAITED_TO_LIMIT: f"{who} waited in {of.library} to the limit{_of(of.seconds)}{_waited(of)}{_who_else(of)}",
        Undecided.GAVE_UP: f"{who} ended with {_code(of.code)} after {choose(of.ranks, 'it', 'they')} had got on with nothing for {terms.duration(of.seconds)}, which looks like a time limit of the program; which rank it waited for is not recorded. Next time, hangdoctor dump before that",
        Undecided.GUARDED: f"the program's own guard saw no progress of {who} for {terms.duration(of.seconds)}{_in(of)}, and which rank the others waited for it does not say. {_dump_or_stacks(of)}",
        Undecided.WATCHDOG_STUCK: f"the thread of NCCL's watchdog did not move in {who}{_during(of.seconds)}, as a CUDA call or the GIL can hold it, and who held it the log does not show: the last lines of {choose(of.ranks or 1, 'that rank', 'those ranks')} show where it was. Next time, hangdoctor dump while it stands",
        Undecided.STATES: f"a table shows {_states(of)}, and who waits in MPI may do either: the stacks of all of them, or hangdoctor dump while it stands, show where each is",
        Undecided.POSTED: f"by MPI's queues {who} {choose(of.ranks, 'has', 'have')} receives posted that nothing has come for ({', '.join(of.sides)}), and whether that was never sent or was lost on its way they do not show{_senders(of)}",
        Undecided.SHARED_QUEUE: f"{terms.ranks(of.ranks) or _process(of) or 'a process'} waits at the queue in shared memory between an engine and its workers{_during(of.seconds)} or more: a process on the other side hangs or is busy for long, as while it compiles or loads, and which one these lines do not show. Next, hangdoctor dump --local while it stands: it shows where each worker is",
        Undecided.INTERRUPTED: f"Ctrl-C met {who} in {terms.place_of(of.op) if of.op else ''} and all others in a collective, and nothing shows whether they had waited there for long: if so, begin there. Next time take hangdoctor dump before Ctrl-C",
        Undecided.FROM_OUTSIDE_IDLE: f"the job was {_from_outside(of)}{_idle(of)}. Next time take hangdoctor dump before ending the job: it shows what the ranks do",
        Undecided.TWO_SIDES: f"{who} disagree in {op}, {_sides(of)}, and nothing shows which of the two is right: another replica, or the calls of a run that went well, would",
        Undecided.RING: f"{who} wait for one another in a ring{_waited(of)}, and the records do not show which of them made a wrong call: ranks of another replica, or the calls of a run that went well, would",
        Undecided.UNSET_KEY: f"{who} {only} for {op} in the store, which no rank has set, and which rank should have set it is not recorded: find the line that sets it",
        Undecided.ABORTED_INSIDE: f"{who} {choose(of.ranks, 'was', 'were')} aborted (SIGABRT) inside {op}: gloo does that to whichever rank receives what another one should not have sent, and which one that was is not recorded: its output says what did not match",
        Undecided.EQUAL_COUNTERS: f"{who} timed out in {op} {_alike(of)}, {_missing(of, decide)}",
        Undecided.AHEAD: f"{who} timed out in {op}{_ahead(of)}. {next_time(of.no_recorder)}",
        Undecided.WAITERS_ONLY: f"{who} timed out in several operations{_waited(of)}{_furthest(of)}, and nothing shows who began it{_unheard(of)}: {decide}",
        Undecided.ONE_WAITER: f"{_alone(of, who, op)}. {next_time(of.no_recorder)}",
        Undecided.VICTIMS_ONLY: f"{who} {_how(of)}: {_from_what(of)}",
        Undecided.ABORTS_ONLY: f"{who} ended with {_code(of.code)}, which is mostly a consequence, and {_no_cause(of)}",
        Undecided.CANCELLED: f"{_cancelled_by(of)}, and {_failed_before(of)}{_printed(of)}{_not_swept(of)}",
        Undecided.TASK_FAILED: f"Slurm ended the step because a task of it had failed, which the log does not name{_not_swept(of)}{_printed(of)}. Give the output of all tasks (srun -l), and sacct -j JOB",
        Undecided.TIME_LIMIT: f"{of.library} ended the job at its time limit, and {_failed_before(of)}{_printed(of)}: a longer {'--time' if of.library == 'Slurm' else 'time limit'}, or the last iterations show whether it had stopped",
        Undecided.SIGNALLED: f"{of.library or 'a process'} was ended from outside by {_signals(of)}{_whose(of)}, and {_failed_before(of)}{_printed(of)}",
        Undecided.PREEMPTED: f"Slurm preempted the job, and {_failed_before(of)}{_printed(of)}",
        Undecided.STORE_GONE: f"{who} lost the rendezvous store: the process that holds it, rank 0's or the first node's launcher, had ended before, and {_evidence(of)} do not show why. Give its log",
        Undecided.ALL_SEND: f"{who} all wait in send at {terms.place_of(of.op) if of.op else ''} and none receives: each waits until the next one receives. Let some receive first, or use dist.batch_isend_irecv",
        Undecided.FOLLOWED: f"{_speaker(of)} printed that {_meaning(of)}{_line(of)}{_earlier(of)}. Give the logs of all ranks and nodes",
        Undecided.GOES_ON: f"the log ends after iteration {of.iteration} without {_lacks(of)}: it may be cut, or the job hangs or runs: hangdoctor dump shows a running one",
        Undecided.CUT_OFF: f"no exit is recorded. {_at_work(of)}{_round(of)}, and {_last(of, whose='the')} the last heartbeat{_silent(of)}. All were killed at once, or one first and the others after it: dmesg or the launcher's output shows which",
        Undecided.OTHER_CALLS: f"torch's check found that ranks made different calls, and its line is cut before it names both{_cut(of)}: give the output of all ranks",
        Undecided.LAUNCHER_ONLY: _launcher_only(of),
        Undecided.CUT_IN_WAIT: _cut_in_wait(of, who),
        Undecided.NO_END: f"{_no_end(of)}: give the logs of all nodes and ranks, stderr too",
    }
    return texts[of.reason]


def _dump_or_stacks(of: LogRemaining) -> str:
    if of.stacked:
        return "It printed their stacks, which are shown: compare where each stands, also in the threads beside the main one"
    return "Next time, hangdoctor dump before that"


def _launcher_only(of: LogRemaining) -> str:
    """Whom the launcher saw fail, where its line lists them, and what is missing."""
    if not of.ranks:
        return "the launcher saw a process fail, and what that one printed is not in these logs: give its own log or error file"
    who, they = terms.ranks(of.ranks), choose(of.ranks, "it", "they")
    first = "" if len(of.ranks) == 1 else "; which was first it does not say"
    return f"the launcher saw {who} fail{first}, and what {they} printed is not in these logs: give their own logs or error files"


def _cut_in_wait(of: LogRemaining, who: str) -> str:
    """A rank that ended in a wait, and whom it waited for."""
    call = of.op.name if of.op is not None else ""
    at = f" at {terms.place_of(of.op)}" if of.op is not None else ""
    others = "the others did meanwhile"
    if call.endswith("_first"):
        others = "the main process (rank 0, or the first one of its node) did meanwhile, for which all others wait there"
    where = f"{who} ended in a wait for other ranks, {call}{at}"
    lacks = "its traceback lacks its last line, which would say why, as at a time limit"
    return f"{where}; {lacks}. A waiter is no culprit: see what {others}, and give the logs of all ranks"


def _cancelled_by(of: LogRemaining) -> str:
    """Slurm's own reason, where it gives one; else a person's."""
    if of.meaning:
        return f"Slurm ended the job (due to {of.meaning})"
    return "the job was cancelled (scancel or its user)"


def _not_swept(of: LogRemaining) -> str:
    """Whom srun's list of the tasks that it ended leaves out."""
    if not of.quiet:
        return ""
    tasks, it = format_ranks(of.quiet), choose(of.quiet, "it", "they")
    name = choose(of.quiet, f"task {tasks} is", f"tasks {tasks} are")
    return f"; of all tasks up to the last, {name} not among those that srun ended: {it} had ended before, or could not be ended, so look there first"


def _missed(of: LogRemaining) -> str:
    """What they waited for: at a start, for who did not come."""
    starting = of.library == "the rendezvous store" or of.library.startswith("the set-up")
    return "which rank did not come there" if starting else "which rank made other calls"


def _memory(of: LogRemaining) -> str:
    """Who else kills, of processes that were killed."""
    if of.code != -signal.SIGKILL:
        return ""
    return ", or dmesg -T | grep -i -e oom -e killed on its node"


def _failed_before(of: LogRemaining) -> str:
    """That nothing failed before an end from outside, or what the job survived."""
    if of.before is None and of.trouble is not None:
        known = "no failure of a kind that is known is in the log before that"
        return f"{known}: one line that says error is {_trouble(of.trouble)}"
    if of.before is None:
        return "nothing failed before that in the log"
    return f"before that {_survived(of.before)}"


def _lacks(of: LogRemaining) -> str:
    """What a log that stops does not have."""
    if of.trouble is not None:
        return f"a clean end or a failure of a kind that is known, and a later line that says error is {_trouble(of.trouble)}"
    if of.before is None:
        return "a failure or a clean end"
    return f"a clean end, and {_survived(of.before)}"


def _trouble(quote: Quote) -> str:
    """A line that says error, its end rather than its beginning."""
    return f"'{terms.tail(quote.says, 120)}' ({quote.file}:{quote.line})"


def _line(of: LogRemaining) -> str:
    """Where the line is that a sentence is about."""
    return f" ({of.last.file}:{of.last.line})" if of.last is not None else ""


def _speaker(of: LogRemaining) -> str:
    """Who printed it: of a library's process, which may be no rank, the log need not show the rank."""
    said = of.node in of.meaning
    at = f" on {of.node}" if of.node and not said else ""
    if of.ranks:
        one = len(of.ranks) == 1
        return f"{terms.ranks(of.ranks)}{at if one else ''}"
    if not of.process:
        return f"a process{at}"
    which = ""
    if of.devices:
        which = f" ({terms.choose(of.devices, 'device', 'devices')} {format_ranks(of.devices)})"
    return f"process {of.process}{which}{at}"


def _earlier(of: LogRemaining) -> str:
    """Of a line that may say of a failure of its own, that nothing failed before; else that something did."""
    if of.unread:
        return ", and what came first the lines that are known here do not show"
    if of.earliest:
        return f", and {_evidence(of)} show no failure before it"
    return f", and what came first {_evidence(of)} do not show"


def _meaning(of: LogRemaining) -> str:
    """What the line means; of several ranks."""
    own = of.meaning.startswith("its call ") and len(of.ranks) > 1
    return of.meaning.replace("its call ", "their call ", 1) if own else of.meaning


def _process(of: LogRemaining) -> str:
    """``process 812 on n3``; "" where it is not known."""
    at = f" on {of.node}" if of.node else ""
    return f"process {of.process}{at}" if of.process else ""


def _survived(error: WentOnAfter) -> str:
    """``a thread of a rank ended by 'OSError: ...' (job.log:23), after which the job went on``."""
    who = terms.ranks(error.ranks) or "a rank"
    at = f"'{terms.cut(error.quote.says, 70)}' ({error.quote.file}:{error.quote.line})"
    if error.thread:
        return f"a thread of {who} ended by {at}, after which the job went on"
    return f"{who} printed {at}, after which the job went on"


def _no_end(of: LogRemaining) -> str:
    if of.trouble is None:
        return "the log holds neither a failure nor a clean end"
    known = "no line shows a failure of a kind that is known"
    return f"{known}; one that says error is {_trouble(of.trouble)}"


def _round(of: LogRemaining) -> str:
    return f" (iteration {of.iteration})" if of.iteration >= 0 else ""


def _sides(of: LogRemaining) -> str:
    """``broadcast (train.py:16) and barrier (train.py:17)``, ``shapes [8] and shapes [9] (...)``."""
    lines = [terms.site(op.site) if op is not None and op.site else "" for op in (of.op, of.other)]
    told = zip(terms.on_sides(of.sides, of.on), lines, strict=False)
    return " and ".join(f"{values} ({line})" if line else values for values, line in told)


_SENDERS = {
    signal.SIGHUP: ", which it gets when its terminal closes, nohup or not: tmux, screen or sbatch keep it",
    signal.SIGINT: " (Ctrl-C)",
    signal.SIGTERM: ": a person, a scheduler, or the launcher of another node",
}


def _whose(of: LogRemaining) -> str:
    """Who sends such a signal."""
    if of.sender:
        return f", which process {of.sender} sent, often its parent"
    sent = {-code for code in of.codes}
    return next((text for number, text in _SENDERS.items() if sent == {number}), "")


def _signals(of: LogRemaining) -> str:
    return " or ".join(terms.signal_name(-code) for code in of.codes)


def _how(of: LogRemaining) -> str:
    """What happened to ranks that did not end by themselves."""
    signals = _signals(of)
    to = f" to {' and '.join(of.peers)}" if of.peers else ""
    ways = [f"lost a connection{to}"] if of.lost or not signals else []
    return " or ".join([*ways, *([f"got {signals}"] if signals else [])])


def _evidence(of: LogRemaining) -> str:
    return "the black boxes" if of.source == "boxes" else "these logs"


def _printed(of: LogRemaining) -> str:
    """How far the log shows that the job came."""
    if of.last is None:
        return ""
    where = "it" if of.before is None else "the log"
    return f"; the last progress in {where} is '{terms.tail(_BAR.sub('|', of.last.says), 60)}' ({of.last.file}:{of.last.line})"


def _from_what(of: LogRemaining) -> str:
    evidence = _evidence(of)
    if of.tested is not None:
        at = f"'{of.tested.says}', {of.tested.file}:{of.tested.line}"
        return f"a run of tests had ended well before ({at}), and what it tested is then stopped, so that whoever goes last loses the others. {terms.capital(evidence)} show no failure before that"
    if of.peers:
        ended = f"{choose(of.peers, 'it', 'they')} ended or could not be reached"
        return f"{ended}, and {evidence} do not show why. Give the logs of all nodes, that of {of.peers[0]} first"
    if of.lost or not of.codes:
        return f"the process at the other end had ended, or the network to it broke, and {evidence} do not show which. Give the logs of all nodes"
    places = [f"{terms.ranks(ranks)} in {terms.frame(frame)}" for ranks, frame in of.met]
    met = f". It met {' and '.join(places)}" if places else ""
    before = f"{evidence} show nothing before it"
    if of.before is not None:
        before = f"before it {_survived(of.before)}"
    return f"that follows from a person, a scheduler or a launcher, and {before}{met}"


def _from_outside(of: LogRemaining) -> str:
    return f"ended from outside ({_signals(of)} to {terms.ranks(of.ranks)})"


def _last(of: LogRemaining, whose: str = "its") -> str:
    op = (
        f"{whose} last operation, {terms.op(of.op)},"
        if of.op is not None
        else f"{whose} last sign of progress"
    )
    return f"{op} was {terms.duration(of.seconds)} before"


def _at_work(of: LogRemaining) -> str:
    """Who had a heartbeat and progress to the end."""
    if not of.silent:
        return f"Nothing hung: {terms.ranks(of.ranks)} were at work to the end"
    others = [rank for rank in of.ranks if rank not in of.silent]
    were = choose(others, "was", "were")
    return f"The job went on to its end: {terms.ranks(others)} {were} at work"


def _silent(of: LogRemaining) -> str:
    """Whose heartbeat stopped before that of the others, and what does so."""
    if not of.silent:
        return ""
    had = f"{terms.capital(terms.ranks(of.silent))} had no heartbeat in the last {terms.duration(of.silent_s)}"
    does = "native code kept the interpreter's lock, as gc.collect does"
    if not of.kept:
        does += f", or {choose(of.silent, 'it', 'they')} ended first"
    return f". {had}, no longer than the job's pauses: {does}"


def _idle(of: LogRemaining) -> str:
    """For how long it had done nothing, and for which ranks the others waited."""
    seconds = terms.duration(of.seconds)
    if of.other is not None and of.quiet:
        few = terms.ranks(of.quiet)
        waited = f"when all ranks but {few} had waited in {terms.op(of.other)} for {seconds}"
        return f" {waited}: begin at {few}, which may have been stuck, or slow as before"
    after = f" after {terms.op(of.op)}" if of.op is not None else ""
    return f", and had made no recorded operation for {seconds}{after}"


def _in(of: LogRemaining) -> str:
    return f", all in {terms.op(of.op)}" if of.op is not None else ""


def _cut(of: LogRemaining) -> str:
    if of.last is None:
        return ""
    says = terms.cut(of.last.says.partition(". ")[2] or of.last.says, 100)
    return f" ('{says}', {of.last.file}:{of.last.line})"


def _waited(of: LogRemaining) -> str:
    return f", {terms.in_operations(of.waited)}" if of.waited else ""


def _furthest(of: LogRemaining) -> str:
    if of.furthest < 0 or of.furthest_op is None:
        return ""
    return f"; rank {of.furthest} is the furthest behind, still in {terms.op(of.furthest_op)}"


def _no_cause(of: LogRemaining) -> str:
    if of.quiet:
        first = f"see first whether {choose(of.quiet, 'it', 'they')} left before"
        return f"no exit of {terms.ranks(of.quiet)} is recorded: {first}, with exit code 0"
    if of.source == "boxes":
        return "no black box shows a cause before it: give the job's output too"
    rank = choose(of.ranks or 1, "that rank", "those ranks")
    return f"the log shows no cause before it: the output of {rank} may{_memory(of)}"


_TWO = 2  # sides
_TRANSFERS = ("send", "recv", "isend", "irecv")


def _who_else(of: LogRemaining) -> str:
    """What is not known of the rank that these waited for, or who did not wait as long as they."""
    run = "Next time start it with hangdoctor run -- CMD"
    if of.quiet:
        first = f"see first what {choose(of.quiet, 'it', 'they')} did"
        return f", and {terms.ranks(of.quiet)} printed no error: {first}. {run}"
    if of.awaited >= 0:
        within = f" of group {of.group} (its own numbering)" if of.group else ""
        return f", for rank {of.awaited}{within}, and whether that one came late, hangs or had ended these logs do not show: read its log first"
    if of.source == "boxes":
        return f", and {_missed(of)} its black boxes do not show"
    if len(of.waited) == _TWO and not any(op.name in _TRANSFERS for _, op in of.waited):
        return (
            f": the two sides make different calls, and nothing shows which of them is wrong. {run}"
        )
    return f", and nothing shows {_missed(of)}. {run}"


def _alike(of: LogRemaining) -> str:
    """Whether the operation was the same on all of them, as far as its sizes show."""
    if not of.sizes:
        return "alike"
    told = ", ".join(f"{terms.ranks(ranks)} with {size}" for ranks, size in of.sizes)
    return f"with different sizes ({told} elements), which is a lead where all should bring as many"


def _missing(of: LogRemaining, decide: str) -> str:
    """Whether one of these did not come; all of them did, as far as the log shows."""
    if of.awaited >= 0:
        return f"and {_awaited(of)}. {next_time(of.no_recorder)}"
    if of.unheard or of.sizes:
        return f"and nothing shows who is missing{_unheard(of)}: {decide}"
    others = "a rank that the log does not show did not come"
    link = "all came and the network, a link or a GPU between them is at fault"
    return f"and none of these is missing: {others}, or {link}{_first_of_all(of)}. The counters of the others would show which. {next_time(of.no_recorder)}"


def _first_of_all(of: LogRemaining) -> str:
    """That nothing went through before."""
    if of.op is None or of.op.seq != 1:
        return ""
    return "; it is the first operation of its group, in which GPUs or nodes that cannot reach one another show up"


def _states(of: LogRemaining) -> str:
    """``ranks 0,2 at work (R) and rank 1 asleep``."""
    run = f"{terms.ranks(of.ranks)} at work (R)" if of.ranks else ""
    rest = f"{terms.ranks(of.quiet)} asleep or stopped" if of.quiet else ""
    return " and ".join(filter(None, (run, rest)))


def _senders(of: LogRemaining) -> str:
    """Whose queues and stacks would tell more of these receives."""
    if not of.quiet:
        return ""
    return f": look at the queues and the stack of {terms.ranks(of.quiet)} first, of which these logs have none"


def _alone(of: LogRemaining, who: str, op: str) -> str:
    """The only waiter; a line may name the rank that it waits for."""
    if of.awaited >= 0:
        return f"{who} {choose(of.ranks or 1, 'waits', 'wait')} in {op}, and {_awaited(of)}"
    if not of.ranks and not of.process:
        return f"a wait in {op} reached its limit, its line does not name the rank, and a waiter is no culprit{_first_of_all(of)}: collect the logs of all ranks"
    only = choose(of.ranks or 1, "waits", "wait")
    if of.aborted:
        too = f"the watchdog of {terms.ranks(of.aborted)} gave up, too"
        return f"{who} {only} in the log (in {op}), {too}, and a waiter is no culprit{_first_of_all(of)}: collect the logs of all ranks"
    return f"only {who} {only} in the log (in {op}), and a waiter is no culprit{_unheard(of)}{_first_of_all(of)}: collect the logs of all ranks"


def _awaited(of: LogRemaining) -> str:
    """The rank that the log itself says the others wait for, which is no proof."""
    return f"a line of the log names rank {of.awaited} as the one that is waited for; whether it came late, hangs or had ended does not show: read its log first"


def _ahead(of: LogRemaining) -> str:
    """The ranks that a waiter left behind, and what that does not show."""
    if of.ahead is None:
        return ""
    ahead, others = of.ahead, terms.ranks(of.ahead.others)
    waited = ""
    if ahead.elsewhere:
        waited = f", and {terms.ranks(ahead.elsewhere)} waited in gloo instead"
    mine = f"had called operations up to #{ahead.called}"
    theirs = f"{others} had called none after #{ahead.last}, and completed all of them"
    return f" and {mine}; {theirs}{waited}. So their ways through the program part, and which of them is wrong does not show: compare what they call after #{ahead.last}"


def _unheard(of: LogRemaining) -> str:
    if not of.unheard:
        return ""
    if of.cut:
        return f" (the log ends in the middle of a line, and until there has none of {terms.ranks(of.unheard)}: look there first)"
    return f" (the log has no such line of {terms.ranks(of.unheard)}: look there first)"


def _during(seconds: float) -> str:
    return f" for {terms.duration(seconds)}" if seconds else ""


def _of(seconds: float) -> str:
    return f" of {terms.duration(seconds)}" if seconds else ""


def _code(code: int) -> str:
    return f"exit code {code}" if code > 0 else terms.signal_name(-code)
