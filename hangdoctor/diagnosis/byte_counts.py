"""What a rank has read and written between its samples: work that its stack does not show."""

from __future__ import annotations

from ..model.capture import ProcessSample, ThreadSample
from .findings import BytesMoved
from .view import RankView

_SIGN_OF_LIFE = 4096  # in a checkpoint: less is a log line or a sign of life
_OF_OTHERS = 1 << 20  # by threads beside the rank's own: a checkpoint that they write
# Outside of a checkpoint. Lines of a log stay below the first in the seconds between two samples. A
# loop that polls reads a small file again and again, but none polls by writing.
_WRITTEN = 64 << 10
_READ = 1 << 20


def gets_on(view: RankView) -> bool:
    """True where a rank in a checkpoint makes progress: other lines or counters, or bytes written
    or read. The bytes are those of the whole process: of a thread that did not run, only as many
    count as no thread beside the checkpoint writes.
    """
    samples = view.capture.samples
    if view.got_on or len(samples) < 2:
        return view.got_on
    enough = _OF_OTHERS if view.motion == "still" else _SIGN_OF_LIFE
    moved = _between(samples[0], samples[-1])
    return max(moved.read, moved.written) >= enough


def of_thread(view: RankView) -> BytesMoved:
    """Bytes that the rank's thread has read and written between the samples; those of its whole
    process where they are not counted by thread, and none where it did not run.
    """
    samples = view.capture.samples
    if view.thread is None or view.motion == "still" or len(samples) < 2:
        return BytesMoved()
    first, last = samples[0], samples[-1]
    before = next((t for t in first.threads if t.tid == view.thread.tid), None)
    after = next((t for t in last.threads if t.tid == view.thread.tid), None)
    if before is None or after is None or min(before.write_bytes, after.write_bytes) < 0:
        return _between(first, last)
    return _between(before, after)


def writes_on(view: RankView) -> bool:
    """Whether the rank's thread has written more than a log between the samples."""
    return of_thread(view).written >= _WRITTEN


def reads_on(view: RankView) -> bool:
    """Whether it has read more than a loop does that polls a small file."""
    return of_thread(view).read >= _READ


def _between(first: ProcessSample | ThreadSample, last: ProcessSample | ThreadSample) -> BytesMoved:
    """What both counted; 0 where one did not."""
    return BytesMoved(
        read=_grown(first.read_bytes, last.read_bytes),
        written=_grown(first.write_bytes, last.write_bytes),
    )


def _grown(before: int, after: int) -> int:
    return max(after - before, 0) if before >= 0 else 0
