"""Workers that a log names otherwise than by rank: vLLM's, SGLang's and Ray's.

(VllmWorker TP3 pid=432) text         vLLM; `(Worker_DP0_TP3_EP3 pid=432)` from 0.11 on
[2025-04-23 21:31:41 TP2] text        SGLang; `[2025-04-23 21:31:41 DP0 TP2] text`

A place along the axis of tensor parallelism alone is the rank: these programs print the other axes
wherever they have more than one place. With them only the worker's name is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...text.late import late

_PLACES = late(r"(?<![A-Za-z])((?:PP|PCP|DP|TP|EP|ATTN_TP|ATTN_DP|DCP)\d{1,4})(?!\d)")
_IN_STAMP = late(r"((?: (?:PP|PCP|DP|TP|EP|ATTN_TP|ATTN_DP|DCP)\d{1,4}){1,6})\]\s?")
_TAGS = late(
    r"\s*\[((?:(?:PP|PCP|DP|TP|EP|ATTN_TP|ATTN_DP|DCP)\d{1,4}(?: (?=[A-Z])|(?=\]))){1,6})\]:?\s"
)
_TENSOR = late(r"TP(\d{1,4})$")
_PROCESS = late(r"VllmWorker-(\d{1,4})$")
_NAME = late(r"^\s*(pid|name|ip): (\S{1,200})\s*$")


def places(text: str) -> str:
    """The place of a worker along its axes, as ``TP3`` or ``DP0 TP3``; "" for none."""
    found = _PLACES.findall(text.replace("_", " "))
    # Expert parallelism only counts the same processes in another way.
    kept = [place for place in found if not place.startswith("EP")]
    return " ".join(kept)


def behind_stamp(text: str) -> tuple[str, int]:
    """(the place that SGLang writes behind a stamp, its length in `text`), or ("", 0)."""
    match = _IN_STAMP.match(text)
    return (places(match[1]), match.end()) if match is not None else ("", 0)


def tagged(text: str) -> tuple[str, int]:
    """The same of SGLang's tag without a stamp, ``[TP5 EP5] text``."""
    match = _TAGS.match(text)
    return (places(match[1]), match.end()) if match is not None else ("", 0)


def tensor_rank(worker: str) -> int:
    """The number along tensor parallelism where a worker has no other; -1 else."""
    match = _TENSOR.match(worker)
    return int(match[1]) if match is not None else -1


def ranks(heard: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The rank of each worker, of (its name, its process or 0); {} where names do not tell it.

    A name of two processes is that of two engines, or of an engine that was started again.
    """
    processes: dict[str, set[int]] = {}
    for worker, pid in heard:
        processes.setdefault(worker, set()).add(pid)
    numbers = {worker: tensor_rank(worker) for worker in processes}
    by_place = {worker: n for worker, n in numbers.items() if n >= 0}
    others = [worker for worker in processes if worker not in by_place]
    several = any(len(pids - {0}) > 1 for pids in processes.values())
    if not by_place or several or any(places(worker) for worker in others):
        return {}
    named = {worker: _PROCESS.match(worker) for worker in others}
    return by_place | {worker: int(match[1]) for worker, match in named.items() if match}


def attribute(text: str) -> tuple[str, str] | None:
    """(name, value) of a line below Ray's ActorDiedError: pid, name or ip."""
    match = _NAME.match(text)
    return (match[1], match[2]) if match is not None else None
