"""Hands a wish for call traces on to the ranks of this node: a file beside their black boxes, which the probe reads.

{"serial": 3, "on": true, "follow": ["train"], "ignore": [], "from_iteration": 10, "ranks": "0-7"}
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from hangdoctor.errors import CollectorError
from hangdoctor.probe.folder import REQUEST
from hangdoctor.transport.keys import write_private
from hangdoctor.transport.messages import Trace


def put(wanted: Trace, folders: Iterable[Path]) -> list[str]:
    """Write the request into every folder that holds a box of these ranks; what could not be written, as lines for the log.

    Where it is written is decided here: a message names no path.
    """
    request = {name: getattr(wanted, name) for name in Trace.__struct_fields__}
    trouble = []
    for folder in folders:
        try:
            write_private(folder / REQUEST, msgspec.json.encode(request))
        except CollectorError as error:
            trouble.append(str(error))
    return trouble
