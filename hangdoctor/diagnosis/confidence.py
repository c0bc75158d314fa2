"""How sure each kind of reasoning is: one table, a line of reason each.

The figures are shares of right verdicts. `python -m benchmarks.accuracy` prints what each band and
each kind is worth on its faults; what it does not contain (other programs, other networks) keeps
the figures below what it shows. `sure` starts from a ground and applies what lowers it; nothing
else sets a confidence.
"""

from __future__ import annotations

from enum import Enum


class Ground(Enum):
    """(share of right verdicts, why)."""

    # The process itself, from /proc.
    STOPPED = (0.98, "state T or t in every sample, or a frozen cgroup: read, not inferred")
    DEAD = (0.97, "no process, and others wait in a collective, send or recv")
    DEAD_ALONE = (0.85, "no process, but no other rank is seen to wait for it")
    IO = (0.93, "state D in every sample without CPU time, and others wait")
    IO_ALONE = (0.75, "state D in every sample, but no other rank is seen to wait for it")
    GIL = (
        0.90,
        "one thread holds the GIL at one line in every sample, or a forked child waits for a lock; others wait",
    )
    GIL_ALONE = (0.70, "the same, but no other rank is seen to wait for it")
    SHUT_DOWN = (0.93, "its interpreter is shut down, and others wait in a collective")
    NO_INTERPRETER = (
        0.85,
        "py-spy reads the others and finds no interpreter in it; whether one was there is not seen",
    )
    HOLDS_LOCK = (0.95, "/proc/locks names the process that holds the file lock they wait for")
    LOCK_RING = (0.95, "/proc/locks: each holds the file lock that the next one waits for")
    LEFT_LOCK = (0.85, "all wait for one lock file, and no process here has it open")
    # Stacks.
    OUTSIDE = (0.94, "alive, but not in the communication that all others wait in")
    OUTSIDE_ALONE = (0.55, "not in any communication, but no rank is seen to wait for it")
    LOST_THREAD = (0.80, "most others wait in a thread that it has not, or has no more")
    OUTSIDE_MOVING = (0.75, "not in it, but it moved between the samples: it may only be late")
    BEHIND_GIL = (0.80, "it asks for the GIL, which another thread of it has at all samples")
    ALONE_AT_WORK = (0.60, "in one function at both samples, while all others slept in their waits")
    AT_WORK_IN_ALL = (0.80, "at work in every sample, while all others slept in their waits")
    MOSTLY_WAITED_FOR = (
        0.75,
        "at work in every sample, while most found the others in their waits",
    )
    OUTSIDE_LOOPING = (
        0.60,
        "at other lines of its loop, and nothing counts or grows: it polls, or works slowly",
    )
    NOT_JOINED = (0.90, "others wait in set-up, it has not reached it")
    STORE = (0.93, "others wait in set-up, and its way to the store shows why it has not joined")
    RENDEZVOUS = (0.93, "torchrun runs no rank, and its rendezvous shows which nodes are there")
    NOT_STARTED = (0.97, "its scheduler says that it has not started")
    NOT_JOINED_UNSEEN = (0.80, "others wait in set-up and no process of that rank was found")
    NOT_JOINED_SILENT = (
        0.70,
        "others wait in set-up and its node does not report: it may wait there too",
    )
    NONE_LEAVES = (0.50, "all are in set-up or teardown: the stacks show no reason")
    OWN_END = (
        0.85,
        "its stack is of its own call that ends it, and which process it is, is not known",
    )
    UNNAMED = (0.70, "it is elsewhere than others wait, and who else there is, is not known")
    LEAVING = (0.85, "a few are inside while most have left, or the other way round")
    PEER_ELSEWHERE = (
        0.70,
        "the peer of a send or receive is in something else, which may itself wait",
    )
    ALL_IN_STACKS = (
        0.55,
        "all stacks show one operation: a rank that made one call more or less looks the same",
    )
    MEMBERS_IN_STACKS = (
        0.50,
        "all members of one group show one operation; others wait behind them",
    )
    ORDER_OF_LINES = (0.55, "lines are in order, but operations are not counted")
    ONE_SIDE_OF_TWO = (0.65, "one of two sides made different calls: both are named")
    FEW_AT_GRADIENTS = (
        0.75,
        "a minority reduces gradients and has by its black box not entered what most wait in",
    )
    FEW_NOT_AT_GRADIENTS = (
        0.65,
        "a minority is in an operation that the others, which reduce gradients, have not entered",
    )
    INTERRUPTED = (
        0.90,
        "a function that ran in the midst of its collective makes another one, and others wait elsewhere",
    )
    CALLED_ALONE = (
        0.80,
        "the program runs its collective on one rank only, and all others wait in other operations",
    )
    TWO_THREADS = (
        0.60,
        "two threads are in collectives at once, whose order nothing keeps the same on every rank",
    )
    TWO_THREADS_PERHAPS = (0.45, "the same, and nothing shows that both are of one group")
    SERVED_IN_TURN = (
        0.65,
        "it sent nothing to a rank that receives from all in turn, and others before it did",
    )
    UNMATCHED_PAIR = (
        0.60,
        "a transfer's peer is in a collective that waits for the other side: one of both is wrong",
    )
    STEPS_APART = (0.55, "all exchange at one line, and its count is far from that of all others")
    OTHER_TAG = (
        0.60,
        "the tag of one rank's transfer differs from that of all others, which agree",
    )
    COMPILES = (0.75, "in a compiler at both samples, with the CPU's time, while all others waited")
    FEW_ELSEWHERE = (0.45, "a minority in another operation: a minority alone is not guilt")
    FEW_OF_MEMBERS = (
        0.50,
        "a few members are not in an operation that most wait in; the order is unknown",
    )
    NO_ORDER = (0.25, "several operations in unknown order")
    RING_BY_STACKS = (0.40, "ranks wait for one another, and the stacks show no reason")
    END_OF_CHAIN = (0.60, "ranks wait in a chain for what one that has gone on did not send")
    OUT_OF_LOOP = (0.60, "it has left the loop in which the ranks on both sides wait for it")
    BOTH_SIDES = (0.60, "the ranks on both sides wait for it in the loop of another function")
    ROUNDS_AHEAD = (0.70, "it is in a later round of the loop than who waits for it")
    ROOTS = (0.80, "members name different roots of one collective")
    LAST_ANSWER = (
        0.60,
        "who takes answers of any rank waits, and of all workers one alone is still in its loop: one answer too few, or one awaited too many",
    )
    OTHER_MESH = (0.80, "most make a device mesh of another shape at that line")
    OWN_GROUP = (0.70, "all members make a group that the other ranks are past")
    OTHER_MEMBERS = (0.70, "most make a group of other ranks at that line")
    OTHER_ORDER = (0.80, "most of its members make a group under another number")
    OTHER_GROUP = (0.65, "the same call on another group")
    OTHER_LINES = (0.60, "it reached the operation by other lines than all others")
    NODE_SILENT = (0.80, "a node did not report, and every rank that was seen waits")
    # Operations.
    NOT_AT_OPERATION = (0.95, "counted: all others of the group are at the operation")
    ENDED_AT_OTHERS = (0.85, "the other members have completed the operation")
    NOT_AT_INFERRED = (0.80, "the same, but the members of the group were inferred")
    LAST_IN_TEARDOWN = (0.85, "in teardown when no other rank is missing there")
    LEFT_CLEANLY = (0.85, "ended cleanly while others wait in an operation")
    STILL_AT_END = (0.80, "a few are in an operation while most have ended")
    SIGNATURE_MAJORITY = (0.96, "three or more members agree against it")
    SIGNATURE_PAIR = (0.94, "two members agree against it")
    OWN_ORDER = (0.80, "all others of a group wait in its making for this one, which makes another")
    PARTS_APART = (0.94, "what one sends in an all_to_all is not what another expects")
    SIGNATURE_ROLE = (0.94, "ranks with the same role in other replicas call it differently")
    SIGNATURE_PRECEDENT = (
        0.90,
        "its own earlier calls, or those of ranks with the same role, differ",
    )
    SIGNATURE_PARTLY = (0.70, "its own earlier calls differ, and other members are not seen")
    SIGNATURE_NEW = (
        0.60,
        "its call is one that no rank had made before, the others' the usual one",
    )
    SIGNATURE_OPEN = (0.50, "two sides disagree, and nothing shows which is right")
    HISTORY = (0.94, "its history differs from that of ranks with the same role")
    HISTORY_BEFORE_RECORDS = (0.75, "only the sequence numbers show it: the records begin later")
    HISTORY_OWN = (0.65, "it broke its own pattern, and no other rank runs the same program")
    ALL_ENTERED_TWICE = (0.88, "all members entered it with the same call, in two captures")
    ALL_ENTERED_ONCE = (
        0.75,
        "all members entered it with the same call, in one capture: it may be moving",
    )
    OTHER_STAGES = (
        0.75,
        "as many were sent and received over all other links of the pipeline",
    )
    TRANSFER_BOTH_IN = (
        0.65,
        "both sides entered it, by count: another tag, or a message meant for another, looks the same",
    )
    OTHER_PARTNERS = (
        0.75,
        "it is a party of all transfers that only one side makes, and no history of its role shows it",
    )
    OLD_PARTNER = (
        0.65,
        "its partner of all earlier rounds waits elsewhere, and another rank sends to it, or receives, for the first time",
    )
    BETWEEN_TWO = (
        0.65,
        "one stage sends to it, and the next one waits for the same number from it",
    )
    AWAITED_BY_MORE = (0.70, "several wait for transfers of it, and it is in a collective")
    OTHER_ROUND = (0.70, "all others have changed their round, or kept it, and this one has not")
    AMOUNT_ELSEWHERE = (
        0.60,
        "all wait, and it means to go another number of rounds than all others",
    )
    AMOUNT_APART = (0.75, "it means to go another number of rounds than all others, by a variable")
    RING_BY_RECORDS = (0.50, "a ring of waits, and no history shows who began it")
    LEFT_BY_ERROR = (0.92, "it left the operation by an exception, in which all other members wait")
    ONE_MISSING = (
        0.70,
        "a ring of two collectives: one rank misses in the first, several in the other",
    )
    KEY_NUMBER = (0.60, "its rank is the only number in the key that the key of all others has not")
    ONLY_SETTER = (0.70, "all others wait for one key of the store, and none of these can set it")
    KEY_SETTER = (
        0.65,
        "the key that is waited for says whose it is, or the loop around the wait does",
    )
    UNSET_KEY_IN_STACKS = (
        0.45,
        "a store key is not set, and no stack shows which rank should set it",
    )
    UNSET_KEY = (0.50, "a store key is not set, and no record shows which rank should set it")
    NOT_ANSWERING = (0.85, "two captures: all waits end at ranks that did not answer")
    NOT_ANSWERING_ONCE = (0.75, "the same in one capture: the job may be moving")
    WITHOUT_RECORDS = (0.50, "all waits end at ranks without records, for no known reason")
    ONE_OF_THEM = (
        0.40,
        "several are in nothing that gloo's recorder records, and one may wait for another",
    )
    SLOW_BY_WAITING = (0.85, "it hardly waits, while all others do")
    SLOW_BY_ARRIVAL = (0.85, "it comes last to the collectives, by far, and the others wait for it")
    SLOW_BY_PACE = (0.80, "it takes longest in every call, judged by completion times only")
    SLOW_BY_HISTORY = (0.85, "the collector saw over minutes that the others wait for it")
    # Job logs, after the end.
    LOG_NODE = (0.95, "Slurm names the node that it lost")
    LOG_DAEMON = (0.75, "mpirun lost its process on that node; the network may have failed as well")
    LOG_SOME_NODE = (0.80, "Slurm ended the job for a lost node and does not name it")
    LOG_ERROR = (0.92, "a rank's own error is printed before any wait reached its limit")
    LOG_MISHEARD = (0.45, "the same was said of one that was alive")
    LOG_ERROR_SOMEONE = (0.85, "the same, and the log does not show whose it is")
    LOG_ERROR_OF_ONE_LEFT = (0.70, "the same, and one rank alone did not wait to the limit later")
    OTHER_TEXTS = (0.55, "all poll in one loop of the program's own, one rank for another thing")
    LOG_OTHER_WORDS = (0.60, "all gave up in one place, one rank over another thing than the rest")
    LOG_PRINTED = (0.60, "before all waited it alone printed a line as no other rank did")
    LOG_TOOK_OTHER = (
        0.70,
        "it was brought more data than its call takes, and all others that tell were in one line",
    )
    LOG_VALUE_APART = (0.75, "in a table of all ranks its value alone is no number, or another one")
    LOG_VALUES = (
        0.70,
        "a table of all ranks shows no rank apart, and a check raised what it shows",
    )
    LOG_OWN_WORD = (0.60, "the program's own output calls it the one that is stuck or faulty")
    LOG_AWAITED = (0.60, "an error of another rank's time limit says that it waited for this one")
    LOG_ALIKE = (
        0.70,
        "several ranks raised one error in one place, and which was first does not show",
    )
    LOG_CHECKED = (0.60, "a check that all ranks make found what may be another rank's doing")
    LOG_ERROR_CUT = (0.50, "a traceback before any wait, whose last line is missing")
    LOG_THREAD = (0.55, "an exception ended a thread, and no progress is seen after it")
    LOG_WARNED = (0.50, "it logged an error as a warning and went on; others then waited in vain")
    LOG_LEFT = (0.60, "torchelastic lists all others as failed, and they only lost a connection")
    LOG_GUARD = (0.75, "the program's own guard saw it elsewhere, and all others in a collective")
    LOG_INTERRUPTED = (0.55, "the interrupt met it elsewhere, and all others in a collective")
    LOG_MET_APART = (0.55, "the errors that ended the waits met it alone in another collective")
    LOG_COUNTED_ON = (
        0.70,
        "the log goes on counting while all others wait, and these print nothing",
    )
    LOG_PREPARES = (
        0.70,
        "all others timed out, and a bar of data that is made ready had not come to its end",
    )
    LOG_SOMEONE_PREPARES = (0.60, "the same, and the log does not show which rank it was")
    LOG_OUTLASTED = (0.60, "it printed that its work took longer than the others' time limit")
    LOG_STORE_LEFT = (0.70, "all others lost the store that rank 0 holds, and it raised nothing")
    LOG_ASKED = (0.65, "a question on standard input is the last that the program printed")
    LOG_STACKS = (0.70, "a guard's stacks have it elsewhere, and all others in a collective")
    LOG_TABLE = (0.60, "a table has it elsewhere than most, who stand together in one call")
    LOG_LISTED = (0.80, "a list of processes shows their state")
    LOG_LISTED_ONCE = (0.50, "the same, which may have passed, or be of a helper")
    LOG_BEHIND = (0.50, "all others have printed a later step, and then all were idle")
    LOG_DEATH = (0.93, "a signal that no launcher sent ended the process before the others")
    LOG_DEATH_SOMEONE = (0.80, "the same, and the log does not show which process that was")
    LOG_EXIT = (0.60, "it ended first with an error code, and its own words are missing")
    LOG_ABORTED_ALONE = (
        0.45,
        "it alone is seen to fail, by SIGABRT, and its own words are missing",
    )
    LOG_SEEN_FIRST = (
        0.45,
        "its launcher saw it abort before it ended others, and its own words are missing",
    )
    LOG_TOOK_NOTHING = (0.70, "messages of several others to it reached the time limit")
    LOG_ABORT = (0.85, "it called MPI_Abort, which ends all others")
    LOG_DESYNC = (0.90, "torch's desync report names who did not join")
    LOG_BARRIER = (0.92, "monitored_barrier names who did not come")
    LOG_KEY = (0.85, "the store's key that was not set is this rank's")
    LOG_STAYED = (0.80, "it alone did not end at SIGTERM, while others had waited for long")
    LOG_NO_BEAT = (
        0.85,
        "its heartbeat stopped inside the operation, and those of the others went on",
    )
    LOG_NO_BEAT_ALONE = (0.60, "the same, and a few others did not move either")
    LOG_WENT_ON = (0.80, "all other ranks ended cleanly, and these few lost them in an operation")
    STILL_LATER = (0.75, "a signal ended it long after all other ranks had ended with exit code 0")
    LOG_NEVER_STARTED = (0.85, "as many ranks left no black box as did not come to the rendezvous")
    LOG_UNHEARD = (0.80, "as many ranks printed no line as did not come to the rendezvous")
    LOG_JOINED = (0.90, "the store counts how many processes came")
    LOG_COUNTERS = (0.88, "in the group that timed out it has enqueued fewer operations")
    LOG_AHEAD = (0.50, "few wait in an operation that most others have not enqueued")
    LOG_MISMATCH = (0.90, "at one number of one group it runs something else than the others")
    LOG_MISMATCH_PAIR = (0.60, "two ranks run different operations at one number")
    LOG_APART = (
        0.60,
        "in one group two ranks wait in different operations, none completed by both",
    )
    LOG_NOT_WAITING = (0.75, "every other rank waited until the limit, and this one did not")
    LOG_NEVER_HEARD = (0.45, "every other rank timed out, and this one is not in the log at all")
    LOG_PEER = (0.60, "others lost their connection to it, and nothing came before")
    LOG_HEARTBEAT = (0.80, "HCCL names the device whose heartbeats stopped")
    LOG_LINK = (0.60, "a connection failed before anything else; either end may be at fault")
    LOG_UNREAD = (0.65, "its line speaks of a failure in words that no rule knows")
    LOG_UNREAD_SOMEONE = (0.60, "the same, and the log does not show whose line it is")
    LOG_STORE_HOST = (0.60, "others waited for its key in the store")
    LOG_ALL_WAITED = (0.50, "every rank timed out in one operation with equal counters")
    # NCCL RAS.
    RAS_LOST = (0.75, "RAS lost the process, and the communicator spans the job")
    RAS_LOST_ELSEWHERE = (0.50, "the same in a communicator whose numbering is not the job's")
    RAS_ERROR = (0.70, "RAS reports an error of the rank's own")
    RAS_FEWER = (0.70, "RAS counts fewer launches, and the communicator spans the job")
    RAS_BEHIND = (0.40, "RAS counts fewer launches of most ranks: few are ahead")
    RAS_PROCESS = (0.70, "RAS lost a process, whose rank it does not know")
    RAS_FEWER_ELSEWHERE = (0.45, "RAS counts fewer launches, in ranks that are not the job's")
    # GPUs.
    OWN_DEVICE = (0.75, "the only rank waits for its own GPU, at one line with the same variables")
    ONLY_MEMBER = (0.85, "no other rank is in the group of an operation that does not finish")
    GPU_FAILED = (0.85, "the driver reported an error that stops its GPU, and others wait")

    @property
    def share(self) -> float:
        """Share of right verdicts, 0 to 1."""
        return float(self.value[0])

    @property
    def reason(self) -> str:
        """Why it is that sure."""
        return str(self.value[1])


