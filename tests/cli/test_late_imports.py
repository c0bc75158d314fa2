"""A command imports what its input needs: thirty commands on thirty small files are mostly thirty starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"
TELLS = """
import sys
from hangdoctor.cli.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
LOADS = """
import pkgutil, sys
import hangdoctor.diagnosis as all_of_it
all_of_it.load_all()
known = pkgutil.walk_packages(all_of_it.__path__, "hangdoctor.diagnosis.")
print(*[module.name for module in known if module.name not in sys.modules])
"""

ENGINE = "hangdoctor.diagnosis.ops.engine"
RECORDED = "hangdoctor.readers.recorded"
LOGS_READ = "hangdoctor.readers.job_logs.scan"
LOGS_JUDGED = "hangdoctor.diagnosis.logs"
RANKS_OF_STACKS = "hangdoctor.readers.pyspy_ranks"


def imported(path: Path) -> set[str]:
    """The modules that `hangdoctor diagnose PATH` has imported at its end."""
    words = (sys.executable, "-c", TELLS, "diagnose", str(path))
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("piece", "needed", "others"),
    [
        ("logs/kill.log", {LOGS_READ, LOGS_JUDGED}, {ENGINE, RECORDED, RANKS_OF_STACKS}),
        ("pyspy/text.out", {RANKS_OF_STACKS}, {ENGINE, RECORDED, LOGS_JUDGED}),
        ("flight_recorder/gloo-pickle", {ENGINE, RECORDED}, {LOGS_READ, LOGS_JUDGED}),
    ],
)
def test_what_other_input_needs_is_not_imported(
    piece: str, needed: set[str], others: set[str]
) -> None:
    modules = imported(DATA / piece)
    assert needed <= modules
    assert not others & modules
    assert not {"torch", "zmq", "jinja2", "psutil"} & modules


def test_a_process_that_waits_for_a_hang_has_all_of_the_diagnosis_before_it() -> None:
    words = (sys.executable, "-c", LOADS)
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    # Asked by `dump` alone, which imports it at its start.
    assert done.stdout.split() == ["hangdoctor.diagnosis.third_sample"]
