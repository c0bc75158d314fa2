"""When a signal came that the program handles in Python: what it enters after a signal of the end is no
part of what it was doing until then.

The handlers stay the program's, and a signal that it does not handle does what it does without us: the
extension writes the time in front of CPython's own handler, which only notes that there is something
to run. Without the extension no times are written.
"""

from __future__ import annotations

import signal
import struct
from _signal import getsignal  # type: ignore[import-not-found]  # `signal`'s own asks the handler

from . import format as fmt
from .record_core import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .box import BoxWriter

_TIMES = struct.Struct(f"<{2 * len(fmt.SIGNALS)}Q")
_OWN_CLOCK = 2 * fmt.SIGNALS.index("SIGALRM")  # set by the program, for what it does then
_NUMBERS = [int(getattr(signal, name)) for name in fmt.SIGNALS]


def show(box: BoxWriter) -> None:
    """From now on in this box."""
    begin = getattr(native, "note_signals", None)
    if begin is not None:
        begin(box.map, box.regions["signals"][0])
        look()


def look() -> None:
    """For handlers that the program has set since the last time."""
    watch = getattr(native, "watch_signal", None)
    if watch is None:
        return
    for index, number in enumerate(_NUMBERS):
        if callable(getsignal(number)):
            watch(index)


def newest(box: BoxWriter) -> int:
    """When the last one came that was sent to the program; 0 for none."""
    times: tuple[int, ...] = _TIMES.unpack_from(box.map, box.regions["signals"][0])
    return max(times[:_OWN_CLOCK] + times[_OWN_CLOCK + 2 :])
