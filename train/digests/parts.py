"""The tensors that a training consists of, by name: weights, fp32 master slices, Adam's moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

MOMENTS = ("exp_avg", "exp_avg_sq", "state1", "state2")  # the last two: bitsandbytes'
# Where DeepSpeed's optimizers keep this rank's part of a group of parameters, in one flat tensor.
_FLAT = ("single_partition_of_fp32_groups", "fp32_groups_flat_partition")


@dataclass(frozen=True)
class Part:
    """One tensor. `split`: tensor parallel ranks hold other slices of it; `start`: where a slice of
    an optimizer's partition begins in its parameter.
    """

    kind: str  # weight, master, exp_avg, exp_avg_sq, random
    name: str
    tensor: torch.Tensor
    split: bool = False
    start: int = 0


def keeps_shares(optimizer: Any) -> bool:
    """Whether each replica has its share of the optimizer alone."""
    return any(hasattr(optimizer, name) for name in _FLAT)


def parts(
    module: torch.nn.Module, optimizer: Any = None, random: Mapping[str, torch.Tensor] | None = None
) -> Iterator[Part]:
    """Everything of this rank; `optimizer` is torch's or DeepSpeed's."""
    flats: Any = next(
        (getattr(optimizer, name) for name in _FLAT if hasattr(optimizer, name)), None
    )
    inner = getattr(optimizer, "optimizer", optimizer)
    for name, parameter in module.named_parameters():
        split = bool(getattr(parameter, "tensor_model_parallel", False))
        yield Part("weight", name, parameter, split)
        fragment = getattr(parameter, "_hp_mapping", None)
        if flats is not None:
            if fragment is not None:  # this rank's partition has some of it
                yield from _of_partition(name, split, fragment, flats, inner=inner)
        elif inner is not None:
            for key in MOMENTS:
                if key in inner.state.get(parameter, {}):
                    yield Part(key, name, inner.state[parameter][key], split)
    for name, state in (random or {}).items():
        yield Part("random", name, state, split=True)


def _of_partition(
    name: str, split: bool, fragment: Any, flats: Any, *, inner: Any
) -> Iterator[Part]:
    """By address in the flat tensors: the views that DeepSpeed hands out are those of before a load."""
    flat = flats[fragment.param_group_index]
    here, start = fragment.hp_fragment_address, fragment.lp_fragment_address.start
    yield Part("master", name, flat.narrow(0, here.start, here.numel), split, start)
    for key in MOMENTS:
        moment = inner.state.get(flat, {}).get(key)
        if moment is not None:
            yield Part(key, name, moment.narrow(0, here.start, here.numel), split, start)
