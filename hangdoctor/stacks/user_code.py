"""Whose code a frame is: the user's own, a framework's, or a part of Python and torch.

A sentence names the user's line, since that is the one that a reader knows and can change; what the
framework did below it is evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..model.capture import Frame
from ..text.late import late

_STANDARD = late(
    r"/lib/python3\.\d+/(?!site-packages|dist-packages)|^<frozen"
    # py-spy's text has paths from the library's folder on.
    r"|^(?:asyncio|concurrent|importlib|multiprocessing)/"
    r"|^(?:contextlib|functools|queue|runpy|selectors|socket|subprocess|threading)\.py$"
)
_SPAWNER = "torch/multiprocessing/spawn.py"
# Where torch's collectives, and what makes its groups, are written
C10D = "torch/distributed/distributed_c10d.py"
TORCH = late(r"site-packages/torch/|^torch/")
# Below a framework, too: their frames say the least.
_FOUNDATION = late(r"(?:site-packages/|dist-packages/|^)(?:torch|deepspeed|numpy)/")
_INSTALLED = late(r"(?:^|/)(?:site|dist)-packages/")
# py-spy's text, a person's files: paths begin at the package.
_PACKAGES = late(
    r"^(?:accelerate|apex|colossalai|composer|datasets|diffusers|filelock|flash_attn|flashinfer|flax"
    r"|horovod|ignite|jax|lightning|lightning_fabric|megatron/core|mpi4py|peft|pytorch_lightning|ray"
    r"|safetensors|sglang|tensorboard|torchmetrics|torchtitan|tqdm|transformer_engine|transformers|triton|trl|uvicorn"
    r"|uvloop|vllm|wandb|webdataset|xgrammar|zmq)/"
)
# In any folder, as a clone or `pip install --target` has them: a package and a part of it together,
# since a person's own folder may have the name of one.
_ANYWHERE = late(
    r"/(?:accelerate/(?:accelerator|launchers|utils/\w+)\.py$|deepspeed/(?:comm|runtime|utils)/"
    r"|ignite/(?:distributed|engine|handlers)/|(?:lightning|pytorch_lightning)/(?:fabric|pytorch)/"
    r"|lightning_fabric/(?:plugins|strategies)/|megatron/core/|ray/(?:_private|train|util|actor)(?:/|\.py$)"
    r"|transformers/(?:models/|trainer\w*\.py$))"
)
# `<eval_with_key>.3`, `<attrs generated init>`: made by libraries. `python -c` and a notebook are not.
_GENERATED = late(r"^<(?!string>|stdin>|ipython-input)")
_COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})
_RAYS_LOOP = late(r"(?:^|/)ray/_private/worker\.py:(?:Worker\.)?main_loop$")
_CONSOLE_SCRIPT = late(r"/bin/[^/.]+$")


def is_users(frame: Frame) -> bool:
    """True for a frame of the user's own code: of no installed package, Python or generated code."""
    if frame.name == "<module>" and frame.file == "<string>":
        return False  # the command line of what multiprocessing spawns
    return _is_users_file(frame.file)


@lru_cache(maxsize=65_536)
def _is_users_file(file: str) -> bool:
    if not file or _STANDARD.search(file) or _INSTALLED.search(file) or _FOUNDATION.search(file):
        return False
    if _ANYWHERE.search(file):
        return False
    made = _GENERATED.search(file) or _CONSOLE_SCRIPT.search(file)
    return not made and _PACKAGES.search(file) is None


def is_standard(frame: Frame) -> bool:
    """True for a frame of Python's own library."""
    return _STANDARD.search(frame.file) is not None


def is_outer(frame: Frame) -> bool:
    """True for a frame outside of Python, torch, DeepSpeed and numpy: the user's or a framework's."""
    return not _is_foundation(frame.file)


@lru_cache(maxsize=65_536)
def _is_foundation(file: str) -> bool:
    return _STANDARD.search(file) is not None or _FOUNDATION.search(file) is not None


def is_idle_actor(frame: Frame) -> bool:
    """Whether a worker of Ray waits there for the next call of its actor: the last one has returned."""
    return _RAYS_LOOP.search(f"{frame.file}:{frame.name}") is not None


def is_comprehension(frame: Frame) -> bool:
    """True for the frame of a generator expression or comprehension, a part of a function's line."""
    return frame.own_name in _COMPREHENSIONS


def users_frame(python: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code, else `outer_frame`; frames innermost first."""
    return own_frame(python) or outer_frame(python)


def own_frame(python: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code, that of a function where there is one; frames
    innermost first.
    """
    own = [frame for frame in python if is_users(frame)]
    named = next((frame for frame in own if not is_comprehension(frame)), None)
    return named or next(iter(own), None)


def outer_frame(python: Sequence[Frame]) -> Frame | None:
    """The innermost frame outside of Python, torch, DeepSpeed and numpy, which may be a
    framework's; else the innermost.
    """
    for frame in python:
        if is_outer(frame):
            return frame
    return python[0] if python else None


def is_parents(frames: Sequence[Frame]) -> bool:
    """Whether the stack is of a parent that waits in the join of the processes which it spawned."""
    return any(f.name == "join" and f.file.endswith(_SPAWNER) for f in frames)
