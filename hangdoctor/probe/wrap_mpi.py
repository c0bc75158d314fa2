"""Records the calls of mpi4py's communicators as those of torch.distributed are: operations with their
number, peer, tag and call site.

mpi4py's classes are compiled and cannot be changed. `MPI.COMM_WORLD` becomes an object of a subclass
by the same name, for the same communicator of MPI, and so do the communicators that are made from it
and the handles of its non-blocking calls. Not seen: what is called through MPI's C interface (h5py,
petsc4py), windows, files, persistent requests, intercommunicators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import format as fmt
from . import mpi_calls
from .call_outcomes import refused, without_us
from .mpi_calls import Names, argument
from .mpi_entries import Enter, Entries, Given, Named, Tokens
from .mpi_groups import entry_of, sender
from .mpi_requests import recording_requests
from .process_probe import probe
from .recorder import Recorder, local

Function = Callable[..., Any]
Before = Callable[[Recorder, Any], None]  # with the communicator
Then = Callable[[Recorder, Any, Any], Any]  # and with what MPI gave, for what the job gets
_COMMUNICATORS = ("Intracomm", "Cartcomm", "Graphcomm", "Distgraphcomm")
_CLASSES = ("Request", "Op", "Status", "Group", *_COMMUNICATORS)
_NEEDED = (*_CLASSES, "ANY_SOURCE", "PROC_NULL", "COMM_NULL")
_ENDS = ("Free", "Disconnect", "free")


def can_record(module: Any) -> bool:
    """Whether it is mpi4py as it is known here."""
    return all(hasattr(module, name) for name in _NEEDED)


def record(module: Any, recorder: Recorder) -> None:
    """From now on, what is called on `COMM_WORLD` and on what is made from it."""
    library = _Library(module)
    world = library.taken(recorder, module.COMM_WORLD)
    module.COMM_WORLD, module.Request = world, library.request


class _Library:
    """mpi4py with subclasses of some of its classes that record."""

    def __init__(self, module: Any) -> None:
        self.mpi = module
        self.counted = self.stopped = False
        self.enters = Entries(module)
        self.request = recording_requests(module.Request)
        bases = [getattr(module, name) for name in _COMMUNICATORS]
        self._kinds = {base: self._communicators(base) for base in bases}

    def taken(self, recorder: Recorder, comm: Any) -> Any:
        """The same communicator as an object that records; itself where its members are not known."""
        kind = self._kinds.get(type(comm))
        if kind is not None:
            original, comm = comm, kind(comm)
            comm._hangdoctor_for = original
        elif type(comm) not in self._kinds.values():
            return comm
        comm._hangdoctor = entry_of(recorder.groups, self.mpi, comm)
        return comm

    def _communicators(self, base: type) -> type:
        members: dict[str, Any] = {"__module__": base.__module__}
        members |= {"_hangdoctor": None, "_hangdoctor_for": None, "__reduce__": _reduce(base)}
        for name, (names, enter) in self._operations().items():
            function = getattr(base, name, None)
            if function is not None:
                members[name] = self._recording(function, name, names, enter)
        for name, names in mpi_calls.POLLS.items():
            members[name] = self._polling(getattr(base, name), name, names)
        found = {name: how for name, how in self._rest().items() if hasattr(base, name)}
        members |= {name: _around(getattr(base, name), **how) for name, how in found.items()}
        return type(base.__name__, (base,), members)

    def _operations(self) -> dict[str, tuple[Names, Enter]]:
        """The methods that are operations, with their parameters and what they enter."""
        calls: dict[str, tuple[Names, Enter]] = {}
        for name, (op, names) in mpi_calls.COLLECTIVES.items():
            calls[name] = names, self.enters.collective(name, op, names)
        for name, op in mpi_calls.MAKERS.items():
            calls[name] = (), self.enters.collective(name, op, ())
        for name, names in mpi_calls.SENDS.items():
            calls[name] = names, self.enters.send(name, names)
        for name, names in mpi_calls.RECEIVES.items():
            calls[name] = names, self.enters.receive(name, names)
        for name, names in mpi_calls.EXCHANGES.items():
            calls[name] = names, self.enters.exchange(names)
        return calls

    def _rest(self) -> dict[str, dict[str, Any]]:
        """Methods that are none, with what is done around them."""
        found: dict[str, dict[str, Any]] = {name: {"then": _freed} for name in _ENDS}
        found |= {name: {"before": self._stop} for name in mpi_calls.UNCOUNTABLE}
        # Create_group asks only those who shall be in it: no collective of the communicator.
        found["Create_group"] = {"then": lambda recorder, _, made: self.taken(recorder, made)}
        return found

    def _begin(self, recorder: Recorder) -> None:
        """With the first call: until then, a job may use communicators that it had got before."""
        self.counted = True
        probe.count_calls(recorder, fmt.MPI4PY, counted=True)

    def _stop(self, recorder: Recorder, comm: Any) -> None:
        """From the first such call on nothing of this rank is recorded, as where mpi4py is not known."""
        if not self.stopped:
            self.stopped = True
            probe.count_calls(recorder, fmt.MPI, counted=False)

    # ----------------------------------------------------------------- one call

    def _recording(self, function: Function, name: str, names: Names, enter: Enter) -> Function:
        then = self._then(name)
        from_anyone = self._from_anyone(names) if "status" in names else None
        exchanges = name in mpi_calls.EXCHANGES

        @functools.wraps(function)
        def method(comm: Any, *args: Any, **kwargs: Any) -> Any:
            recorder, thread, entry = probe.recorder, local.thread, comm._hangdoctor
            if recorder is None or entry is None or thread.depth or self.stopped:
                return function(comm, *args, **kwargs)
            tokens: Tokens = ()
            status = None
            try:
                if not self.counted:
                    self._begin(recorder)
                tokens = enter(recorder, entry, args, kwargs)
                if from_anyone is not None:
                    status, kwargs = from_anyone(args, kwargs)
            except Exception as error:
                probe.fail(error)
            try:
                thread.depth = 1
                result = function(comm, *args, **kwargs)
            except BaseException as error:
                _raised(recorder, tokens, error)
                without_us(error)
                raise
            finally:
                thread.depth = 0
            try:
                if then is not None:
                    return then(recorder, tokens, result)
                if status is not None and tokens:
                    recorder.resolve_source(tokens[0], entry, sender(entry, status))
                if exchanges:
                    recorder.waited()
                recorder.over(tokens)
            except Exception as error:
                probe.fail(error)
            return result

        return method

    def _from_anyone(self, names: Names) -> Callable[[Given, dict[str, Any]], Any]:
        """Where MPI is going to name the sender of a message, None where that is known; and the call's
        arguments with it.
        """
        source = argument(names, "source", self.mpi.ANY_SOURCE)
        place = names.index("status")

        def status(args: Given, kwargs: Named) -> tuple[Any, dict[str, Any]]:
            if source(args, kwargs) != self.mpi.ANY_SOURCE:
                return None, kwargs
            if len(args) > place or "status" in kwargs:
                told = args[place] if len(args) > place else kwargs["status"]
                return (told if type(told) is self.mpi.Status else None), kwargs
            ours = self.mpi.Status()
            return ours, {**kwargs, "status": ours}

        return status

    def _polling(self, function: Function, name: str, names: Names) -> Function:
        """A receive where there is a message: what polls is not in it before."""
        enter = self.enters.receive(name, names)
        place = names.index("status")

        @functools.wraps(function)
        def method(comm: Any, *args: Any, **kwargs: Any) -> Any:
            recorder, entry = probe.recorder, comm._hangdoctor
            if recorder is None or entry is None or self.stopped:
                return function(comm, *args, **kwargs)
            told = args[place] if len(args) > place else kwargs.get("status")
            status = told if told is not None else self.mpi.Status()
            if told is None:
                args, kwargs = args[:place], {**kwargs, "status": status}
            try:
                message = function(comm, *args, **kwargs)
            except BaseException as error:
                without_us(error)
                raise
            try:
                if message is not None:
                    recorder.over(
                        enter(recorder, entry, (status.Get_source(), status.Get_tag()), {})
                    )
            except Exception as error:
                probe.fail(error)
            return message

        return method

    def _then(self, name: str) -> Callable[[Recorder, Tokens, Any], Any] | None:
        if name in mpi_calls.MAKERS:
            return self._made
        return self._begun if name in mpi_calls.ASYNC else None

    def _made(self, recorder: Recorder, tokens: Tokens, result: Any) -> Any:
        recorder.over(tokens)
        return self.taken(recorder, result)

    def _begun(self, recorder: Recorder, tokens: Tokens, result: Any) -> Any:
        """The handle of a non-blocking call as one that is followed."""
        request = self.request(result) if type(result) is self.request.__base__ else None
        recorder.follow(request, tokens)
        return result if request is None else request


def _raised(recorder: Recorder, tokens: Tokens, error: BaseException) -> None:
    recorder.waited()
    for token in tokens:
        refused(token, None, error)


def _reduce(base: Any) -> Function:
    """Pickled as mpi4py pickles the communicator: `COMM_WORLD` by its name, others not at all."""

    def __reduce__(comm: Any) -> Any:
        original = comm._hangdoctor_for
        return base.__reduce__(comm if original is None else original)

    return __reduce__


def _around(function: Function, before: Before | None = None, then: Then | None = None) -> Function:
    """A call that is no operation: what the probe does before it, or makes of its result."""

    @functools.wraps(function)
    def method(comm: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = probe.recorder if comm._hangdoctor is not None else None
        try:
            if recorder is not None and before is not None:
                before(recorder, comm)
        except Exception as error:
            probe.fail(error)
        try:
            result = function(comm, *args, **kwargs)
        except BaseException as error:
            without_us(error)
            raise
        try:
            if recorder is not None and then is not None:
                return then(recorder, comm, result)
        except Exception as error:
            probe.fail(error)
        return result

    return method


def _freed(recorder: Recorder, comm: Any, result: Any) -> Any:
    recorder.groups.end_of_mpi(comm._hangdoctor)
    comm._hangdoctor = None
    return result
