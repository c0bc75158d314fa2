"""Whose the frames of a Python stack are: the user's own, a library's, or the launcher's."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.frame import Frame
from ...stacks.user_code import is_outer, is_parents, is_users
from ...text.late import late

# Also a checkout of this probe, which a job runs under.
_INSTALLED = late(r"/(?:site|dist)-packages/|<frozen|/hangdoctor/probe/")
LAUNCHER = ("torch/distributed/launcher/api.py", "torch/distributed/run.py")
_OF_HOROVOD = late(
    r"/horovod/(?:run|runner|spark)/(?:\w+/)?(?:run|launch|gloo_run|mpi_run|runner|__init__)\.py$"
)
_LAUNCHERS_OWN = late(
    r"/bin/(?:torchrun|accelerate|deepspeed|composer|horovodrun|ds|llamafactory-cli)$"
    r"|/torch/distributed/(?:launch(?:er)?|run|elastic)\b|/accelerate/commands/"
    r"|/deepspeed/launcher/|/composer/cli/|runpy"
)
# What `python -m` begins with, and the launchers that start their ranks as processes of their own.
_RUNS_MODULE = late(r"(?:^|/|<frozen )runpy(?:\.py|>)$")
_STARTS_PROCESSES = late(r"/torch/distributed/(?:launch|run)\.py$|/bin/torchrun$")


def is_launchers(frames: Sequence[Frame]) -> bool:
    """Whether the launcher itself failed: it does when a rank has."""
    files = [frame.file for frame in frames]
    own = all(_LAUNCHERS_OWN.search(file) for file in files)
    if own or any(file.endswith(LAUNCHER) or _OF_HOROVOD.search(file) for file in files):
        return True
    begins = next((file for file in files if _RUNS_MODULE.search(file) is None), "")
    return _STARTS_PROCESSES.search(begins) is not None or is_parents(frames)


def own_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code, else of no known library, else the innermost;
    `frames` outermost first.
    """
    own = [f for f in frames if not _INSTALLED.search(f.file)]
    own = [f for f in own if is_users(f)] or [f for f in frames if is_outer(f)] or list(frames)
    return own[-1] if own else None
