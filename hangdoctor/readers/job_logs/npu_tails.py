"""Whose an error on a Huawei NPU is, and why: torch_npu prints the process, its device and its rank in the line
below the error, and the reason in the next.

RuntimeError: npuSynchronizeDevice:NPUStream.cpp:390 NPU function error: aclrtSynchronizeDevice, error code is 507018
[ERROR] 2024-05-06-07:08:09 (PID:2969, Device:3, RankID:-1) ERR00100 PTA call acl api failed
[Error]: The aicpu execution is abnormal.
"""

from __future__ import annotations

from ...model.log_facts import AnyFact, KnownError, PythonError
from ...text.late import late
from .prefix import Said, Speaker

KERNEL = "npu_kernel"  # a rule
OWNER = late(r"\(PID:(\d{1,9}), Device:(-?\d{1,5}), RankID:(-?\d{1,7})\)")
_REASON = late(r"^\s{0,8}\[Error\]: (\S.{3,119}?)\.?\s{0,8}$")
_NEAR = 4  # lines from the error to those on its process and its reason


class NpuTails:
    """Of one file. A line whose prefix names another process is not about the error above it."""

    def __init__(self, of_file: Said) -> None:
        self._nobody = of_file.speaker()
        self._errors: dict[Speaker, PythonError | KnownError] = {}
        self._last: PythonError | KnownError | None = None

    def keep(self, error: AnyFact, said: Said) -> None:
        """An error that was kept, and who said it."""
        if isinstance(error, PythonError | KnownError):
            self._errors[said.speaker()] = self._last = error

    def feed(self, said: Said, line: int) -> None:
        """Take a line below an error."""
        who, text = said.speaker(), said.text
        error = self._last if who == self._nobody else self._errors.get(who)
        if error is None or line <= error.line:
            return
        if line - error.line > _NEAR:
            self._errors.pop(who, None)
            return
        owner = OWNER.search(text) if "RankID:" in text else None
        if owner is not None:
            _name(error, *map(int, owner.groups()))
        reason = _REASON.match(text)
        if reason is not None and error.rule == KERNEL:
            error.values = {**error.values, "what": reason[1]}


def _name(error: PythonError | KnownError, pid: int, device: int, rank: int) -> None:
    """What the line tells, where the error has no name of its own."""
    if error.pid not in (0, pid):
        return
    error.pid = pid
    if error.rank < 0:
        error.rank = max(rank, -1)
    if device >= 0:
        error.values = {**error.values, "device": str(device)}
