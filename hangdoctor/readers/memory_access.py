"""Whether this process may read the memory of another: what py-spy needs, and does not always say."""

from __future__ import annotations

import ctypes
import errno

_LIBC = ctypes.CDLL(None, use_errno=True)


class _Piece(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


def is_refused(pid: int) -> bool:
    """Whether the kernel refuses it: process_vm_readv(2), which checks that before the address."""
    buffer = ctypes.create_string_buffer(1)
    here, there = _Piece(ctypes.addressof(buffer), 1), _Piece(1, 1)
    done = _LIBC.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return int(done) < 0 and ctypes.get_errno() == errno.EPERM
