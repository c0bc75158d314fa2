"""Errors read as sentences: what failed, then what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.stage import hangdoctor


@pytest.mark.parametrize(
    ("verb", "flags", "said"),
    [
        ("dump", [], "no target was given\n"),
        ("dump", ["--local", "--pbs"], "more than one target was given\n"),
        ("sidecar", ["--job", "j"], "no target was given\n"),
        ("sidecar", ["--local", "--job", "j", "--pbs"], "more than one target was given\n"),
    ],
)
def test_a_target_is_asked_for(verb: str, flags: list[str], said: str, tmp_path: Path) -> None:
    done = hangdoctor(verb, *flags, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, code=2)
    assert said in done.stderr
    assert "Choose one of" in done.stderr
    assert not (tmp_path / ".hangdoctor").exists(), "wrong usage leaves nothing behind"


def test_slurms_own_words_on_an_unknown_job_are_a_sentence(tmp_path: Path) -> None:
    for name in ("scontrol", "sacct"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id' >&2\nexit 1\n")
        program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = hangdoctor("diagnose", "--jobid", "99", cwd=tmp_path, env=env, code=1)
    assert "Slurm knows no job 99: slurm_load_jobs error: Invalid job id\n" in done.stderr
