"""Every internal name of torch that the probe leans on, torch 2.4 to 2.13 and later: this file and
no other.

All are looked up when used and may be missing; what depends on a missing one is left out, the job
never notices. torch is never imported here: whoever calls has found it in `sys.modules`.
"""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType

from .whose_error import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # loaded by every Python below `hangdoctor run`: no more imports than needed
    from collections.abc import Callable, Iterable
    from types import CodeType
    from typing import Any

C10D = "torch.distributed.distributed_c10d"


def c10d() -> Any:
    """The module with the collectives, or None while the job has not imported it."""
    return sys.modules.get(C10D)


def torch() -> Any:
    """The module that the job has imported; None before."""
    return sys.modules.get("torch")


def version() -> str:
    """As torch says it; "" without torch."""
    return str(getattr(torch(), "__version__", ""))


def version_tuple() -> tuple[int, int]:
    """(major, minor); (0, 0) where it is unknown."""
    parts = version().split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return 0, 0


# --------------------------------------------------------------------------- modes of the job


def any_mode() -> Callable[[], int]:
    """What says how many of torch's function modes are on: they would see each attribute of a
    tensor that is read.
    """
    return getattr(getattr(torch(), "_C", None), "_len_torch_function_stack", no_mode)


def no_mode() -> int:
    """Stands in where torch does not count its modes."""
    return 0


def outside_of_modes() -> Any:
    """A context in which neither function modes nor subclasses of the job hear of what is done; an
    empty one without torch.
    """
    disable = getattr(getattr(torch(), "_C", None), "DisableTorchFunction", None)
    return _Nothing() if disable is None else disable()


def without_dispatch() -> Any:
    """The same for its dispatch modes, which hear of operations alone: a number read out of a
    tensor is one.
    """
    disable = getattr(getattr(torch(), "_C", None), "_DisableTorchDispatch", None)
    return _Nothing() if disable is None else disable()


class _Nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


# --------------------------------------------------------------------------- groups


def default_group() -> Any:
    """The job's default process group; None before it is made."""
    return getattr(getattr(c10d(), "_world", None), "default_pg", None)


def how_many_groups() -> int:
    """Entries of torch's table of groups; one may be the stand-in for groups without this rank."""
    return len(getattr(getattr(c10d(), "_world", None), "pg_group_ranks", None) or ())


def newest_group() -> tuple[Any, dict[int, int]] | None:
    """The group that was made last, as `live_groups` has it; None where this rank is not in it."""
    ranks = getattr(getattr(c10d(), "_world", None), "pg_group_ranks", None) or {}
    for pg, of in reversed(ranks.items()):
        stand_in = getattr(getattr(c10d(), "GroupMember", None), "NON_GROUP_MEMBER", None)
        return (pg, of) if of and pg is not stand_in else None
    return None


def live_groups() -> list[tuple[Any, dict[int, int]]]:
    """All groups that this rank is in, in the order of their creation, with torch's {global rank:
    rank in the group}.
    """
    world = getattr(c10d(), "_world", None)
    ranks = getattr(world, "pg_group_ranks", None) or {}
    # Where this rank is not a member, torch keeps the last such group's ranks under a placeholder.
    stand_in = getattr(getattr(c10d(), "GroupMember", None), "NON_GROUP_MEMBER", None)
    return [(pg, of) for pg, of in list(ranks.items()) if of and pg is not stand_in]


def group_name(pg: Any) -> str:
    """What the job calls the group, else what torch calls it."""
    described = _as_torch_says(pg, "group_desc", "") or ""
    if described and described != "undefined":
        return str(described)
    names = getattr(getattr(c10d(), "_world", None), "pg_names", None) or {}
    return str(names.get(pg, ""))


def backend_name() -> str:
    """Of the default group, as torch's table has it."""
    configs = getattr(getattr(c10d(), "_world", None), "pg_backend_config", None) or {}
    return str(configs.get(default_group(), ""))


def group_timeout_s(pg: Any) -> float:
    """After how many seconds torch gives an operation of this group up; 0 where it does not tell."""
    device: Any = getattr(torch(), "device", None)
    found = []
    for kind in ("cpu", "cuda"):
        # Not there: no such device in this group, or another torch. A mode of the job would see torch.device made.
        with suppress(AttributeError, RuntimeError, TypeError, ValueError), outside_of_modes():
            backend: Any = _as_torch_says(pg, "_get_backend", None, device(kind))
            found.append(float(backend.options._timeout.total_seconds()))
    return min(found, default=0.0)


