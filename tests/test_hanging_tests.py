"""A test that hangs fails alone, wherever it hangs, and the run reports that test and goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HANGS = """
import itertools, subprocess, threading, time
import pytest
pytestmark = pytest.mark.timeout(2)

def test_in_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def test_in_a_child():
    subprocess.run(["sleep", "1000"])

@pytest.fixture
def slow():
    time.sleep(1000)

def test_in_a_fixture(slow):
    pass

def test_in_c_code():
    sum(itertools.repeat(1))

def test_after_them():
    pass
"""
OTHERS = (
    "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_of_another_file(n): pass\n"
)


@pytest.mark.timeout(320)
def test_a_hanging_test_fails_alone(tmp_path: Path) -> None:
    settings = (HERE.parent / "pyproject.toml").read_text()
    kept = re.findall(r'^(timeout|timeout_method) = "?(\w+)"?', settings, re.M)
    assert [name for name, _ in kept] == ["timeout", "timeout_method"]
    lines = [f"{name} = {value}" for name, value in kept]
    (tmp_path / "pytest.ini").write_text("\n".join(["[pytest]", *lines]))
    conftest = (HERE / "conftest.py").read_text()
    quick = re.sub(r"^_MERCY_S = .*", "_MERCY_S = 4.0", conftest, flags=re.M)
    assert quick != conftest
    (tmp_path / "conftest.py").write_text(quick)
    (tmp_path / "test_hangs.py").write_text(HANGS)
    (tmp_path / "test_others.py").write_text(OTHERS)
    words = ("-n", "2", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        try:
            said, _ = run.communicate(timeout=300)
        finally:
            run.kill()
    told = re.findall(r"^(FAILED|ERROR) test_hangs.py::(\w+)", said, re.M)
    assert sorted(told) == [
        ("ERROR", "test_in_a_fixture"),
        ("FAILED", "test_in_a_child"),
        ("FAILED", "test_in_a_lock"),
        ("FAILED", "test_in_c_code"),
    ], said
    assert "3 failed, 21 passed, 1 error" in said and "INTERNALERROR" not in said
