"""The program's own frames of a stack without Python, and the call of a library that it is in.

Of C, C++ and Fortran a debugger prints all frames: those of the call's own inside, and those of the
system below them, are left out. The call itself becomes one frame with MPI's, NCCL's or CUDA's name
for it, whichever wrapper or language the program called it by.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model.frame import Frame
from ..text.late import late

MPI, NCCL, DEVICE, GLOO, CCL = "<MPI>", "<NCCL>", "<device>", "<gloo>", "<oneCCL>"
_MAIN = frozenset({"main", "MAIN_", "MAIN__", "__libc_start_main"})
INSIDE_MPI = "MPI call"  # one of MPI's, of which the outer frames were cut off

_OPS = (
    r"allreduce|allgatherv?|alltoall[vw]?|barrier|bcast|reduce_scatter_block|reduce_scatter|reduce|scatterv?"
    r"|gatherv?|exscan|scan|sendrecv|ssend|bsend|rsend|send|recv|mprobe|probe|waitall|waitany|waitsome|wait"
)
# What the program called: C by name or by profiling name, Fortran with its underscores, and what the
# libraries name the same call inside.
_C_CALL = late(r"^_{0,2}(?:internal_|P?MPI_)([A-Z][A-Za-z]*(?:_(?!c$)[a-z]\w*?)?)(?:_c)?$")
_FORTRAN = late(r"^p?mpi_([a-z]\w*?)_{0,2}$")
_FORTRAN_SUFFIX = late(r"_(?:f08(?:ts)?|f|fortran)_{0,2}$")
_OMPI_FORTRAN = late(r"^p?ompi_([a-z]\w*?)_f$")
_INSIDE_CALL = late(
    rf"^(?:MPI[RDC]\w*?_|MPIC_|ompi_coll_\w*?_|mca_coll_\w*?_|mca_pml_\w*?_)(?:cray_)?({_OPS})(?:_|$)",
    re.I,
)
_LIFE = late(r"^(?:ompi_mpi_|MPIR_|MPID_|MPII_)(init|finalize)(?:_|$)", re.I)
_MPI_INSIDE = late(
    r"^(?:(?:opal|ompi|orte|prte|mca|pmix\w*|PMIx|_?pmi|PMI2?|PMIi|MPI[RDCUIX]\w*|psm[23]?|psmx\d?|uc[ptsg]|ofi|cxip|rxm|hcoll|sharp|hmca|mxm"
    r"|smpi|ADIOI?\w*|fi_(?:cq|cntr|eq|opx)|vrb|efa|ips|hfi1?|mlx[45]|ibv)_|fi_(?:send|recv|tsend|trecv|read|write)\w*$)"
)
_REQUESTS = late(r"^(?:ompi_request_(?:default_)?wait|MPIR_Wait|MPID_Wait|MPIR_Progress_wait)")
_MPI_FILE = late(
    r"lib(?:p?mpi|open-pal|open-rte|ucp|ucs|uct|fabric|psm|pmi|hcoll|sharp|mlx|ibverbs|cxi|smpi|prrte|mpich)[\w+-]*\.(?:so|\d+\.dylib|dylib)"
    r"|/mca_\w+\.so|libpmix[\w.]*\.so"
)
_NCCL_CALL = late(
    r"^p?(nccl(?:All|Broadcast|Bcast|Reduce|Send|Recv|Comm|Group|Gather|Scatter)\w*?)(?:_impl)?$"
)
_DEVICE_CALL = late(
    r"^(?:__)?((?:cuda|hip)(?:Stream|Device|Event)Synchronize|(?:cuda|hip)Memcpy\w*|(?:cuda|hip)Free(?:Host)?"
    r"|(?:cuda|hip)(?:Stream|Event)Query|(?:cuda|hip)LaunchKernel\w*|(?:cuda|hip)Malloc\w*|ncclCommGetAsyncError"
    r"|cu(?:Stream|Event|Ctx)Synchronize|cuMemcpy\w*|cuLaunchKernel\w*)(?:_v\d+|_ptsz|_spt)*$"
)
_GLOO_CALL = late(
    r"^gloo::(allreduce|allgatherv?|alltoallv?|barrier|broadcast|gatherv?|reduce(?:_scatter)?|scatter)$"
)
_CCL_CALL = late(  # Intel's oneCCL
    r"^(?:ccl::(?:v1::)?|ccl_comm::|ccl_)(allgatherv?|allreduce|alltoallv?|barrier|broadcast|reduce(?:_scatter)?|send|recv)"
    r"(?:_impl)?(?:\(|$)"
)
_GLOO_WAIT = late(r"^gloo::transport::\w+::\w*Buffer::wait(Send|Recv)$")
_TORCH = late(r"^c10d::(?:ProcessGroup|Work)(?!.*(?:[Ww]atchdog|[Hh]eartbeat|[Ll]oop))")
_DRIVER = late(r"lib(?:cuda|cudart|amdhip64|hsa-runtime64)[-.\d]*\.so")
_INTERPRETER = late(
    r"^(?:_?PyEval_|_PyEval|PyObject_|Py_RunMain|Py_BytesMain|PyRun_|jl_|JVM_|Rf_|__pyx_\w{1,8}mpi4py_)"
)
# Of the system, below or around the program.
_SYSTEM_FILE = late(
    r"^(?:\.\./)*\.?/?(?:sysdeps|nptl|csu|io|posix|time|socket|misc|malloc|string|libio|stdlib)/|sysdeps/|/nptl/"
    r"|/usr/include/|/include/c\+\+/|/lib(?:c|m|pthread|rt|dl|stdc\+\+|gcc_s|gomp|gfortran|iomp5|cuda|cudart|nccl|omp|tbb|nvidia\w*)"
    r"[-.\d]*(?:\.so|\.\d+\.dylib)|^lib(?:system|dyld|c\+\+)\w*|/ld-|(?:^|/)ld-linux|^dyld"
)
_SYSTEM_NAME = late(
    r"^(?:_start|start|clone\d?|__clone\d?|start_thread|_pthread_start|thread_start|__libc_\w+|_?_?libc_start\w*|_dl_\w+|generic_start_main"
    r"|__GI_\w+|__poll|poll|__?select|select|epoll_wait|read|__read\w*|write|__write\w*|sched_yield|__sched_yield|nanosleep|__nanosleep\w*"
    r"|clock_\w+|__clock_\w+|usleep|sleep|__?futex\w*|pthread_\w+|__pthread_\w+|___pthread_\w+|syscall|recv\w*|send\w*|__recv\w*|__send\w*"
    r"|__lll_\w+|sem_\w+|ioctl|swtch_pri|mach_msg\w*|kevent\w*|__psynch\w+|GOMP_\w+|gomp_\w+|__kmp\w*|<signal handler called>|std::.*)$"
)
_LOCK = late(
    r"^_*(?:GI_+)?(?:lll_(?:mutex_)?lock\w*|L_lock_\w+|pthread_(?:mutex|spin|rwlock)_(?:\w{0,5}lock)\w*|psynch_mutexwait|os_unfair_lock\w*)$"
)
_FUTEX = late(r"^_*(?:GI_+)?(?:futex\w*|syscall|lll_\w+)$")
_ALLOCATES = late(
    r"^(?:_*(?:libc_|int_|GI_+)?(?:malloc\w*|calloc|realloc|free|cfree|memalign|posix_memalign|aligned_alloc)"
    r"|sysmalloc\w*|systrim\w*|arena_get2\w*|(?:je|tc|mi)_(?:malloc|calloc|realloc|free)|operator (?:new|delete)(?:\[\])?)$"
)
# How a runtime's own locks, conditions and events wait, of whatever name: who waits there is the caller
_PRIMITIVE = late(
    r"(?:^|::)\w{0,40}(?:Cond(?:ition)?(?:Var(?:iable)?)?|Doorbell|Mutex|Semaphore|Latch|Futex|Spin[Ll]ock|Notifier|Monitor|cond(?:ition)?_?(?:var(?:iable)?)?"
    r"|mutex|semaphore|latch|futex|spinlock|event_?count|EventCount)\w{0,20}(?:::|_)\w{0,20}(?:[Ww]ait|[Ll]ock|[Aa]cquire|[Pp]end|[Ss]leep|[Bb]lock)\w{0,20}$"
    r"|(?:^|::)(?:wait_slow|futex_wait|park|unpark_or_wait)$"
)
_SIGNAL = "<signal handler called>"
_JOINS = late(
    r"pthread_(?:clock|timed)?join|pthread_cond_(?:timed)?wait|std::thread::join|gomp_(?:team|barrier)|GOMP_parallel|__kmp_(?:join|fork)_barrier"
)


def call_of(frame: Frame) -> Frame | None:
    """The call that a frame is, by the name that its documentation has; None for any other frame."""
    name = frame.name
    for pattern, file in ((_DEVICE_CALL, DEVICE), (_NCCL_CALL, NCCL)):
        if (match := pattern.match(name)) is not None:
            return _as(match[1], file, frame)
    if (match := _C_CALL.match(name)) is not None:
        return _as(f"MPI_{match[1]}", MPI, frame)
    if (
        match := _OMPI_FORTRAN.match(name) or _FORTRAN.match(_FORTRAN_SUFFIX.sub("", name))
    ) is not None:
        return _as(f"MPI_{match[1].capitalize()}", MPI, frame)
    if (match := _GLOO_CALL.match(name)) is not None:
        return _as(f"gloo {match[1]}", GLOO, frame)
    if (match := _CCL_CALL.match(name)) is not None:
        return _as(f"ccl::{match[1]}", CCL, frame)
    if _TORCH.match(name):
        return _as("native collective", NCCL, frame)
    return None


def _inner_call(frame: Frame) -> Frame | None:
    """The call that a library's own function is a part of."""
    match = _LIFE.match(frame.name) or _INSIDE_CALL.match(frame.name)
    if match is not None:
        return _as(f"MPI_{match[1].capitalize()}", MPI, frame)
    match = _GLOO_WAIT.match(frame.name)
    return _as(f"gloo {match[1].lower()}", GLOO, frame) if match is not None else None


