"""Hangs of other people's frameworks and of torch's own layers, real ones: `dump --local` names who hangs them.

Those that need more than torch run in `make test-frameworks`, which installs it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.framework_jobs import HangJob, capture, jobs, judge

# Each of torch's own layers, and each way once.
_ALWAYS = {("dtensor_one_asleep", "bare"), ("fsdp2_one_asleep", "run")}


def _cases() -> Iterator[object]:
    for job in jobs():
        for mode in ("bare", "run"):
            marks = [] if (job.name, mode) in _ALWAYS else [pytest.mark.full]
            if mode in job.undecided:
                marks.append(pytest.mark.xfail(reason="not decided today", strict=False))
            yield pytest.param(job, mode == "run", id=f"{job.name}-{mode}", marks=marks)


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("job", "with_run"), _cases())
def test_who_hangs_it_is_named(job: HangJob, with_run: bool) -> None:
    missing = job.missing()
    if missing:
        pytest.skip(missing)
    said = capture(job, with_run)
    verdict = judge(job, said)
    assert verdict.word == "exact", f"{verdict.word}: {said['summary']}"
