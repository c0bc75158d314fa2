"""What lines tell by the way: iterations, the size of the job, which rank runs where."""

from __future__ import annotations

import re

from ...model.log_facts import NAN_GUARD, KnownError, Progress
from ...text.late import late
from ...text.ranges import number_in
from .course import Way
from .own_rank import OwnRank
from .prefix import Said

_LONG = 2000  # characters that are looked through
_BAR = late(r"\|\s{0,4}(\d{1,12})/(\d{1,12}) \[")
_PREPARES = late(
    r"\b((?:Load|Fetch|Download|Captur|Resolv|Tokeniz|Convert|Pack|Filter|Compil|Quantiz)ing"
    r"|Map|Filter|Running tokenizer|Generating \w+ split|Saving the dataset)\b[^|%]{0,120}:\s{0,4}\d{1,3}%(?:\|[^|]{0,400})?\s*$"
)
_NO_BAR = late(r"% {1,4}(\d{1,12})/(\d{1,12}) \[")  # the same, its bar left out
# A bar that a program draws itself: `train |##......| 25/600 mae 2.8`, `[=====>    ] 12/40`
_DRAWN = late(r"(?:^|[|\[])[#=*█▇▏▎▍▌▋▊▉░>.\-_ ]{6,200}[|\]]\s{0,4}(\d{1,12})\s?/\s?(\d{1,12})\b")
# Megatron, DeepSpeed, torchtitan, Lightning, Hugging Face, and what people print themselves.
_PROGRESS = (
    late(r"\biteration:?\s+(\d{1,12})\s?/\s*(\d{1,12})\b"),
    late(
        r"\b(?:[Ss]teps?|[Ii]ter(?:ation)?s?|global[_ ]step|train_step)\s?[:=#]\s{0,8}(\d{1,12})(?:\s?/\s?(\d{1,12}))?\b(?!%)"
    ),
    late(
        r"\b(?:[Ss]tep|[Ii]ter(?:ation)?)\s{1,8}(\d{1,12})"
        r"(?:\s?/\s?(\d{1,12})|\s?[:|,]|(?=\s*$|\s{1,8}(?:loss|lr|grad|done|took|train)))"
    ),
    late(
        r"^(?:.{0,40}\b)?(?:step|iter(?:ation)?|it|batch)\s{1,8}(\d{1,12})\s[^:\n]{0,80}?\d\.\d",
        re.I,
    ),
    _BAR,
    _NO_BAR,
    _DRAWN,
    late(r"'epoch': (\d{1,6}(?:\.\d{1,6})?)"),
    late(r"\bnum_updates=(\d{1,12})\b"),  # fairseq's
    late(r"(?<![\w.])(?:it|i|batch|update)=(\d{1,12})\b[^:\n]{0,80}?=\s?-?\d{0,9}\.\d", re.I),
)
# Counts beside the iterations: `eval 55/300 score 1.2`
_PART = late(
    r"^\W{0,3}(?P<part>(?:eval|valid|test|infer|predict|generat|sampl|decod)\w{0,12})\b"
    r"[ :=#]{1,3}(?P<at>\d{1,12})\s?/\s?(?P<of>\d{1,12})\b",
    re.I,
)
_BY_RANK = late(r"\[?[Rr]ank[ _=]?(\d{1,7})(?: of \d{1,7})?(?:\]:?|:) ")
# Also "at step 17": a guard's words where nothing moves.
_NO_PROGRESS = late(
    r"\b(?:no progress|not? mov|failed\b|stall|stuck|hung\b|hang\b|exiting|abort|giving up)", re.I
)
_WORLD = late(
    r"\b(?:dist_world_size|world[_ ]size|WORLD_SIZE|nranks|DP_SIZE_TOTAL)['\"]?\s?[:=]?\s{0,3}(\d{1,7})\b"
)
# Lightning's and accelerate's: who begins, and how many they are.
_MEMBER = late(r"\bGLOBAL_RANK: (\d{1,7}), MEMBER: \d{1,7}/(\d{1,7})\b")
_PROCESSES = late(r"\b(?:Num processes: (\d{1,7})\b|Starting with (\d{1,7}) processes\b)")
_ONE_OF = late(r"^\[?[Rr]ank[ _=]?\d{1,7} of (\d{1,7})\b")
# Open MPI's mpirun, of whose end all others were ended
_LEFT = late(r"\bprocess rank (\d{1,7}) with PID (\d{1,9}) on node ([\w.-]{1,120})")
_GROMACS = late(r"^\s*MPI rank: {1,12}\d{1,7} \(out of (\d{1,7})\)")
_HOME = late(r"\brank (\d{1,7}) nranks (\d{1,7})\b")
# A program's own word on the process of a rank: ``worker 1 is pid 9``, ``started rank 3 (pid 811)``
_STARTED = late(
    r"\b(?:rank|worker|process|proc)[ _=#]{0,2}(\d{1,6})\b[^\n]{1,40}?\b(?:pid|PID)[ :=#]{0,3}(\d{1,9})\b",
    re.I,
)
_GLOO = late(r"\[Gloo\] Rank (\d{1,6}) is connected to (\d{1,6}) peer ranks")
_SPAWNED = late(r"process (\d{1,9}) spawned with command:.{0,4000}?--local[_-]rank=(\d{1,5})")
_INLINE = late(r"\brank[= ](\d{1,7})\]")
_WATCHED = late(
    r"\[(?:PG (?:ID \d{1,9} PG GUID )?(?P<group>[^\[\]]{1,120}?) )?Rank (?P<rank>\d{1,7})\]\s{1,4}"
    r"(?:NCCL|Process group) watchdog thread terminated"
)
_AT_HOME = (NAN_GUARD, "actor_died")  # rules of words that name its own node
# Rules: a launcher speaks of another node
_LAUNCH = ("glex", "srun_launch", "ssh_name", "ssh_no_name", "ssh_refused", "pals_shepherd")
_NODES = late(r"nnodes=(\d{1,6}), num_local_procs=(\d{1,5}), node_rank=(\d{1,6})")


