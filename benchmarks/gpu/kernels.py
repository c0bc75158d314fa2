"""Each kernel in each flavour: time forward and backward, and the error against float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hangdoctor.train.kernels import apex_support, triton_support

from . import adam_rows
from .kernel_inputs import INPUTS, Made, Maker, for_check, sizes
from .kernel_peers import PEERS, TO_COMPILE, Function, installed, own
from .kernel_truths import TRUTHS, difference
from .options import Options
from .timing import milliseconds
from .worker import NotHere

# Largest relative error, by the dtype of the inputs.
_SMOKE_COMPILES = ("bias_gelu",)  # one shows that it runs
LIMITS = {torch.bfloat16: 1e-2, torch.float32: 1e-4}


def units(options: Options) -> list[str]:
    """KERNEL SIZE FLAVOUR, all kernels at their first size before any at its second."""
    kernels = [*INPUTS, "adam"]
    most = max(len(sizes(kernel, options.smoke)) for kernel in kernels)
    made = ["peers"]
    for place in range(most):
        for kernel in kernels:
            labels = list(sizes(kernel, options.smoke))
            if place < len(labels):
                made += [f"{kernel} {labels[place]} {f}" for f in flavours(kernel, options)]
    return made


def flavours(kernel: str, options: Options) -> list[str]:
    """What can be tried here; `peers` says what cannot, and why."""
    mine = adam_rows.FLAVOURS if kernel == "adam" else list(own(kernel))
    absent = {name for name, why in missing(options).items() if why}
    names = [flavour for flavour in mine if flavour not in absent]
    names += [peer for peer, (_, made) in PEERS.items() if kernel in made and peer not in absent]
    if not options.on_gpu and "cudnn" in names:
        names.remove("cudnn")
    if options.smoke and kernel not in _SMOKE_COMPILES:
        return names
    return [*names, "compile"]


def missing(options: Options) -> dict[str, str]:
    """Why a flavour or peer is not here; empty where it is."""
    why = {"triton": triton_support.unavailable(torch.device(options.device))}
    why["apex"] = "" if installed("apex") else "not installed"
    for peer, (package, _) in PEERS.items():
        why[peer] = "" if installed(package) else f"{package} is not installed"
    return why


def measure(unit: str, options: Options) -> Iterator[dict[str, Any]]:
    """Rows of one unit."""
    if unit == "peers":
        found = missing(options)
        found["apex"] = found["apex"] or apex_support.unavailable()
        yield from ({"peer": peer, "value": why or "here"} for peer, why in found.items())
        return
    kernel, label, flavour = unit.split(" ")
    size = sizes(kernel, options.smoke)[label]
    row = {"kernel": kernel, "size": label, "flavour": flavour}
    if kernel == "adam":
        yield {**row, **adam_rows.measure(flavour, size, options)}
        return
    function = _found(kernel, flavour, options)
    dtype = torch.bfloat16 if options.on_gpu else torch.float32
    make = Maker(options.device, dtype)
    torch.manual_seed(0)
    error = worst_error(kernel, function, INPUTS[kernel](make, for_check(size)))
    made = INPUTS[kernel](make, size)
    forward, backward = times(function, made, options)
    yield {
        **row,
        "forward_ms": forward,
        "backward_ms": backward,
        **made.traffic.__dict__,
        "error": error,
        "limit": LIMITS[dtype],
    }


def _found(kernel: str, flavour: str, options: Options) -> Function:
    """The function of a flavour.

    Raises:
        NotHere: its package is here and has no such function, or does not work.
    """
    if flavour == "compile":
        torch._dynamo.reset()
        plain = TO_COMPILE.get(kernel, own(kernel)["reference"])
        # Smoke: only the tracing; the compiler of C++ takes longer than all the rest.
        backend = "aot_eager" if options.smoke else "inductor"
        compiled: Function = torch.compile(plain, dynamic=False, backend=backend)
        return compiled
    if flavour in PEERS:
        try:
            return PEERS[flavour][1][kernel]()
        except (ImportError, AttributeError) as error:
            raise NotHere(f"{flavour} has no {kernel}: {error}") from error
    if flavour == "apex":
        why = apex_support.unavailable()
        if why:
            raise NotHere(why)
    return own(kernel)[flavour]


# ---------------------------------------------------------------------- right?


def worst_error(kernel: str, function: Function, made: Made) -> float:
    """The largest relative error of an output or gradient against float64."""
    arguments = list(made.arguments)
    if kernel == "bias_dropout_add":
        arguments[3] = 0.0  # what is dropped differs between flavours
    wide = [_wide(a) for a in arguments]
    truth = _outputs(TRUTHS[kernel](*wide))
    leaves = [a for a in wide if isinstance(a, torch.Tensor) and a.requires_grad]
    weights = [torch.randn_like(t) for t in truth]
    wanted = torch.autograd.grad(truth, leaves, weights)

    mine = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]
    got = _outputs(function(*_fresh(arguments, made.gives_up), **made.keywords))
    errors = [difference(g, t) for g, t in zip(got, truth, strict=True)]
    given = [w.to(g.dtype) for w, g in zip(weights, got, strict=True)]
    gradients = torch.autograd.grad(got, mine, given)
    errors += [difference(g, t) for g, t in zip(gradients, wanted, strict=True)]
    return max(errors, key=lambda e: (e != e, e))  # NaN is the worst


def _wide(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor) or not argument.is_floating_point():
        return argument
    return argument.detach().double().requires_grad_(argument.requires_grad)


def _outputs(made: Any) -> list[torch.Tensor]:
    return [made] if isinstance(made, torch.Tensor) else list(made)


def _fresh(arguments: Sequence[Any], gives_up: Sequence[int]) -> list[Any]:
    return [a.clone() if place in gives_up else a for place, a in enumerate(arguments)]


# ---------------------------------------------------------------------- fast?


def times(function: Function, made: Made, options: Options) -> tuple[float, float]:
    """Milliseconds forward and backward: by differences, the copies alone, with the forward pass,
    with both. A graph of a backward pass alone cannot be made.
    """
    leaves = [a for a in made.arguments if isinstance(a, torch.Tensor) and a.requires_grad]

    def forward() -> Any:
        return function(*_fresh(made.arguments, made.gives_up), **made.keywords)

    given = [torch.randn_like(o) for o in _outputs(forward())]

    def both() -> None:
        torch.autograd.grad(_outputs(forward()), leaves, given)

    copies = 0.0
    if made.gives_up:
        copies = milliseconds(lambda: _fresh(made.arguments, made.gives_up), options)
    first, whole = milliseconds(forward, options), milliseconds(both, options)
    return max(first - copies, 0.0), max(whole - first, 0.0)
