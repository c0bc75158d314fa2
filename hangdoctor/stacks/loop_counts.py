"""The variables whose whole numbers are kept with a frame: they count the rounds of loops, and say peers,
stages and tags. Strings and objects under such names are never kept: they may be secrets.
"""

from __future__ import annotations

COUNTERS = frozenset(
    "step steps_done global_step iteration iter it epoch batch_idx batch_id batch i j k n micro_batch micro_batch_id mb "
    "microbatch idx src dst group_src group_dst src_rank dst_rank dest stage_id tag".split()
)

# The rank that is to set the key which the line waits for (`readers/asked_keys`).
SETTER = "set by rank"
# Before the name of a variable that names the root of a collective (`root_names.py`).
ROOT_OF = "root:"
# Of the line that waits for the handle of one isend or irecv: the peer that it was begun with.
PEER = "peer of its handle"