# Command lines that start one process
_ONE_OF_TORCH = late(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch))\b(?!.*--nnodes[= ](?!1\b|1:1\b)).*--nproc[-_]per[-_]node[= ]1\b"
)
_ONE_OF_MPI = late(
    r"\b(?:mpirun|mpiexec|srun)\s(?:--?\w[\w-]{0,40}(?:[= ][^\s-]\S{0,200})?\s){0,20}?-(?:np?|-ntasks)[= ]1\s(?!.* : )"
)


# As torchrun prints its settings, or as it was called; "localhost" is no lead
_ENDPOINT = late(
    r"\brdzv[_-]endpoint(?:\s{0,12}[:=]\s{0,4}|\s{1,4})['\"]?(?!localhost|127\.)([A-Za-z\d][\w.-]{1,120}\w)(?=[:\s,'\"]|$)"
)


class Marks:
    """Collected over one file."""

    def __init__(self) -> None:
        self.world = 0
        self.homes: dict[int, tuple[str, int]] = {}  # rank -> (node, pid)
        self.local_of: dict[int, int] = {}  # pid -> local rank, of DeepSpeed's launcher
        self.rank_of: dict[tuple[str, int, int], int] = {}  # (node, local, task) -> rank
        self.agents: dict[int, list[int]] = {}  # torchelastic's process -> lines of its failures
        self.one_node = False
        self.alone = False  # its command line starts one process
        self.own = OwnRank()
        self.endpoint = ""  # the host of torchrun's rendezvous
        self.members: set[int] = set()  # ranks that said that they begin
        self.pids: dict[tuple[str, int], int] = {}  # (node, process) -> rank; -1: several
        self.workers: set[tuple[str, int]] = set()  # (name, process) of who is not named by rank

    def listen(self, said: Said) -> None:
        """Who says a line, where it tells the rank beside another number; also of a stack's line."""
        if said.rank >= 0 and (said.local >= 0 or said.task >= 0):
            self.rank_of[(said.node, said.local, said.task)] = said.rank
        if said.rank >= 0 and said.pid:
            known = self.pids.setdefault((said.node, said.pid), said.rank)
            self.pids[(said.node, said.pid)] = said.rank if known == said.rank else -1
        if said.worker:
            self.workers.add((said.worker, said.pid))

    def look(self, said: Said) -> None:
        """Take what a line tells by the way."""
        text = said.text
        self.own.look(said)
        if said.rank >= 0 and said.node:
            self.homes.setdefault(said.rank, (said.node, said.pid))
        if "orld" in text or "nranks" in text or "WORLD" in text:
            self._world(said, text)
        if "MEMBER: " in text or "[Gloo] Rank" in text:
            self._member(text)
        if "processes" in text and (match := _PROCESSES.search(text)) is not None:
            self.world = max(self.world, int(match[1] or match[2]))
        if " of " in text and (match := _ONE_OF.match(text)) is not None:
            self.world = max(self.world, int(match[1]))
        if "torch" in text or "mpi" in text or "srun " in text:
            head = text[:_LONG]
            self.alone |= bool(_ONE_OF_TORCH.search(head) or _ONE_OF_MPI.search(head))
        if "(out of " in text and (match := _GROMACS.match(text)) is not None:
            self.world = max(self.world, int(match[1]))
        if "process rank " in text and (match := _LEFT.search(text)) is not None:
            self.homes.setdefault(int(match[1]), (match[3], int(match[2])))
        if ("pid" in text or "PID" in text) and said.rank < 0 and not said.pid:
            self._started(said)
        if "spawned with" in text and (match := _SPAWNED.search(text)) is not None:
            self.local_of[int(match[1])] = int(match[2])
        self._settings(text)

    def _member(self, text: str) -> None:
        """A rank's own word that it takes part; gloo's is on a group, of the largest of which its
        numbers are the ranks.
        """
        if (match := _MEMBER.search(text)) is not None:
            self.members.add(int(match[1]))
            self.world = max(self.world, int(match[2]))
        match = _GLOO.search(text)
        if match is not None and int(match[2]) + 1 >= self.world:
            self.members.add(int(match[1]))
            self.world = int(match[2]) + 1

    def _started(self, said: Said) -> None:
        """The process of a rank, by the program's own word; -1 where lines differ."""
        match = _STARTED.search(said.text[:_LONG])
        if match is not None:
            who, rank = (said.node, int(match[2])), int(match[1])
            self.pids[who] = rank if self.pids.setdefault(who, rank) == rank else -1

    def _settings(self, text: str) -> None:
        """What a launcher says of how it was called."""
        if "endpoint" in text and (match := _ENDPOINT.search(text[:_LONG])) is not None:
            self.endpoint = match[1]
        if "nnodes=" in text and (match := _NODES.search(text)) is not None:
            self.one_node = match[1] == "1"

    def _world(self, said: Said, text: str) -> None:
        found = [int(m[1]) for m in _WORLD.finditer(text)]
        self.world = max([self.world, *(n for n in found if n <= 1_000_000)])
        home = _HOME.search(text)
        if home is not None and said.node and int(home[2]) >= self.world:
            self.homes[int(home[1])] = (said.node, said.pid)


