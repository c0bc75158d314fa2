"""Processes of vLLM and SGLang by their titles: which are workers, and which rank each of them is.

Their launchers give workers no RANK. A worker's title has its place along each axis instead:
``VLLM::Worker_DP1_TP0``, ``sglang::scheduler_PP1_TP0``. An engine, a server or a detokenizer beside
them gives work or passes it on, and is no rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..text.late import late

_TITLE = late(
    r"(?P<worker>VLLM::Worker|sglang::scheduler)(?P<places>(?:_[A-Z_]{2,7}[0-9]{1,4}){0,7})"
    r"|(?P<engine>VLLM::EngineCore)(?:_(?:DP)?(?P<replica>[0-9]{1,4}))?"
    r"|(?P<other>VLLM::\w{1,40}|sglang::\w{1,40}(?::[0-9]{1,9})?)"
)
_SERVER = late(r"\b(?:sglang\.launch_server|vllm(?:\.entrypoints| serve)\b)")
_SIZE = late(
    r"(?:^|\s)--?(tp-size|tp|tensor-parallel-size|pp-size|pp|pipeline-parallel-size|dp|data-parallel-size)"
    r"[= ](\d{1,5})(?=\s|$)"
)
_AXIS_OF = {
    **dict.fromkeys(("tp-size", "tp", "tensor-parallel-size"), "tp"),
    **dict.fromkeys(("pp-size", "pp", "pipeline-parallel-size"), "pp"),
    **dict.fromkeys(("dp", "data-parallel-size"), "dp"),
}
_PLACE = late(r"_([A-Z_]{2,7})([0-9]{1,4})")
# Outermost first. Expert-parallel and other numbers only repeat these in another way.
_AXES = ("PP", "PCP", "TP")
_REPLICA = "DP"
_MOST = 65_536  # ranks: titles are short, and anyone can give himself one


class Title(Struct, frozen=True):
    """What the title of a process says."""

    program: str  # the title without its numbers
    kind: str  # worker | engine | other
    places: tuple[tuple[str, int], ...] = ()


def read(title: str) -> Title | None:
    """The title as its parts; None of any other program's."""
    match = _TITLE.fullmatch(title.strip())
    if match is None:
        return None
    if match["worker"]:
        places = tuple((axis, int(n)) for axis, n in _PLACE.findall(match["places"]))
        return Title(match["worker"], "worker", places)
    if match["engine"]:
        replica = ((_REPLICA, int(match["replica"])),) if match["replica"] else ()
        return Title(match["engine"], "engine", replica)
    return Title(match["other"], "other")


def workers(titles: Sequence[Title | None]) -> list[bool]:
    """Which of the processes run the model.

    An engine does where no worker is beside it. Processes without a title do where none has one.
    """
    kinds = {title.kind for title in titles if title is not None}
    meant = next((kind for kind in ("worker", "engine") if kind in kinds), None)
    if meant is None:
        return [title is None for title in titles]
    return [title is not None and title.kind == meant for title in titles]


def ranks(titles: Sequence[Title | None]) -> list[int] | None:
    """The rank of each worker; None where their titles do not say it, or say one twice."""
    places = [dict(title.places) for title in titles if title is not None]
    if len(places) < len(titles) or not all(places):
        return None
    inner = _numbered(places, _AXES)
    # SGLang's data parallelism of attention divides the ranks of tensor parallelism.
    divides = all(title is not None and title.program.startswith("sglang") for title in titles)
    if divides and len(set(inner)) == len(inner):
        return inner
    found = _numbered(places, (_REPLICA, *_AXES))
    return found if len(set(found)) == len(found) and max(found) < _MOST else None


def world_size(commands: Iterable[str]) -> int:
    """How many ranks a server was to start, by its own command line; 0 where none shows it."""
    sizes = {size for command in commands if (size := _started(command)) > 0}
    return sizes.pop() if len(sizes) == 1 else 0


def _started(command: str) -> int:
    """The product of the sizes that it is given; SGLang's --dp-size divides the ranks, and is none."""
    if _SERVER.search(command) is None:
        return 0
    sizes = {name: int(size) for name, size in _SIZE.findall(command)}
    axes = {_AXIS_OF[name]: size for name, size in sizes.items()}
    if "tp" not in axes:
        return 0
    replicas = axes.get("dp", 1) if "vllm" in command else 1
    size = axes["tp"] * axes.get("pp", 1) * replicas
    return size if size <= _MOST else 0


def _numbered(places: Sequence[dict[str, int]], axes: Sequence[str]) -> list[int]:
    """The numbers along some axes as one; an axis is as long as its largest number says."""
    found = [0] * len(places)
    for axis in axes:
        here = [place.get(axis, 0) for place in places]
        found = [so_far * (max(here) + 1) + n for so_far, n in zip(found, here, strict=True)]
    return found
