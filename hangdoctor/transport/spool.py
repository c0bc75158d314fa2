"""What an agent has said and the collector has not yet acknowledged, on disk, in order.

Segments of at most `_SEGMENT` bytes, each record ``u32 length, u32 crc32, u64 seq, payload``. A
segment goes when all of it is acknowledged; when the spool is full the oldest segment goes, and
what was in it is counted. A disk that takes nothing (full, gone) does no harm: records then stay in
memory, as many as fit `_IN_MEMORY`.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ..errors import BadInput
from ..files import read_of_folder

_HEAD = struct.Struct("<IIQ")
_SEGMENT = 64 << 10
_IN_MEMORY = 2000
_MAX_RECORD = 1 << 20


class Spool:
    """Numbers what is put in, from 1, and gives it back in order until it is acknowledged."""

    def __init__(self, folder: Path, max_bytes: int = 4 << 20) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.dropped = 0
        self.disk_error = ""
        self._records: deque[tuple[int, bytes]] = deque()
        self._segments: deque[tuple[Path, int, int]] = deque()  # (file, last seq in it, bytes)
        self._bytes = 0
        self.last = 0
        self._recover()

    def _recover(self) -> None:
        """What an agent of before has left; a record that was cut by a crash ends its segment."""
        try:
            files = sorted(self.folder.glob("*.seg"))
        except OSError:
            files = []
        for path in files:
            last = self.last
            for seq, payload in _read(path):
                if seq > self.last:
                    self._records.append((seq, payload))
                    self.last = seq
            if self.last == last:
                _remove(path)
                continue
            # Never written to again: its end may be damaged, and what came behind that could not be
            # read.
            self._segments.append((path, self.last, _SEGMENT + 1))
            self._bytes += sum(_HEAD.size + len(p) for s, p in self._records if s > last)

    @property
    def oldest(self) -> int:
        """The first sequence number that is still here; the next one where nothing is."""
        return self._records[0][0] if self._records else self.last + 1

    def __len__(self) -> int:
        return len(self._records)

    def put(self, payload: bytes) -> int:
        """Keep one record and give its number; of a full spool the oldest go."""
        self.last += 1
        self._records.append((self.last, payload))
        self._bytes += _HEAD.size + len(payload)
        self._write(self.last, payload)
        limit = _IN_MEMORY if self.disk_error else 1 << 60
        while self._records and (self._bytes > self.max_bytes or len(self._records) > limit):
            self._forget(self._records[0][0])
            self.dropped += 1
        return self.last

    def after(self, seq: int) -> Iterator[tuple[int, bytes]]:
        """Everything behind `seq` that is still here, in order."""
        skip = max(0, seq + 1 - self.oldest)
        for i in range(skip, len(self._records)):
            yield self._records[i]

    def ack(self, seq: int) -> None:
        """Forget all up to this number."""
        while self._records and self._records[0][0] <= seq:
            self._forget(self._records[0][0])
        # Where the spool of this agent was lost, numbers go on behind what the collector has.
        self.last = max(self.last, seq)

    def _forget(self, seq: int) -> None:
        _, payload = self._records.popleft()
        self._bytes -= _HEAD.size + len(payload)
        while self._segments and self._segments[0][1] <= seq:
            _remove(self._segments.popleft()[0])

    def _write(self, seq: int, payload: bytes) -> None:
        record = _HEAD.pack(len(payload), zlib.crc32(payload, seq & 0xFFFFFFFF), seq) + payload
        try:
            if not self._segments or self._segments[-1][2] > _SEGMENT:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._segments.append((self.folder / f"{seq:020d}.seg", seq, 0))
            path, _, size = self._segments[-1]
            fd = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                written = os.write(fd, record)
            finally:
                os.close(fd)
            whole = written == len(record)
            self.disk_error = "" if whole else "the disk is full"
            # A segment whose end is damaged counts as full: the next record begins a new one.
            self._segments[-1] = (path, seq, size + written if whole else _SEGMENT + 1)
        except OSError as error:
            self.disk_error = error.strerror or str(error)

    def clear(self) -> None:
        """Take the files away: everything was acknowledged, or no one will come for the rest."""
        while self._segments:
            _remove(self._segments.popleft()[0])
        self._records.clear()
        self._bytes = 0


def _remove(path: Path) -> None:
    # On a disk that has become read-only they stay: acknowledged already, they come as doubles.
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _read(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        data = read_of_folder(path, 4 * _MAX_RECORD)
    except (OSError, BadInput):
        return
    at = 0
    while at + _HEAD.size <= len(data):
        length, checksum, seq = _HEAD.unpack_from(data, at)
        payload = data[at + _HEAD.size : at + _HEAD.size + length]
        cut = length > _MAX_RECORD or len(payload) < length
        if cut or zlib.crc32(payload, seq & 0xFFFFFFFF) != checksum:
            return
        yield seq, payload
        at += _HEAD.size + length