def issued() -> int:
    """How many collectives all groups of this rank have been given, those of C++ too."""
    kind = getattr(c10d(), "ProcessGroup", None)
    groups = [pg for pg, _ in live_groups() if type(pg) is kind]
    return sum(_as_torch_says(pg, "_get_sequence_number_for_group", 0) for pg in groups)


def own_rank() -> tuple[int, int]:
    """Rank and world size of the default group, (-1, -1) without one."""
    pg = default_group()
    return (
        (_as_torch_says(pg, "rank", -1), _as_torch_says(pg, "size", -1))
        if pg is not None
        else (-1, -1)
    )


def _as_torch_says(pg: Any, name: str, otherwise: Any, *arguments: Any) -> Any:
    """A property or the answer of a method as torch's own class has it: a group of the job's own
    making may have other ones, which raise.
    """
    found = getattr(getattr(c10d(), "ProcessGroup", None), name, None)
    try:
        return found.fget(pg) if isinstance(found, property) else found(pg, *arguments)  # type: ignore[misc]
    except (AttributeError, RuntimeError, TypeError):
        return otherwise  # no such thing in this torch, or no group of torch's (a mock)


# --------------------------------------------------------------------------- tensors and reduce operations


def plain_tensor_types() -> frozenset[type]:
    """Types whose shape and dtype can be read without running anyone's code."""
    module = torch()
    found = [
        getattr(module, "Tensor", None),
        getattr(getattr(module, "nn", None), "Parameter", None),
    ]
    return frozenset(t for t in found if isinstance(t, type))


def tensor_getters() -> tuple[Any, ...] | None:
    """The plain types, what reads a tensor's shape and dtype, and what shows whether a function
    mode of the job is on.
    """
    module = torch()
    kind, core = getattr(module, "Tensor", None), getattr(module, "_C", None)
    parameter = getattr(getattr(module, "nn", None), "Parameter", None)
    mode = getattr(core, "_is_torch_function_mode_enabled", None)
    if kind is None or parameter is None or mode is None:
        return None
    return (
        kind,
        parameter,
        *(getattr(kind, name, None) for name in ("shape", "dtype", "_cdata")),
        mode,
    )


def is_traced(value: Any) -> bool:
    """A stand-in that a compiler traces with: no communication takes place."""
    return type(value).__name__ in ("FakeTensor", "FunctionalTensor", "Proxy")


def reduce_op_names() -> dict[int, str]:
    """Names by the identity of torch's own constants."""
    ops = getattr(c10d(), "ReduceOp", None)
    names = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
    return {id(getattr(ops, name)): name.lower() for name in names if hasattr(ops, name)}


def reduce_op_types() -> tuple[type, ...]:
    """What torch's reduce operations are of: their text is torch's own."""
    ops = getattr(c10d(), "ReduceOp", None)
    return tuple(t for t in (ops, type(getattr(ops, "SUM", None))) if isinstance(t, type))


def dtype_name(dtype: Any) -> str:
    """``float32`` of torch.float32."""
    return str(dtype).removeprefix("torch.")


# --------------------------------------------------------------------------- point to point


def p2p_fields(op: Any) -> tuple[str, Any, Any, Any, Any, Any]:
    """Name, tensor, group, global peer, group peer and tag of one P2POp."""
    name = getattr(op.op, "__name__", "")
    tag = getattr(op, "tag", 0)
    return name, op.tensor, op.group, op.peer, getattr(op, "group_peer", None), tag


# --------------------------------------------------------------------------- what is wrapped beside functions


def work_class() -> Any:
    """The class of handles; None without torch.distributed."""
    return getattr(c10d(), "Work", None)


def is_unlaunched(work: Any) -> bool:
    """The stand-in that a collective returns inside a coalescing manager."""
    illegal = getattr(c10d(), "_IllegalWork", None)
    return illegal is not None and type(work) is illegal


def store_classes() -> list[Any]:
    """Concrete stores. Not `Store` itself: C++ looks up overrides of a Python subclass there and
    would recurse.
    """
    module = getattr(getattr(torch(), "_C", None), "_distributed_c10d", None)
    names = ("TCPStore", "FileStore", "HashStore", "PrefixStore")
    return [getattr(module, name) for name in names if hasattr(module, name)]


STORE_WAITS = ("wait", "get", "multi_get")

