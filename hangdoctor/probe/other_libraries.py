"""Ranks of jobs that communicate by something else than torch: JAX, or MPI by mpi4py.

Of JAX's calls nothing is recorded. Their boxes hold who they are, signs of life, where the main
thread is while nothing gets on, and how they end; of mpi4py the calls, too (`wrap_mpi`).
"""

from __future__ import annotations

from types import FunctionType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:  # loaded by every Python below `hangdoctor run`: no more imports than needed
    from typing import Any

JAX, MPI = "jax._src.distributed", "mpi4py.MPI"


def look_out(module: ModuleType) -> None:
    """For the rank of this process, when one of the two modules has been imported."""
    if module.__name__ == JAX:
        _of_jax(module)
    else:
        _of_mpi(module)


def _of_jax(module: ModuleType) -> None:
    """The rank is known when `jax.distributed.initialize` is called with it, else once that has
    returned.
    """
    state = getattr(module, "State", None)
    original = getattr(state, "initialize", None)
    if state is None or type(original) is not FunctionType:
        return

    from functools import wraps  # here, and not in every Python below `hangdoctor run`

    @wraps(original)
    def initialize(self: Any, *args: Any, **named: Any) -> Any:
        _join_as_told(original, self, args, named)
        result = original(self, *args, **named)
        _join_by(self)
        return result

    state.initialize = initialize


def _of_mpi(module: ModuleType) -> None:
    """Its import starts MPI, unless the program said that it does so itself."""
    if not module.Is_initialized():
        _once_begun(module)
        return
    if module.Is_finalized():
        return
    world = module.COMM_WORLD
    try:
        rank, size = world.Get_rank(), world.Get_size()
    except getattr(module, "Exception", RuntimeError):  # MPI's answer to us is nothing of the job's
        return
    if _join(rank, size, "mpi"):
        _record_calls(module)


def _once_begun(module: ModuleType) -> None:
    """The same when the program starts MPI itself."""
    from functools import wraps  # here, and not in every Python below `hangdoctor run`

    for name in ("Init", "Init_thread"):
        original = getattr(module, name, None)
        if original is None:
            continue

        @wraps(original)
        def begin(*args: Any, _original: Any = original, **named: Any) -> Any:
            from .call_outcomes import without_us
            from .process_probe import probe

            try:
                result = _original(*args, **named)
            except BaseException as error:
                without_us(error)
                raise
            try:
                _of_mpi(module)
            except Exception as error:
                probe.fail(error)
            return result

        setattr(module, name, begin)


def _record_calls(module: ModuleType) -> None:
    from .process_probe import probe
    from .wrap_mpi import can_record, record

    recorder = probe.recorder
    if recorder is None or not can_record(module):
        return
    try:
        record(module, recorder)
    except Exception as error:
        probe.fail(error)


def _join_as_told(original: FunctionType, state: Any, args: Any, named: Any) -> None:
    """By the arguments: a process that waits there for others that do not come has a box, too."""
    from .process_probe import probe

    try:
        names = original.__code__.co_varnames[: original.__code__.co_argcount]
        told = dict(zip(names, (state, *args), strict=False)) | named
        address = told.get("coordinator_address")
        _join(told.get("process_id"), told.get("num_processes"), "jax", address)
    except Exception as error:
        probe.fail(error)


def _join_by(state: Any) -> None:
    """JAX has told this process which rank it is."""
    from .process_probe import probe

    try:
        _join(
            getattr(state, "process_id", -1),
            getattr(state, "num_processes", -1),
            "jax",
            getattr(state, "coordinator_address", None),
        )
    except Exception as error:
        probe.fail(error)


def _join(rank: Any, size: Any, library: str, meets_at: Any = None) -> bool:
    """Whether it has a box now, as a rank of more than one."""
    from .process_probe import probe

    if not (type(rank) is int and type(size) is int and 0 <= rank < size and size > 1):
        return False
    job = f"{library}-{meets_at}" if isinstance(meets_at, str) else ""
    return probe.begin_uncounted(rank, size, library, job=job)
