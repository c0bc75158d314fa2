"""The black box's layout in bytes; `docs/blackbox.md` says the same in words. Little-endian
throughout.

Writer (`hangdoctor.probe.box`) and reader (`hangdoctor.readers.blackbox`) share nothing but this
file.
"""

from __future__ import annotations

import struct

MAGIC = b"HDBLKBOX"
VERSION = 2
READABLE = (1, 2)  # version 1: 512 groups, never recycled, and no uid in the records
SUFFIX = ".blackbox"

DEFAULT_BYTES = 4 << 20
HEADER_BYTES = 4096

# Header fields: (offset, struct format).
H_MAGIC = (0, "<8s")
H_VERSION = (8, "<I")
H_HEADER_BYTES = (12, "<I")
H_FILE_BYTES = (16, "<Q")
H_PID = (24, "<I")
H_RANK = (28, "<i")
H_WORLD = (32, "<i")
H_LOCAL_RANK = (36, "<i")
H_STARTED_TICKS = (40, "<Q")
H_BOOT_ID = (48, "<16s")
H_CREATED_WALL = (64, "<Q")
H_CREATED_MONO = (72, "<Q")
H_BEAT_WALL = (80, "<Q")
H_BEAT_MONO = (88, "<Q")
H_STATE = (96, "<I")
H_FLAGS = (100, "<I")
H_ITERATION = (104, "<q")
H_MICRO_BATCH = (112, "<q")
H_PHASE = (120, "<I")
# Signs of life that need no interpreter, where the extension was built: tenths of a second since the box was made, and one;
# 0 where there are none. The same, since when the interpreter's lock is held by one thread: 0 where it passes on.
H_PULSE = (124, "<I")
H_LOCK_HELD = (2060, "<I")
LOCK_UNKNOWN = 0xFFFFFFFF
H_PHASE_SINCE = (128, "<Q")
H_ITERATION_SINCE = (136, "<Q")
# Regions: (offset of the triple) -> u64 where it begins, u32 how many entries, u32 bytes of one entry.
H_THREADS = (144, "<QII")
H_GROUPS = (160, "<QII")
H_STRINGS = (176, "<QII")
H_RING = (192, "<QII")
H_EVENTS = (208, "<QII")  # older writers: a region of another width, never written, or nothing
H_STRINGS_USED = (224, "<Q")
H_GROUPS_USED = (232, "<Q")
H_EVENTS_USED = (240, "<Q")  # events of the training so far, also those written over
H_TIMEOUT_MS = (248, "<Q")  # the shortest of the process groups, 0 where it is not known
# Texts: UTF-8, filled up with NUL.
H_HOST = (256, "<64s")
H_JOB = (320, "<128s")
H_LAYOUT = (448, "<64s")
H_NOTE = (512, "<512s")
H_TORCH = (1024, "<32s")
H_BACKEND = (1056, "<64s")
H_STEPS = (1120, "<Q")  # of the job's optimizers
H_STEP_SINCE = (1128, "<Q")  # wall: when the last of them was done
# Where the training's thread was when nothing had got on for some heartbeats. The guard is odd while it is
# written, and 0 where it got on.
H_PLACE_GUARD = (1136, "<Q")
H_PLACE_SINCE = (1144, "<Q")  # wall: since when it was there
H_PLACE_SEEN = (1152, "<Q")  # wall: when it was last there
H_PLACE_CPU = (1160, "<Q")  # ns of the CPU that it used between the two
# Lines of `name TAB file TAB line`, innermost first; of a rank of MPI then `TAB TAB name=value name=value`: whole
# numbers of the innermost frame, which older readers skip; of another thread than the main one, its number alike.
H_PLACE = (1168, "<880s")
PLACE_THREAD = b"(thread)"
# How the process ended, as far as it could see it itself; zero in boxes of older probes.
H_END_AT = (2048, "<Q")  # wall
H_END_KIND = (2056, "<I")
H_END_TEXT = (
    2064,
    "<2000s",
)  # lines: type, message, then `name TAB file TAB line`, innermost first; since 0.2 also those of
# the first exception of its chain: `TAB first TAB type TAB message`, and places that end in `TAB first`
H_LOCK_HOLDER = (4064, "<Q")  # pid of who holds the file lock that the main thread waits for, or 0
H_GOT_ON = (
    4072,
    "<Q",
)  # wall: the heartbeat that last saw progress, that of C++ too; 0 in older boxes
# Of the time since then, under the guard of the place.
H_IDLE_CPU = (4080, "<Q")  # ns of the CPU that the main thread used since then
H_IDLE_BEATS = (4088, "<H")  # heartbeats since then
H_RUNNABLE_BEATS = (4090, "<H")  # those at which the main thread ran, or waited for a CPU alone
H_LAST_STATE = (4092, "<B")  # its state at the last of them, as /proc has it: a letter
H_STEADY = (4093, "<B")  # which frame (1 the innermost) is of a function that it never left, 0 none
# Heartbeats of the longest time without progress that ended; of a rank of MPI alone.
H_LONGEST_IDLE = (4094, "<H")

