"""Which rank or process a line is about: rank, task, process, node and device, in the forms
that programs and launchers use. A number that is another process's, as in "from rank 3", is none.
"""

from __future__ import annotations

import re

from msgspec import Struct

from ...text.late import late

_LONG = 300  # characters that are looked through
_RANK = late(
    r"(?P<other>\b(?:from|to|connection with|by|for|of|peer|remote|root|source|src|dest|destination|dst|neighbou?r)[ :=]{1,3})?"
    r"(?:(?<![A-Za-z])|(?<=mpi_))(?:global[ _-]?)?(?:mpi[ _-]?)?(?:rank|pe|image)(?:[ _=:#]{1,3}|\[|=\[)0{0,6}(?P<rank>\d{1,7})(?![\d.]*\d?/|\w)",
    re.I,
)
_BEGINS = late(r"\[(?:cli_)?(\d{1,6})\](?=[A-Za-z:])")  # PETSc's, GASNet's, MPICH's
# A program's own: "Proc 0: ", "[Process 3] "; a process by a number of the system has more digits
_PROC = late(r"\W{0,2}proc(?:ess(?:or)?)? ?#?(\d{1,3})(?:\]:?|>|:) ", re.I)
_HOST_RANK = late(r"([A-Za-z][\w.-]{0,100}):rank_?(\d{1,7})[.:]")
_PLACE = late(
    r"\[?(?=[A-Za-z][\w.-]{0,100}[\d.-])([A-Za-z][\w.-]{0,100}):(\d{2,9})\s{0,2}(?::\d{1,9}){0,2}[\]:\s]"
)
_LIBFABRIC = late(r"^libfabric:(\d{2,9}):")
_SECONDS = late(r"^\[\d{1,12}\.\d{1,9}\] (?=\[)")  # UCX's stamp
_PID = late(r"\b(?:pid|process(?: id)?)[ =:#]{1,3}(\d{2,9})\b", re.I)
_NODE = late(r"\bon (?:node|host) ([A-Za-z][\w.-]{0,100}\w)", re.I)
# A host by its number: "on n12"; not what else programs number
_HOST = late(
    r"\bon (?!rank|gpu|cuda|dev|cpu|core|socket|port|line|step|eth|mlx|ib|pe|tile|level|thread)([a-z][a-z-]{0,40}\d[\w.-]{0,60})(?=[:,;\]) ]|$)"
)
# A report on another host: "TPU session error from worker tpu-5-15.svc:8471"
_FROM = late(
    r"\b(?:error|failure|exception|fault|crash)s? (?:from|on|of|at) (?:worker|host|node|pod|machine) ([A-Za-z][\w.-]{1,100}\w)",
    re.I,
)
_ON_RANK = late(r"\b(?:on|in) (?:global )?rank[ :=#]{1,2}(\d{1,7})(?![\d.]*\d?/|\w)", re.I)
_AT = late(r"@([A-Za-z][\w.-]{0,100}\w)")
_TASK = late(r"\btask(?:[ =#]|: ?| id )(\d{1,7})(?![\d.]*\d?/)", re.I)
_DEVICE = late(r"\b(?:device|gpu|cuda|xpu|hpu)(?:[ =#:]| id | index )(\d{1,3})(?![\w:.])", re.I)
_WORKER = late(r"\b((?:[A-Z]\w{0,30})?(?:Worker|Process|Actor|Trainer)[-_]\w{0,20}\d{1,6})\b")
_PEER = late(
    r"\b(?:from|to|with|by|peer|remote)[ :=]{1,3}(?P<kind>peer|remote|rank|node|host|task|process)?[ :=]{0,3}"
    r"(?P<peer>(?:\d{1,3}\.){3}\d{1,3}|(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{1,4}|[A-Za-z][\w-]{0,60}[\d.][\w.-]{0,60}|\d{1,7})(?![\w:])"
)
# The other rank of a call of MPI's, as MPICH prints its arguments
_CALL = late(
    r"\bMPI_I?[BRSM]?(?:send|ecv|Send|Recv|recv)\([^()]{0,200}?(?:\bMPI_\w{1,40}|type=\w{1,60}), (?:dest=|src=|source=)?(\d{1,7}),"
)
_LAUNCHER = late(
    r"\W{0,3}(?:proxy[:@]|mpiexec|mpirun|hydra|HYD|prte|orted|orterun|ORTE|PRTE|srun|yhrun|slurm|torchrun|launch|LAUNCH"
    r"|flux|jsrun|aprun|pals|PMIX|pmi|pbs|supervisor|raylet|horovodrun|charmrun|agent\b|kubelet|job\b|make\b"
    r"|KILLED BY|EXIT CODE|BAD TERMINATION|RANK \d+ PID)"
)
# Another one speaks of it
_ABOUT = late(
    r"\b(?:was|were|has been|have been|has|is) (?:\w{1,20} )?(?:aborted|killed|crashed|died|lost|dead|failed|terminated|gone)\b"
)


