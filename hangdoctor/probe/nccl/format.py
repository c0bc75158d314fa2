"""Layout of the file that the plugin writes (docs/blackbox.md, "NCCL's own events"); `_nccl.c` has
the same in C.
"""

from __future__ import annotations

import struct

from ..format import NCCL_MAGIC as MAGIC
from ..format import NCCL_SUFFIX as SUFFIX

__all__ = ["MAGIC", "SUFFIX"]
VERSION = 1
HEADER_BYTES = 4096

# A place in the header: where, and how it is packed.
H_VERSION = (8, "<I")
H_FILE_BYTES = (16, "<Q")
H_PID = (24, "<I")
H_INTERFACE = (28, "<I")
H_STARTED_TICKS = (32, "<Q")
H_BOOT_ID = (40, "16s")
H_COMMS = (64, "<2I")  # offset, entries
H_RING = (80, "<2I")
H_NEXT = (88, "<Q")
H_NO_ROOM = (112, "<Q")

# hash, ranks, nodes, rank, state, generation, collectives, made (wall), name
COMM = struct.Struct("<QIIiIIIQ24s")
LIVE, ENDED = 1, 2

# serial, number, NCCL's number; wall: begun, launched, started, ended, moved; elements, bytes;
# communicator, its generation; peer or root; kind, operation, data type, channels; flags;
# kernel channels started and ended; transfers started and ended; steps wanted, started, ended; check
RECORD = struct.Struct("<3Q5Q2Q2Hi4BI2I2I3II")
COLLECTIVE, SEND, RECEIVE, COPY_ENGINE = 1, 2, 3, 4
CAPTURED, CAPTURE_UNKNOWN, SEES_KERNELS, SEEN_BY_NETWORK = 1, 2, 4, 8
# The bytes of a record that do not change once it is written: the first ones, and from here to there.
FIXED_BYTES, FIXED_FROM, FIXED_TO = 32, 64, 92

OPS = (
    "broadcast",
    "reduce",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_reduce",
    "batch_isend_irecv",
    "send",
    "recv",
    "all_to_all_single",
    "scatter",
    "gather",
    "all_gather",
)
TYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
)
