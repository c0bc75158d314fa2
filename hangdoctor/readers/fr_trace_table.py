"""The tables that torch's analyzer of recorder dumps prints, also behind TorchComms' debug server.

--- Collectives ---
  id  group_id    pass_check  collective_seq_id  collective_name  collective_state  missing_ranks
   4  main_comm   True        4                  nccl:all_reduce  scheduled         {1}
--- NCCL Calls ---
  id  collective_id  group_id   global_rank  collective_type
   8                 main_comm            0  nccl:all_reduce
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..text.late import late

_ROW = late(
    r"^\s*\d{1,9}\s+(?P<group>\S{1,120})\s+(?:True|False)\s+(?P<seq>\d{1,15})\s+"
    r"(?P<op>[a-z]{2,8}:\w{1,60})\s+(?P<state>[a-z]{4,20})\s+(?P<missing>\{\d[\d, ]{0,100000}\})"
)
_CALL = late(
    r"^\s*\d{1,9}\s+(?:\d{1,9}\s+)?(?P<group>[A-Za-z_]\S{0,119}|\d{1,9}:\S{1,119})\s+"
    r"(?P<rank>\d{1,7})\s+[a-z]{2,8}:\w{1,60}\s*$"
)
_HEADS = ("collective_seq_id", "missing_ranks")


def is_table(text: str) -> bool:
    """Whether a text has the table of collectives."""
    return all(head in text for head in _HEADS)


def as_blocks(text: str) -> Iterator[str]:
    """The rows that miss ranks, as the lines that the analyzer prints of each of them elsewhere."""
    calls: dict[str, set[int]] = {}
    rows = []
    for line in text.splitlines():
        call, row = _CALL.match(line), _ROW.match(line)
        if row is not None:
            rows.append(row)
        elif call is not None:
            calls.setdefault(call["group"], set()).add(int(call["rank"]))
    for row in rows:
        missing = {int(n) for n in re.findall(r"\d{1,7}", row["missing"])}
        members = sorted(calls.get(row["group"], set()) | missing)
        yield f"Not all ranks joining collective, sequence number: {row['seq']}"
        yield f"group info: {row['group']}"
        yield f"collective: {row['op']}"
        yield f"missing ranks: {row['missing']}"
        yield f"collective state: {row['state']}"
        yield f"expected ranks: {{{', '.join(str(rank) for rank in members)}}}"