def progress(text: str) -> tuple[Way, Progress] | None:
    """The iteration that a line tells, if it does, and the way it is counted in."""
    if not any(c.isdigit() for c in text[:200]):
        return None
    for number, pattern in enumerate(_PROGRESS):
        bar = pattern is _BAR or pattern is _NO_BAR
        # A bar that was drawn anew in one line stands where it was drawn last.
        drawn = bar or pattern is _DRAWN
        match = _last(pattern, text[-_LONG:]) if drawn else pattern.search(text[:_LONG])
        if match is not None:
            if _NO_PROGRESS.search(text[:_LONG]) is not None:
                return None
            total = int(match[2]) if match.lastindex == 2 else -1
            fact = Progress(iteration=int(float(match[1])), total=total)
            fact.says = _until_its_end(match) if bar else ""
            fact.part = _prepares(match) if bar else ""
            return (number, total), fact
    return None


def _prepares(bar: re.Match[str]) -> str:
    """What a bar counts that is no iteration, by the words before it: files that are loaded, examples
    that are made ready.
    """
    words = _PREPARES.search(bar.string[: bar.start()])
    return words[1].lower() if words is not None else ""


def _until_its_end(bar: re.Match[str]) -> str:
    """A line up to where its progress bar ends, which another line may stand behind."""
    end = bar.string.find("]", bar.end())
    return bar.string[: end + 1 or None]


def part(text: str) -> Progress | None:
    """How far a part of an iteration has come that counts for itself, if the line says it."""
    match = _PART.match(text[:_LONG])
    if match is None or _NO_PROGRESS.search(text[:_LONG]) is not None:
        return None
    name, count, total = match["part"].lower(), int(match["at"]), int(match["of"])
    return Progress(iteration=count, total=total, part=name)


def begins_with_rank(text: str) -> int:
    """The rank that a line begins with, in words; -1 for none."""
    match = _BY_RANK.match(text)
    return int(match[1]) if match is not None else -1


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for match in pattern.finditer(text):
        found = match
    return found


def name_other(fact: KnownError, said: Said) -> Said:
    """The process that a line speaks of, where it is not the speaker: rank, worker or process."""
    told = fact.values
    if not any(told.get(name) for name in ("rank", "task", "worker", "pid", "child")):
        fact.node = told.get("node", "") if fact.rule in (*_LAUNCH, *_AT_HOME) else ""
        return said
    fact.worker, fact.node = told.get("worker", ""), told.get("node", "")
    fact.pid = max(0, number_in(told.get("pid") or told.get("child") or ""))
    fact.rank = number_in(told.get("rank") or told.get("task") or "")
    itself = said.rank == fact.rank >= 0
    # a kernel speaks of its own node
    node = said.node if itself or fact.rule.startswith("xid") else ""
    return Said(text=said.text, at=said.at, node=node)


def watched(text: str) -> int:
    """The rank whose watchdog a line quotes, ``what():  [Rank 3] NCCL watchdog thread``; -1 for none,
    and for the number in a group that is not the whole job.
    """
    match = _WATCHED.search(text[:_LONG])
    whole = match is not None and (not match["group"] or match["group"].startswith("0"))
    return int(match["rank"]) if match is not None and whole else -1


def rank_in(text: str) -> int:
    """A rank that a logger put into its line, ``[INFO][rank=1]``; -1 for none."""
    match = _INLINE.search(text[:120])
    return int(match[1]) if match is not None else -1
