"""The layout of a file of calls in bytes; `docs/tracing.md` says the same in words. Little-endian
throughout.

Writers (`ring.py`, `_calls.c`) and the reader (`hangdoctor.readers.calls`) share nothing but this
file.
"""

from __future__ import annotations

import struct

MAGIC = b"HDPCALLS"
VERSION = 1
SUFFIX = ".calls"

DEFAULT_BYTES = 16 << 20
MIN_BYTES = 1 << 20
HEADER_BYTES = 4096

# Header fields: (offset, struct format).
H_MAGIC = (0, "<8s")
H_VERSION = (8, "<I")
H_HEADER_BYTES = (12, "<I")
H_FILE_BYTES = (16, "<Q")
H_PID = (24, "<I")
H_RANK = (28, "<i")
H_WORLD = (32, "<i")
H_STARTED_TICKS = (40, "<Q")
H_BOOT_ID = (48, "<16s")
H_MADE_WALL = (64, "<Q")
H_MADE_MONO = (72, "<Q")
H_NOW_WALL = (80, "<Q")
H_NOW_MONO = (88, "<Q")
H_STATE = (96, "<I")
H_VARIANT = (100, "<I")
H_MEANS = (104, "<I")
H_REQUEST = (112, "<q")
H_FROM_ITERATION = (120, "<q")
H_BEGAN_WALL = (128, "<Q")
# Regions: (offset of the triple) -> u64 where it begins, u32 how many entries, u32 bytes of one entry.
H_THREADS = (144, "<QII")
H_CODES = (160, "<QII")
H_TEXTS = (176, "<QII")
H_RING = (192, "<QII")
H_TEXTS_USED = (208, "<Q")
H_CODES_USED = (216, "<Q")
H_THREADS_USED = (224, "<Q")
H_HEAD = (256, "<Q")  # events written so far; alone in its cache line
H_NOTE = (512, "<512s")
H_FOLLOW = (1024, "<512s")
H_IGNORE = (1536, "<512s")
H_UNSEEN = (2048, "<512s")  # of the names that are followed, those that nothing imported goes by
H_OFFERED = (2560, "<512s")  # names that do match, where one of those does not

TRACING, STOPPED, SWITCHED_OFF, WAITING = 1, 2, 3, 4
EXTENSION, PYTHON = 1, 2
MONITORING, PROFILE = 1, 2

THREADS = 1024
THREAD = struct.Struct(
    "<QQQQ32s"
)  # tid, serial of its first event, serial of its last event + 1, zero, name
CODE = struct.Struct("<IIII")  # ids of the texts for file, qualified name and module; first line
TEXT_HEAD = struct.Struct("<I")
TEXT_UNIT = 8  # an id is an offset in units of this
EVENT = struct.Struct("<QIHBB")  # monotonic ns, code, thread, kind, lap
EVENT_BYTES = 16

CALL, RETURN, EXCEPTION, OPEN, BEGIN = 1, 2, 3, 4, 5
NO_CODE = 0  # the code of what found its table full


def regions(file_bytes: int) -> dict[str, tuple[int, int, int]]:
    """Where each region begins, how many entries it has and how long one is, for a file of this
    size.
    """
    codes = HEADER_BYTES + THREADS * THREAD.size
    code_count = file_bytes // 32 // CODE.size
    texts = codes + code_count * CODE.size
    text_bytes = file_bytes // 16
    ring = (texts + text_bytes + 63) & ~63
    return {
        "threads": (HEADER_BYTES, THREADS, THREAD.size),
        "codes": (codes, code_count, CODE.size),
        "texts": (texts, text_bytes, 1),
        "ring": (ring, (file_bytes - ring) // EVENT_BYTES, EVENT_BYTES),
    }
