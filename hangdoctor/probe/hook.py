"""Puts the wrappers into torch.distributed: as soon as the job has imported it, or at once if it
has already. JAX and MPI are looked out for in the same way (`other_libraries`).
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType, ModuleType

from .other_libraries import JAX, MPI
from .torchnames import C10D
from .whose_error import is_ours, suppress

TYPE_CHECKING = False
if (
    TYPE_CHECKING
):  # every Python below `hangdoctor run` loads this file: no more imports than needed
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any


class _Finder:
    """Waits for torch's module and those of other libraries, and takes itself away when all have
    come: programs that compute with torch may communicate by MPI. Every other import costs one look
    into a set.
    """

    def __init__(self) -> None:
        self._waited = {C10D, JAX, MPI}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._waited:
            return None
        self._waited.discard(name)
        if not self._waited and self in sys.meta_path:
            sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        with suppress(
            AttributeError
        ):  # no loader, or one that takes no attributes: the module comes without the probe
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                # Off the loader first: a reload must find it as it was.
                del loader.exec_module
                execute(module)
                _has_come(name)

            loader.exec_module = exec_module
        return spec


def _has_come(name: str) -> None:
    if name == C10D:
        wrap_now()
    elif name in sys.modules:
        from .other_libraries import look_out

        _unless_it_fails(lambda: look_out(sys.modules[name]))


def when_imported() -> None:
    """Wrap now if torch.distributed is there, else when it comes; the same of other libraries."""
    if C10D in sys.modules:
        wrap_now()
    for name in (JAX, MPI):
        _has_come(name)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def wrap_now() -> None:
    """Put all wrappers in place; an error leaves the job without them."""
    _unless_it_fails(_wrap)


def _unless_it_fails(work: Callable[[], None]) -> None:
    """Do it; an error of the probe's own switches it off, and the job goes on without."""
    try:
        from .process_probe import probe
    except Exception as error:  # a package half copied, a Python without a module of its library
        if not is_ours(error):
            raise
        return
    try:
        work()
    except Exception as error:
        probe.fail(error)


def _wrap() -> None:
    from . import (
        call_outcomes,
        odd_calls,
        recorder,
        signatures,
        steps,
        torchnames,
        wrap,
        wrap_waits,
    )
    from .process_probe import probe

    module = torchnames.c10d()
    if module is None or getattr(module, "_hangdoctor_wrapped", False):
        return
    module._hangdoctor_wrapped = True
    pairs = _wrap_functions(module)
    _wrap_methods(
        torchnames.work_class(),
        {"wait": wrap_waits.handle_wait, "is_completed": wrap_waits.handle_is_completed},
    )
    for store in torchnames.store_classes():
        _wrap_methods(store, {name: _store(name) for name in torchnames.STORE_WAITS})
    for original, wrapper in pairs.values():
        if original.__name__ in ("isend", "irecv"):
            torchnames.accept_originals(original, wrapper)
    late = "torch.distributed" in sys.modules and hasattr(
        sys.modules["torch.distributed"], "all_reduce"
    )
    if late:
        torchnames.replace_everywhere(pairs, skip=[sys.modules[__name__]])
        torchnames.teach_compiler(pairs.values())
    called = wrap, wrap_waits, call_outcomes, recorder, signatures, odd_calls
    torchnames.skip_when_compiling(_codes(*called))
    probe.watch_end()
    if torchnames.default_group() is not None:
        probe.begin()
        steps.watch()


def _wrap_functions(module: ModuleType) -> dict[int, tuple[Any, Any]]:
    """Put wrappers in the place of a module's functions; the pairs by the identity of the original."""
    from . import torchnames, wrap

    pairs: dict[int, tuple[Any, Any]] = {}
    for name, function in list(vars(module).items()):
        # type(): isinstance would ask deprecated objects, which warn
        wrapper = wrap.make(name, function) if type(function) is FunctionType else None
        if wrapper is not None:
            torchnames.mark_untraced(wrapper)
            pairs[id(function)] = (function, wrapper)
    for name, value in list(vars(module).items()):
        pair = pairs.get(id(value))
        if pair is not None:
            setattr(module, name, pair[1])
    return pairs


def _wrap_methods(owner: Any, makers: dict[str, Callable[[Any], Any]]) -> None:
    for name, make in makers.items():
        method = getattr(owner, name, None)
        if method is not None:
            setattr(owner, name, make(method))


def _store(name: str) -> Callable[[Any], Any]:
    from . import wrap_waits

    return lambda method: wrap_waits.store_wait(method, name)


def _codes(*modules: ModuleType) -> list[CodeType]:
    """All code objects of some modules, nested ones included."""
    found: list[CodeType] = []

    def dig(code: CodeType) -> None:
        found.append(code)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                dig(constant)

    for module in modules:
        for value in vars(module).values():
            if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                dig(value.__code__)
            elif isinstance(value, type) and value.__module__ == module.__name__:
                for member in vars(value).values():
                    if isinstance(member, FunctionType):
                        dig(member.__code__)
    return found
