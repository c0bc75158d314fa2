"""Tools of the job's own by sys.monitoring (Python 3.12 and later) see the same events, traced and not.

Tracing is such a tool itself, with one of the numbers that have no meaning.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.probe.test_startup_pythons import PYTHONS, version
from tests.support.harmless.observe import PLAIN, RUN, TRACED

WITH_MONITORING = [python for python in PYTHONS if version(python) >= (3, 12)]
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not WITH_MONITORING, reason="needs a Python of 3.12 or later"),
]

# Two tools, of which one switches each place off that it has seen once, beside a profile function.
JOB = """
import collections, os, sys
M = sys.monitoring
with open(os.environ["SAID"], "w") as said:
    said.write(str("hangdoctor" in [M.get_tool(n) for n in range(6)]))
print([n for n in range(6) if M.get_tool(n) not in (None, "hangdoctor")])
seen = collections.Counter()

def counter(kind, answer):
    def count(code, *rest):
        if code.co_filename == __file__:
            seen[kind, code.co_name] += 1
        return answer
    return count

E = M.events
for tool, answer in ((M.PROFILER_ID, None), (M.COVERAGE_ID, M.DISABLE)):
    M.use_tool_id(tool, "mine")
    for name in ("PY_START", "PY_RETURN", "LINE", "CALL", "RAISE", "PY_YIELD"):
        once = answer if name not in ("RAISE",) else None
        M.register_callback(tool, getattr(E, name), counter((tool, name), once))
    M.set_events(tool, E.PY_START | E.PY_RETURN | E.LINE | E.CALL | E.RAISE | E.PY_YIELD)

def fails(): raise ValueError
def yields(n):
    for i in range(n): yield i
def work(n):
    for _ in range(n):
        len("x")
        try: fails()
        except ValueError: pass
    return sum(yields(3))

work(5)
sys.setprofile(None)
work(2)
M.restart_events()
work(1)
for tool in (M.PROFILER_ID, M.COVERAGE_ID):
    M.set_events(tool, 0)
    M.free_tool_id(tool)
print(sorted(seen.items()))
"""


@pytest.mark.parametrize("python", WITH_MONITORING, ids=lambda p: "-".join(Path(p).parts[-3::2]))
def test_the_jobs_own_tools_count_the_same(python: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    ended, traced = [], []
    for number, way in enumerate((PLAIN, RUN, TRACED)):
        said = tmp_path / f"said{number}"
        environ = {k: v for k, v in os.environ.items() if not k.startswith("HANGDOCTOR_")} | {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "HANGDOCTOR_DIR": str(tmp_path / f"boxes{number}"),
            "SAID": str(said),
        }
        done = subprocess.run(
            [*way, python, "job.py"],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        ended.append((done.returncode, done.stdout, done.stderr))
        traced.append(said.read_text())
    assert ended[0][0] == 0 and ended[0] == ended[1] == ended[2]
    assert traced == ["False", "False", "True"]