def _as(name: str, file: str, frame: Frame) -> Frame:
    return Frame(name, file, 0, values=frame.values, group=frame.group)


def is_call(frame: Frame) -> bool:
    """Whether a frame stands for the call of a library, as `program` makes them."""
    return frame.file in (MPI, NCCL, DEVICE, GLOO, CCL)


def program(frames: Sequence[Frame]) -> list[Frame]:
    """The call of a library that a native stack is in, and the program's own frames around it, or
    these alone; [] where the stack does not show where it is. Frames innermost first.
    """
    lock = own_lock(frames)
    if lock is not None:
        return [lock]
    outermost = [
        (at, call) for at, frame in enumerate(frames) if (call := call_of(frame)) is not None
    ]
    if outermost:
        at, call = outermost[-1]
        return [call, *_own(frames[at + 1 :])]
    inside = [at for at, frame in enumerate(frames) if _is_mpis(frame)]
    if inside:
        whole = any(frame.name in _MAIN for frame in frames)  # else they may be the library's
        return [_cut_off(frames), *(_own(frames[inside[-1] + 1 :]) if whole else [])]
    first = next((at for at, frame in enumerate(frames) if not is_systems(frame)), len(frames))
    inner = frames[: first + 1]
    if any(_DRIVER.search(frame.file) for frame in inner):
        return [Frame("GPU driver", DEVICE, 0), *_own(frames[first:])]
    if any(frame.name in ("??", "") for frame in inner):
        return []  # what the frames without a name are in, is not known
    return without_primitives(_own(frames[first:]))


