"""The one-shot agent: captures its node once and answers on standard output.

Started by a launcher as ``python -m hangdoctor agent --once OPTIONS`` beside the training step.
"""

from __future__ import annotations

import os
import platform
import sys

from hangdoctor.errors import HangdoctorError
from hangdoctor.readers.node import CaptureOptions, capture_node
from hangdoctor.transport.capture_codec import pack_capture
from hangdoctor.transport.stdout_frame import HERE, NodeReply, pack


def answer(options: CaptureOptions) -> NodeReply:
    """Capture this node; a failure becomes part of the answer, so that the launcher can tell it
    from silence.
    """
    named = os.environ.get("HANGDOCTOR_NODE") or os.environ.get("SLURMD_NODENAME")
    node = named or platform.node()
    try:
        return NodeReply(node, pack_capture(capture_node(options, node)))
    except HangdoctorError as error:
        return NodeReply(node, error=str(error), help=error.help)


def main(options: CaptureOptions) -> None:
    """Say that the agent runs here, then print its answer."""
    sys.stdout.write(f"{HERE}\n")
    sys.stdout.flush()
    sys.stdout.write(pack(answer(options)))
    sys.stdout.flush()