class Named(Struct):
    """-1, 0 or "" for what the line does not tell."""

    rank: int = -1
    task: int = -1
    pid: int = 0
    node: str = ""
    device: int = -1
    worker: str = ""
    peer: str = ""
    launcher: bool = False  # a launcher says so


def named(text: str) -> Named:
    """What the line names. Of two ranks none: which of them it is about does not show."""
    head = text[:_LONG]
    found = Named(launcher=bool(_LAUNCHER.match(head) or _ABOUT.search(head)))
    ranks = {int(m["rank"]) for m in _RANK.finditer(head) if not m["other"]}
    begins = _BEGINS.match(head) or (_PROC.match(head) if not ranks else None)
    if begins is not None:
        ranks = {int(begins[1])}
    found.rank = ranks.pop() if len(ranks) == 1 else -1
    _place(found, head)
    pids = {int(number) for number in [*_PID.findall(head), *_LIBFABRIC.findall(head)]}
    found.pid = found.pid or (pids.pop() if len(pids) == 1 else 0)
    tasks = {int(number) for number in _TASK.findall(head)}
    found.task = tasks.pop() if len(tasks) == 1 and found.rank < 0 else -1
    devices = {int(number) for number in _DEVICE.findall(head)}
    found.device = devices.pop() if len(devices) == 1 else -1
    worker = _WORKER.search(head)
    found.worker = worker[1] if worker is not None and found.rank < 0 else ""
    found.peer = _peer(head)
    return found


def of_whom(text: str) -> int:
    """The one rank that a line on an error says it was on, ``failed to start on rank 3``; -1 for none."""
    ranks = {int(number) for number in _ON_RANK.findall(text[:_LONG])}
    return ranks.pop() if len(ranks) == 1 else -1


def _place(found: Named, head: str) -> None:
    head = _SECONDS.sub("", head)
    host_rank, place = _HOST_RANK.match(head), _PLACE.match(head)
    if host_rank is not None:
        found.node, found.rank = host_rank[1], int(host_rank[2])
    elif place is not None and "/" not in place[1] and not _is_source(place[1]):
        found.node, found.pid = place[1], int(place[2])
    node = _FROM.search(head) or _NODE.search(head) or _HOST.search(head)
    node = node or (_AT.search(head) if found.launcher else None)
    if node is not None and not found.node:
        found.node = node[1]


_SOURCES = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".py", ".f90", ".F90", ".f", ".go", ".rs")


def _is_source(name: str) -> bool:
    return name.endswith(_SOURCES)


def _peer(head: str) -> str:
    call = _CALL.search(head)
    if call is not None:
        return f"rank {call[1]}"
    match = _PEER.search(head)
    if match is None:
        return ""
    number = match["peer"].isdigit()
    if number and match["kind"] not in ("rank", "task", "node", "process"):
        return ""
    return f"{match['kind']} {match['peer']}" if number else match["peer"]
