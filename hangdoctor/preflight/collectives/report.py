"""What `preflight --collectives` adds to the JSON."""

from __future__ import annotations

from msgspec import Struct

from .search import Culprit
from .trial import Result


class DeviceTest(Struct):
    """One device alone; `error` is empty where its results are right, `untested` where it was tested."""

    unit: str
    device: int
    tflops: float = 0.0  # TFLOP/s of a matmul in fp32
    gb_s: float = 0.0  # GB/s of a copy in its memory
    gb: float = 0.0  # of memory that was written and read back
    error: str = ""
    untested: str = ""  # why it could not be tested


class Collectives(Struct):
    """What `--collectives` adds to the JSON of preflight."""

    backend: str = "gloo"
    sizes: list[int] = []  # bytes
    tests: list[Result] = []
    devices: list[DeviceTest] = []
    left_out: dict[str, str] = {}  # unit -> why it took no part
    links: int = 0
    of_links: int = 0
    culprits: list[Culprit] = []
    exclude: str = ""  # nodes, for sbatch --exclude
    leave_out: str = ""  # what keeps the next job from them
    unfinished: str = ""  # why the search was stopped
    untested: list[str] = []  # what could not be tested: "network and devices of n3"