def without_primitives(own: list[Frame]) -> list[Frame]:
    """The frames from the first one on that is no lock's, condition's or event's own; all where none is left."""
    first = next((at for at, frame in enumerate(own) if not _PRIMITIVE.search(frame.name)), 0)
    return own[first:]


def waits_inside(frames: Sequence[Frame]) -> bool:
    """Whether a native stack ends in a lock, a condition or an event of its own process."""
    first = next((at for at, frame in enumerate(frames) if not is_systems(frame)), len(frames))
    return first < len(frames) and _PRIMITIVE.search(frames[first].name) is not None


def own_lock(frames: Sequence[Frame]) -> Frame | None:
    """Where a thread waits for a lock inside of the allocator, of one of its hooks, or of a signal's
    handler: of its own process, whichever call it was in when it came there. None elsewhere.
    """
    at = 0
    while at < len(frames) and _FUTEX.match(frames[at].name) and not _LOCK.match(frames[at].name):
        at += 1
    if at >= len(frames) or _LOCK.match(frames[at].name) is None:
        return None
    for frame in frames[at + 1 :]:
        if frame.name == _SIGNAL:
            return Frame("a lock inside of a signal handler", "", 0)
        if _ALLOCATES.match(frame.name) is not None:
            return Frame(f"a lock inside of {_plain(frame.name)}", "", 0)
        if call_of(frame) is not None:
            return None  # a lock of the library, which another thread of it may hold in a wait
    return None


def _plain(name: str) -> str:
    """``free`` of ``__libc_free``."""
    return re.sub(r"^(?:libc_|int_|GI_+){1,2}", "", name.lstrip("_"))


def _cut_off(frames: Sequence[Frame]) -> Frame:
    """The call by what its outermost known function does."""
    known = [call for frame in frames if (call := _inner_call(frame)) is not None]
    return known[-1] if known else Frame(INSIDE_MPI, MPI, 0)


def awaits_requests(frames: Sequence[Frame]) -> bool:
    """Whether a stack whose outer frames were cut off waits in MPI for sends and receives that were begun."""
    whole = any(call_of(frame) is not None or _inner_call(frame) is not None for frame in frames)
    return not whole and any(_REQUESTS.match(frame.name) for frame in frames)


def _own(frames: Sequence[Frame]) -> list[Frame]:
    if any(_INTERPRETER.match(frame.name) for frame in frames):
        return []  # its program is not the interpreter's
    return [frame for frame in frames if not is_systems(frame) and frame.name != "??"]


def _is_mpis(frame: Frame) -> bool:
    if _MPI_FILE.search(frame.file) is not None or _inner_call(frame) is not None:
        return True
    return _MPI_INSIDE.match(frame.name) is not None and not frame.file.endswith(
        (".py", ".f90", ".F90")
    )


def is_systems(frame: Frame) -> bool:
    """Whether a frame is of the system, below or around the program."""
    return _SYSTEM_NAME.match(frame.name) is not None or _SYSTEM_FILE.search(frame.file) is not None


def joins(frames: Sequence[Frame]) -> bool:
    """Whether a native stack waits for another thread of its process."""
    first = next((at for at, frame in enumerate(frames) if not is_systems(frame)), len(frames))
    return any(_JOINS.search(frame.name) for frame in frames[:first])
