"""What a rank has read, written and received between its samples: work that its stack does not show."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..model.capture import Process, ProcessSample, ThreadSample
from ..text.late import late
from .findings import BytesMoved
from .view import RankView

_SIGN_OF_LIFE = 4096  # in a checkpoint: less is a log line or a sign of life
_OF_OTHERS = 1 << 20  # by threads beside the rank's own: a checkpoint that they write
# Outside of a checkpoint. Lines of a log stay below the first in the seconds between two samples. A
# loop that polls reads a small file again and again, but none polls by writing.
_WRITTEN = 64 << 10
_READ = 1 << 20
# Of the pipe or connection that the thread is blocked on at both samples: a line now and then is a
# sign of life of the other end, and what is answered to questions is no stream.
_STREAM = late(r"^(?:read|readv|recvfrom|recvmsg|p?poll)\(\d+ -> (?:pipe|socket):")
_OF_STREAM = 1024
_TIMES_MORE = 4  # received than sent
_RECEIVED = 256 << 10  # by all connections: the thread may wait for others, which read


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
    before, after = _own_thread(view)
    if before is None or after is None or min(before.write_bytes, after.write_bytes) < 0:
        moved = _between(samples[0], samples[-1])
    else:
        moved = _between(before, after)
    own = 0 if before is None or after is None else _grown(before.received, after.received)
    return structs.replace(moved, received=max(own, received_by(view)))


def writes_on(view: RankView) -> bool:
    """Whether the rank's thread has written more than a log between the samples."""
    return of_thread(view).written >= _WRITTEN


def reads_on(view: RankView) -> bool:
    """Whether it has read more than a loop does that polls a small file, or a stream runs on."""
    return of_thread(view).read >= _READ or streams_on(view)


def streams_on(view: RankView) -> bool:
    """Whether the pipe or connection that the rank waits on carries data, slowly as it may be; or,
    where it waits for another thread or process, any that this one reads.
    """
    before, after = _own_thread(view)
    if before is None or after is None:
        return False
    on_same = before.syscall == after.syscall and _STREAM.match(after.syscall) is not None
    if on_same and after.received >= 0:
        sent, received = _grown(before.sent, after.sent), _grown(before.received, after.received)
        return received >= max(_OF_STREAM, _TIMES_MORE * sent)
    if on_same and "socket:" not in after.syscall:
        return _between(before, after).read >= _OF_STREAM
    return received_by(view) >= _RECEIVED


def received_by(view: RankView) -> int:
    """Bytes that the rank's process, and the children that work for it, have received by TCP."""
    return sum(_received(process) for process in (view.capture, *view.capture.children))


def _received(process: Process) -> int:
    samples: Sequence[ProcessSample] = [s for s in process.samples if s.received >= 0]
    return max(samples[-1].received - samples[0].received, 0) if len(samples) > 1 else 0


def carried(before: ThreadSample, after: ThreadSample) -> bool:
    """Whether a thread has written more than a log, or read more than one that polls, in between."""
    moved = _between(before, after)
    return moved.written >= _WRITTEN or moved.read >= _READ


def _own_thread(view: RankView) -> tuple[ThreadSample | None, ThreadSample | None]:
    """The rank's thread in its first and last sample."""
    samples, own = view.capture.samples, view.thread
    if own is None or len(samples) < 2:
        return None, None
    return _thread_in(samples[0], own.tid), _thread_in(samples[-1], own.tid)


def _thread_in(sample: ProcessSample, tid: int) -> ThreadSample | None:
    return next((t for t in sample.threads if t.tid == tid), None)


def _between(first: ProcessSample | ThreadSample, last: ProcessSample | ThreadSample) -> BytesMoved:
    """What both counted; 0 where one did not."""
    return BytesMoved(
        read=_grown(first.read_bytes, last.read_bytes),
        written=_grown(first.write_bytes, last.write_bytes),
    )


def _grown(before: int, after: int) -> int:
    return max(after - before, 0) if before >= 0 else 0
