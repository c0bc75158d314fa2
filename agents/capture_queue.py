"""Captures of this node, one at a time: one that is asked for meanwhile begins when the first has
ended.

It never shares the first one: who asks wants to see the ranks after that moment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from msgspec import structs

from hangdoctor.errors import HangdoctorError, NoRanksFound
from hangdoctor.readers import rank_operations
from hangdoctor.readers.node import CaptureOptions, capture_node
from hangdoctor.transport import messages as msg
from hangdoctor.transport.capture_codec import pack_capture

from .after_end import Remains, add_codes, capture_remains

_LOG = logging.getLogger("hangdoctor.agent")
_ANSWER_S = 5.0  # for the way of a capture; the collector waits no longer
_LEAST_S = 1.0  # for a capture, beside the time between its samples
_AT_ONCE_S = 0.5
_REPLACED = "another capture was asked for since"
_TOO_LATE = "the capture before it ended too late"


class CaptureQueue:
    """One under way, and at most one that waits for it: the newest that was asked for."""

    def __init__(
        self,
        options: CaptureOptions,
        node: str,
        send: Callable[[msg.FromAgent], bool],
        remains: Callable[[], Remains],
    ) -> None:
        """`options` names the ranks; settle and time-out come with each request.

        `remains` is asked for what is left of ranks that have ended.
        """
        self.options, self.node, self.send = options, node, send
        self.remains = remains
        self.told_ends = False  # a capture has told how ranks ended
        self._running: asyncio.Task[None] | None = None
        self._next: tuple[msg.Capture, float] | None = None  # and when it was asked for

    def ask(self, wanted: msg.Capture) -> None:
        """Begin it now, or when the one under way has ended."""
        asked = time.monotonic()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._work(wanted, asked))
            return
        if self._next is not None:
            self.send(msg.Declined(self._next[0].id, _REPLACED))
        self._next = wanted, asked

    async def _work(self, wanted: msg.Capture, asked: float) -> None:
        await self._deal_with(wanted, asked)
        while self._next is not None:
            (wanted, asked), self._next = self._next, None
            await self._deal_with(wanted, asked)

    async def _deal_with(self, wanted: msg.Capture, asked: float) -> None:
        waited = time.monotonic() - asked
        left = wanted.timeout_s - waited
        if waited > _AT_ONCE_S and left < wanted.settle_s + _LEAST_S:
            self.send(msg.Declined(wanted.id, _TOO_LATE))
            return
        ends = self.remains().ends
        await self._answer(await self._capture(structs.replace(wanted, timeout_s=left)))
        self.told_ends = self.told_ends or bool(ends)

    async def _answer(self, answer: msg.Captured) -> None:
        end = time.monotonic() + _ANSWER_S
        while not self.send(answer) and time.monotonic() < end:
            await asyncio.sleep(0.1)  # the connection was lost meanwhile, and comes back

    async def _capture(self, wanted: msg.Capture) -> msg.Captured:
        options = structs.replace(
            self.options,
            settle_s=min(wanted.settle_s, 60.0),
            timeout_s=min(max(wanted.timeout_s, 0.5), 120.0),
        )
        remains, keep = self.remains(), int(wanted.keep_ops)
        try:
            body = await asyncio.wait_for(
                asyncio.to_thread(_captured, options, self.node, keep, remains),
                options.timeout_s + 1.0,
            )
            return msg.Captured(wanted.id, body)
        except NoRanksFound as error:
            return msg.Captured(wanted.id, error=str(error)[:300], no_ranks=True)
        except HangdoctorError as error:
            return msg.Captured(wanted.id, error=str(error)[:300])
        except (asyncio.TimeoutError, TimeoutError):
            why = f"the capture did not end within {options.timeout_s:.0f} s"
            return msg.Captured(wanted.id, error=why)
        except Exception as error:
            _LOG.exception("the capture failed")
            why = f"the capture failed: {type(error).__name__}: {error}"
            return msg.Captured(wanted.id, error=why[:300])


def _captured(options: CaptureOptions, node: str, keep_ops: int, remains: Remains) -> bytes:
    """Runs in a thread: capture this node and pack it; after the end of its ranks, what is left."""
    try:
        capture = capture_node(options, node)
    except NoRanksFound:
        left = capture_remains(remains, keep_ops)
        if left is None:
            raise
        return pack_capture(left)
    capture.chosen = ""
    add_codes(capture.ranks, remains)
    for rank in capture.ranks:
        if rank.ops is not None:
            rank.ops = rank_operations.trim(rank.ops, keep_ops)
    return pack_capture(capture)
