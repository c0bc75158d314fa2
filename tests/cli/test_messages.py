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
    assert "Slurm knows no job 99\n" in done.stderr


def test_help_of_several_lines_is_printed_as_lines(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("nothing that anyone knows\n")
    done = hangdoctor("diagnose", "one", "two", cwd=tmp_path, code=1)
    assert "\\u{a}" not in done.stderr
    assert all(line.startswith(("hangdoctor: ", "  ")) for line in done.stderr.splitlines())
    assert len(done.stderr.splitlines()) >= 3


def test_what_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    for words in (["report", "nope"], ["trace", "export", "nope"], ["diagnose", "nope"]):
        done = hangdoctor(*words, cwd=tmp_path, code=1)
        assert "nope does not exist\n" in done.stderr, done.stderr


def test_a_controller_that_does_not_answer_is_not_taken_for_an_unknown_job(tmp_path: Path) -> None:
    for name in ("scontrol", "sacct"):
        program = tmp_path / name
        program.write_text(
            "#!/bin/sh\necho 'fatal: Could not establish a configuration source' >&2\nexit 1\n"
        )
        program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = hangdoctor("diagnose", "--jobid", "99", cwd=tmp_path, env=env, code=1)
    assert "knows no job" not in done.stderr
    assert "controller did not answer: fatal: Could not establish" in done.stderr


def test_a_wrong_number_of_seconds_is_called_so(tmp_path: Path) -> None:
    done = hangdoctor("dump", "--local", "--settle", "abc", cwd=tmp_path, code=2)
    assert "'abc' is not a valid number of seconds" in done.stderr
