"""What is followed where no name is given: the script's own code, and names that match are offered
for one that does not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASK = """
import json, sys
from hangdoctor.probe.calls.choice import Choice
from hangdoctor.probe.calls.own_code import OwnCode, offered
import helper, mine.part, click
def answers():
    own = OwnCode()
    names = ("train", "mine", "mine.part", "helper", "json", "click", "click.core", "hangdoctor.probe", "work.main")
    return {
        "follows": [n for n in names if Choice((), (), own).follows(n)],
        "names": own.names(),
        "offered": offered(own, ["mine.prat", "halper"]),
    }
"""


def project(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "__init__.py").write_text("")
    (folder / "mine" / "part.py").write_text("")
    (folder / "helper.py").write_text("")
    (folder / "train.py").write_text(f"{ASK}\nprint(json.dumps(answers()))\n")
    (folder / "work").mkdir()
    (folder / "work" / "__init__.py").write_text("")
    (folder / "work" / "main.py").write_text((folder / "train.py").read_text())


@pytest.mark.parametrize(
    ("words", "program"), [(["train.py"], "train"), (["-m", "work.main"], "work")]
)
def test_the_scripts_own_package_and_its_neighbours(
    tmp_path: Path, words: list[str], program: str
) -> None:
    project(tmp_path)
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    own = "train" if program == "train" else "work.main"
    assert set(said["follows"]) == {own, "mine", "mine.part", "helper"}
    assert said["names"][0] == program and {"mine", "helper"} <= set(said["names"])
    assert "click" not in said["names"]
    assert {"mine.part", "helper", "click"} <= set(said["offered"]) and "json" not in said[
        "offered"
    ]


SPAWNED = """
import json, multiprocessing
from hangdoctor.probe.calls.choice import module_of
def work():
    import inspect
    print(json.dumps(answers() | {"called": module_of(inspect.currentframe(), __file__)}))
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    raise SystemExit(child.exitcode)
"""


def test_what_multiprocessing_starts_goes_by_the_name_of_the_script(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "train.py").write_text(ASK + SPAWNED)
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["called"] == "train"
    assert said["names"][0] == "train" and "__mp_main__" not in said["names"] + said["offered"]


def test_names_spelt_alike_are_offered_first() -> None:
    from hangdoctor.cli.trace.control import outcome_lines
    from hangdoctor.cli.trace.target import TracedRank
    from hangdoctor.probe.calls.request import Request

    row = TracedRank(0, 1, "live", "tracing", obeyed=True, follow="modle", unseen="modle")
    row.offered = "train,data,click,torch,model,model_zoo"
    lines = list(outcome_lines(Request(1, True, ("modle",)), [row]))
    [offer] = [line for line in lines if line.startswith("names that would match: ")]
    assert offer.removeprefix("names that would match: ").split(", ")[:2] == ["model", "train"] or (
        offer.startswith("names that would match: model, model_zoo, train")
    )
    default = list(
        outcome_lines(
            Request(1, True),
            [
                TracedRank(
                    rank=0,
                    pid=1,
                    process="live",
                    state="tracing",
                    obeyed=True,
                    events=0,
                    follow="train,data",
                )
            ],
        )
    )
    assert "follows the script's own code: train,data (others: --follow NAMES)" in default