BY_EXCEPTION, WITHOUT_EXCEPTION = 1, 2
ENDS_SUFFIX = ".ends"  # beside the boxes: how processes ended, as `hangdoctor run` saw it
# Beside a box while its rank is idle: the magic, how many bytes follow, and what torch's recorder holds as JSON.
RECORDS_SUFFIX, RECORDS_MAGIC, BESIDE_LENGTH = ".records", b"HDRECORD", "<Q"
# The same of the stacks of its threads: when, `TAB TAB (at)=ns`; names, `TAB TAB (name)=tid TAB name`; then `TAB TAB (thread)=tid (since)=ns` and
# the frames of each as in the box, a frame followed by its numbers: `TAB TAB name=value name=[length]`.
STACKS_SUFFIX, STACKS_MAGIC = ".stacks", b"HDSTACKS"
NCCL_SUFFIX, NCCL_MAGIC = ".nccl", b"HDNCCLPR"  # beside a box: NCCL's own events (`nccl.format`)
BESIDE = (  # go with the box
    (NCCL_SUFFIX, NCCL_MAGIC),
    (RECORDS_SUFFIX, RECORDS_MAGIC),
    (STACKS_SUFFIX, STACKS_MAGIC),
)

RUNNING, FINISHED, SWITCHED_OFF, CRASHED = 1, 2, 3, 4
JAX, MPI = "jax", "mpi"
UNCOUNTED = (JAX, MPI)  # in H_BACKEND: libraries whose calls are not recorded
MPI4PY = "mpi4py"  # in H_BACKEND: MPI, whose calls are recorded as far as they are made by mpi4py
RUNS_AHEAD = 1  # bit of H_FLAGS: the backend enqueues on a device and returns

THREADS = 64
THREAD = struct.Struct("<QQQQ32s")  # tid, last serial, serial waited for, waiting since, name
GROUPS = 4096
# uid, size, id of members' text, id of name, instance, ended, check: low half of the uid (zero in version 1)
GROUP = struct.Struct("<8sIIIIII")
GROUP_ENDED = 24
GROUP_CHECK = 28
GROUP_BYTES = 64
# Signals that a handler of the program's, in Python, was there for: of each when it came first and last, wall;
# 0 where it never did. Behind the ring; not in boxes of older probes.
SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGXCPU")
SIGNAL = struct.Struct("<QQ")
EVENTS = 16
# serial number from 1, wall ns, iteration, kind, text, check: low half of the serial number, zero
EVENT = struct.Struct("<QQq24s200sII")
EVENT_BYTES = EVENT.size
STRING_UNIT = 8  # an id is an offset in units of this
STRING_HEAD = struct.Struct("<I")

# serial, seq, entered, group, signature, site, thread, root or peer, iteration, flags, low half of the group's uid (zero
# without a group, and in version 1), left, outcome, check
RECORD = struct.Struct("<QQQIIIIiiIIQII")
RECORD_BYTES = 128
RECORD_WORDS = RECORD_BYTES // 8
INLINE_OFFSET = RECORD.size
INLINE_BYTES = 48
UID_WORD = (
    15  # the u64 at byte 120: uid of the group as it lies in the group table, zero without one
)
LEFT_WORD = 7  # the u64 at byte 56
OUTCOME_HALF = 16  # the u32 at byte 64
PEER_HALF = 10  # the i32 at byte 40
FLAGS_HALF = 12  # the u32 at byte 48

NO_GROUP = (
    0xFFFFFFFF  # no operation of a group, or (with a uid) of one that has no entry in the table
)
ASYNC, SEND, RECV, INLINE_SIGNATURE, INLINE_DETAIL = 1, 2, 4, 8, 16
# Numbers of an uneven all_to_all in the text of its record (`probe.splits`).
SPLIT_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
SPLIT_BASE = len(SPLIT_DIGITS)
# Above the flags, the tag of a send or receive and one more; 0 where it is not known, or has no room.
TAG_SHIFT, TAG_LIMIT = 8, 0xFFFFFF
# A record that is not an operation but a mark: its number in `seq`, its text in `signature`, its
# kind in `root or peer`.
MARK = 32
PHASE, ITERATION, MICRO_BATCH = 1, 2, 3
STARTED, FAILED, DROPPED = 1, 3, 4


def regions(file_bytes: int) -> dict[str, tuple[int, int, int]]:
    """Where each region begins, how many entries it has and how long one is, for a file of this
    size.

    Raises:
        ValueError: a file that has no room for a single record behind its tables.
    """
    threads = HEADER_BYTES
    groups = threads + THREADS * THREAD.size
    events = groups + GROUPS * GROUP_BYTES
    strings = events + EVENTS * EVENT_BYTES
    free = file_bytes - strings - len(SIGNALS) * SIGNAL.size
    if free < 4 * RECORD_BYTES:
        raise ValueError(f"{file_bytes} bytes are too few for a black box")
    # About half for the ring, a power of two, so that the slot of a serial number is one mask away; texts take the rest.
    records = 1 << ((free // 2 // RECORD_BYTES).bit_length())
    while records * RECORD_BYTES > free * 3 // 4:
        records //= 2
    string_bytes = (free - records * RECORD_BYTES) // RECORD_BYTES * RECORD_BYTES
    ring = strings + string_bytes
    return {
        "threads": (threads, THREADS, THREAD.size),
        "groups": (groups, GROUPS, GROUP_BYTES),
        "events": (events, EVENTS, EVENT_BYTES),
        "strings": (strings, string_bytes, 1),
        "ring": (ring, records, RECORD_BYTES),
        "signals": (ring + records * RECORD_BYTES, len(SIGNALS), SIGNAL.size),
    }