class Limit(Enum):
    """(highest confidence, why): what leaves a doubt that no other evidence removes."""

    ONE_SAMPLE = (0.75, "one sample does not show whether it moves")
    NO_STACK = (0.50, "its stack could not be read")
    AHEAD = (
        0.65,
        "it is past the line where the others wait: they may be waiting for someone else",
    )
    MORE_THAN_WAIT = (0.70, "more ranks are outside than wait")
    UNRECORDED_GRADIENTS = (0.45, "gradients are reduced without a record, and it may wait in that")
    UNRECORDED_TRANSFER = (
        0.70,
        "the recorder leaves sends and receives out, and it may wait in one",
    )
    BY_HEARTBEAT = (
        0.85,
        "the place of one thread at the last heartbeats, and no count of operations",
    )
    GIL_AT_WORK = (0.80, "the thread that holds the GIL runs: it may come to an end")
    USUAL_WAIT = (0.50, "waits as long are usual in this job")
    SHORT_WAIT = (
        0.75,
        "the others had not waited long when the job was ended: it may be slow work",
    )

    @property
    def highest(self) -> float:
        """What a confidence is at most."""
        return float(self.value[0])


class Less(Enum):
    """(how much less, why)."""

    RANKS_UNSEEN = (0.05, "some ranks were not seen")
    OVERWRITTEN = (0.10, "the records of the operation are overwritten")
    AROUND_SILENCE = (0.10, "blamed by its history alone, near ranks that are silent")
    SEVERAL_SILENT = (0.10, "several ranks are silent, and one may be waiting for another")
    STACKS_DISAGREE = (0.15, "stacks clearly name another rank")
    LOG_DISAGREES = (0.20, "the job's own output names another rank, or saw this one wait")

    @property
    def amount(self) -> float:
        """What a confidence is lowered by."""
        return float(self.value[0])


CLEAR = 0.9  # a verdict from stacks that is at least so sure contradicts one from operations
_AGREE = 0.02  # two independent kinds of evidence name the same rank
_HIGHEST = 0.98


def sure(ground: Ground, *doubts: Limit | Less) -> float:
    """The confidence of a finding: the ground's share, capped by limits, then lowered."""
    share = ground.share
    for doubt in doubts:
        if isinstance(doubt, Limit):
            share = min(share, doubt.highest)
    for doubt in doubts:
        if isinstance(doubt, Less):
            share = lowered(share, doubt)
    return share


def limited(share: float, limit: Limit) -> float:
    """`share`, at most what the limit allows."""
    return min(share, limit.highest)


def lowered(share: float, less: Less) -> float:
    """`share` less the amount, and never nothing: a verdict that is given is at least possible."""
    return round(max(0.1, share - less.amount), 2)


def agreed(one: float, other: float) -> float:
    """The confidence of two findings of the same kind and ranks, from stacks and from operations."""
    best = max(one, other)
    return round(max(one, min(_HIGHEST, best + _AGREE)), 2)
