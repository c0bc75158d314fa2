"""Processes of a job that run no rank, by their titles and by the stacks of their main threads.

Whoever dumps one of them by itself has not dumped a rank, and is told so.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.frame import Frame
from ..stacks import no_ranks
from ..text.late import late
from .pyspy_text import TextProcess

# Titles that say enough. That of an actor of Ray's is its class, and the method that it is in.
_TITLES = (
    (late(r"ray::(?:TrainController|BackendExecutor)\b"), no_ranks.CONTROLLER),
    (late(r"ray::ServeController\b"), "Ray Serve's controller"),
    (late(r"VLLM::APIServer(?:_[0-9]{1,4})?$"), no_ranks.SERVER),
    (late(r"VLLM::DPCoordinator$"), "vLLM's coordinator"),
    (late(r"sglang::detokenizer$"), "SGLang's detokenizer"),
    (
        late(r"sglang::(?:tokenizer_worker(?::[0-9]{1,9})?|http_server|server)$"),
        "SGLang's server",
    ),
    (late(r"sglang::data_parallel_controller$"), "SGLang's controller"),
)


def part_of(process: TextProcess) -> str:
    """What it is instead of a rank; "" for what may be one."""
    title = process.command.strip()
    by_title = next((what for pattern, what in _TITLES if pattern.match(title)), "")
    return by_title or no_ranks.part_of(_main(process), title.startswith("VLLM::EngineCore"))


def _main(process: TextProcess) -> Sequence[Frame]:
    main = [t for t in process.threads if t.name == "MainThread" or t.tid == process.pid]
    chosen = main or process.threads[:1]
    return chosen[0].frames if chosen else []
