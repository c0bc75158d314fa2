"""Hangs of other people's frameworks and of torch's own layers, real ones: `dump --local` names who hangs them.

Those that need more than torch run in `make test-frameworks`, which installs it.
"""

from __future__ import annotations

import pytest

from tests.support.framework_jobs import HangJob, capture, jobs, judge

_ALWAYS = ("dtensor_one_asleep", "fsdp2_one_asleep")


def _case(job: HangJob) -> object:
    marks = [] if job.name in _ALWAYS else [pytest.mark.full]
    return pytest.param(job, id=job.name, marks=marks)


@pytest.mark.torch
@pytest.mark.timeout(420)
@pytest.mark.parametrize("with_run", [False, True], ids=["bare", "run"])
@pytest.mark.parametrize("job", [_case(job) for job in jobs()])
def test_who_hangs_it_is_named(job: HangJob, with_run: bool) -> None:
    missing = job.missing()
    if missing:
        pytest.skip(missing)
    said = capture(job, with_run)
    verdict = judge(job, said)
    shown = f"{verdict.word}: {said['summary']}"
    assert not verdict.innocent, shown
    if with_run or not job.needs_run:
        assert verdict.word == "exact", shown
