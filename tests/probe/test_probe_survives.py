"""What a job may do to the probe, and what the probe must not do to the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.probe_ranks import ROOT, environment, free_port, ranks

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


def alone(env: dict[str, str], *args: str) -> str:
    with ranks("alone.py", 1, env, *args) as started:
        ended = [rank.end() for rank in started]
    for code, _, err in ended:
        assert code == 0, err
        assert "hangdoctor" not in err, err
    return ended[0][1].strip()


def test_installed_late_it_finds_what_the_job_has_imported(tmp_path: Path) -> None:
    env = environment(tmp_path, PYTHONPATH=str(ROOT))
    assert alone(env, "late") == "[('all_reduce', 1), ('all_reduce', 1)] 2"


def test_a_forked_child_has_its_own_box_and_leaves_the_parents(tmp_path: Path) -> None:
    said = alone(environment(tmp_path), "fork", str(free_port())).splitlines()
    assert said == ["child 0 ['init_process_group', 'all_reduce']", "parent set-up 1"]
    assert list(tmp_path.iterdir()) == []


def test_the_first_internal_error_switches_it_off_with_a_note(tmp_path: Path) -> None:
    said = alone(environment(tmp_path), "closed")
    assert said.startswith(
        "[1.0, 1.0] switched_off switched off: AttributeError: "
    ) and said.endswith(" None")


def test_an_exception_of_the_jobs_own_passes_through(tmp_path: Path) -> None:
    assert alone(environment(tmp_path), "foreign") == "on"


def test_more_signatures_and_operations_than_there_is_room_for(tmp_path: Path) -> None:
    env = environment(tmp_path, HANGDOCTOR_BOX_MB="1")
    # The 1 MB box keeps 4096 records; the strings' share for signatures runs out before 3999 shapes
    # do.
    overwritten, count, *rest = alone(env, "overflow").split()
    assert (overwritten, count, rest) == ("False", "4000", ["3999", "[3999]", "float32", "0"])


@pytest.mark.timeout(240)  # two compilers, each with its own limit: that of the rank speaks first
def test_compiled_functions_give_the_same_graphs_and_results(tmp_path: Path) -> None:
    with_probe = alone(environment(tmp_path), "compile")
    without = alone(environment(tmp_path, HANGDOCTOR_DISABLE="1"), "compile")
    assert with_probe == without
    assert with_probe.splitlines()[0] == "[3.0, 3.0, 3.0]"
