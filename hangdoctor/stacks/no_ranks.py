"""Stacks of processes that run no rank: a launcher's agent, an inference server and its engine, Ray's
controller. They start the ranks, give them work or wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.frame import Frame
from ..text.late import late

AGENT = "torchrun's agent"
ENGINE, SERVER = "vLLM's engine", "vLLM's API server"
CONTROLLER = "Ray's controller"
# What they wait for
WORKERS, REQUESTS, NODES, AT_EXIT, RANKS = "workers", "requests", "nodes", "exit", "ranks"

_IN_AGENT = late(r"(?:^|/)torch/distributed/(?:elastic/agent/|elastic/rendezvous/|run\.py$)")
# A forked rank has the frames of the agent that started it around its own.
_STARTED = late(r"(?:^|/)multiprocessing/(?:process|spawn|popen_\w+|forkserver)\.py$")
_CHILD = ("_bootstrap", "_launch", "spawn_main")
_EXECUTOR = late(
    r"(?:^|/)vllm/(?:v1/)?(?:executor|engine)/(?:multiproc_executor|ray_executor|ray_distributed_executor"
    r"|ray_utils|mp_distributed_executor|multiproc_worker_utils|distributed_gpu_executor)\.py$"
)
_OF_CORE = late(r"(?:^|/)vllm/v1/engine/core\.py$")
_WORKER_MAIN = ("worker_main", "worker_busy_loop", "_run_worker_process")
_RUNS_MODEL = late(
    r"(?:^|/)(?:vllm/(?:v1/)?worker/|vllm/model_executor/|torch/distributed/distributed_c10d\.py$)"
)
_OF_SERVER = late(r"(?:^|/)vllm/entrypoints/(?:openai/api_server|cli/serve|launcher)\.py$")
_OF_RAY = late(
    r"(?:^|/)ray/train/(?:_internal/backend_executor|backend|v2/_internal/execution/controller/controller)\.py$"
)
_ASKS_RAY = late(r"(?:^|/)ray/(?:_private/)?worker\.py$")


def part_of(frames: Sequence[Frame], engine: bool = False) -> str:
    """What the process of a main thread is instead of a rank; "" for what may be one. `engine`: its
    title says that it is vLLM's, which is started as its workers are.
    """
    started = any(_STARTED.search(frame.file) and frame.name in _CHILD for frame in frames)
    if engine or not started:
        served = _of_vllm(frames, engine)
        if served:
            return served
    if started:
        return ""
    if any(_IN_AGENT.search(frame.file) for frame in frames):
        return AGENT
    return CONTROLLER if any(_OF_RAY.search(frame.file) for frame in frames) else ""


def _of_vllm(frames: Sequence[Frame], engine: bool) -> str:
    """An engine, or a server, without workers runs the model itself, and is a rank."""
    if any(f.name in _WORKER_MAIN or _RUNS_MODEL.search(f.file) for f in frames):
        return ""
    if any(_EXECUTOR.search(frame.file) for frame in frames):
        return ENGINE
    if engine and _waits_for_requests(frames):
        return ENGINE
    return SERVER if any(_OF_SERVER.search(frame.file) for frame in frames) else ""


def _waits_for_requests(frames: Sequence[Frame]) -> bool:
    return any(_OF_CORE.search(f.file) and "input_queue" in f.name for f in frames)


def awaited(frames: Sequence[Frame]) -> str:
    """What such a process waits for; "" where its stack does not show it."""
    if any(_EXECUTOR.search(frame.file) for frame in frames):
        return WORKERS
    if any(_OF_RAY.search(f.file) for f in frames) and any(
        _ASKS_RAY.search(f.file) for f in frames
    ):
        return WORKERS
    if _waits_for_requests(frames):
        return REQUESTS
    agents = [frame for frame in frames if _IN_AGENT.search(frame.file)]
    if any(frame.name == "_exit_barrier" for frame in agents):
        return AT_EXIT
    if any("rendezvous" in frame.name for frame in agents):
        return NODES
    watches = ("_monitor_workers", "_invoke_run")
    return RANKS if agents and agents[0].name in watches else ""