# Creation and removal of groups by other ways than the public functions (device meshes, elastic shrinking).
GROUP_CHANGERS = ("_new_group_with_tag", "split_group", "shrink_group", "_abort_process_group")
COALESCING = "_coalescing_manager"


def accept_originals(original: Callable[..., Any], replaced: Callable[..., Any]) -> None:
    """Let P2POp take an isend or irecv that the job had saved before the probe came."""
    module = c10d()
    check = getattr(module, "_check_op", None)
    if check is None:
        return

    @functools.wraps(check)
    def _check_op(op: Any) -> None:
        return check(replaced if op is original else op)  # type: ignore[no-any-return]

    module._check_op = _check_op


# --------------------------------------------------------------------------- optimizers


def register_step_hook() -> Any:
    """What registers a function for the end of every optimizer's step; None in a torch without it."""
    return getattr(
        sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None
    )


# --------------------------------------------------------------------------- compilers


def is_compiling() -> Any:
    """torch's own function that says whether a compiler traces its caller, or None.

    First the one that calls no other.
    """
    module = getattr(torch(), "compiler", None)
    return getattr(module, "is_dynamo_compiling", None) or getattr(module, "is_compiling", None)


def skip_when_compiling(codes: Iterable[CodeType]) -> None:
    """Tell Dynamo to leave the probe's own frames alone, without importing Dynamo."""
    frames = sys.modules.get("torch._C._dynamo.eval_frame")
    if frames is None:
        frames = getattr(getattr(getattr(torch(), "_C", None), "_dynamo", None), "eval_frame", None)
    skip = getattr(frames, "skip_code", None)
    if skip is not None:
        for code in codes:
            skip(code)


def mark_untraced(function: Callable[..., Any]) -> None:
    """The attribute by which Dynamo knows a function that it must call, not trace."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = "recorded by hangdoctor"  # type: ignore[attr-defined]


def teach_compiler(pairs: Iterable[tuple[Callable[..., Any], Callable[..., Any]]]) -> None:
    """Give wrappers the functional stand-in that Dynamo has for the originals, if its table is made
    already.
    """
    module = sys.modules.get("torch.distributed._functional_collectives")
    table = getattr(module, "traceable_collective_remaps", None)
    if isinstance(table, dict):
        for original, wrapper in pairs:
            if original in table:
                table[wrapper] = table[original]


# --------------------------------------------------------------------------- Flight Recorder and worker server


def worker_server() -> Any:
    """torch's own server for debugging; None where this torch has none."""
    module = getattr(getattr(torch(), "_C", None), "_distributed_c10d", None)
    return getattr(module, "_WorkerServer", None)


LOG_ERRORS = 2  # of torch's log in C++: warnings are 1, errors 2


def log_level() -> Any:
    """The least severity that torch's C++ prints, to be changed; None where its log is another."""
    import ctypes

    try:
        library = ctypes.CDLL("libc10.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level")
    except (AttributeError, OSError, ValueError):
        return None


RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


def recorder_dump() -> bytes:
    """What the recorder of the default group's backend holds, as JSON; b"" where this torch has none,
    or it is empty.
    """
    module = getattr(getattr(torch(), "_C", None), "_distributed_c10d", None)
    names = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
    for name in names if "nccl" in backend_name() else names[1:]:
        dump = getattr(module, name, None)
        if dump is not None:
            data = dump(True, False)
            return data if type(data) is bytes and b'"collective_seq_id"' in data else b""
    return b""


def recorder_size_names() -> tuple[str, ...]:
    """The variable of this torch; the old name prints a deprecation where the new one exists (2.9
    and later).
    """
    return RECORDER_SIZES[:1] if version_tuple() >= (2, 9) else RECORDER_SIZES


def replace_everywhere(pairs: dict[int, tuple[Any, Any]], skip: Iterable[ModuleType]) -> None:
    """Put wrappers where modules hold an original under some name (`from torch.distributed import
    all_reduce`).
    """
    leave = {id(module) for module in skip}
    for module in list(sys.modules.values()):
        if (
            not issubclass(type(module), ModuleType) or id(module) in leave
        ):  # isinstance() would ask lazy ones
            continue
        # Read the dictionary itself: lazy modules import things when asked for an attribute.
        names = ModuleType.__getattribute__(module, "__dict__")
        for name, value in list(names.items()):
            pair = pairs.get(id(value))
            if pair is not None and pair[0] is value:
                names[name] = pair[1]
