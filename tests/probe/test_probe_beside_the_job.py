"""Files beside the job's script and hooks of its own: the probe runs none of the one and trips over
none of the other.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests.support.probe_ranks import environment, ranks

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]

TRACE = json.dumps({"serial": 1, "on": True, "follow": ["train"]})
TRAIN = """
import json, os, sys
import torch
import torch.distributed as dist

os.environ["HANGDOCTOR_TRACE"] = os.environ["TRACE_LATER"]
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.barrier()
ours = sys.modules.get("hangdoctor.probe.process_probe")
on = ours is not None and ours.probe.recorder is not None
traced = "hangdoctor.probe.calls.tracer" in sys.modules
dist.destroy_process_group()
print(json.dumps({"on": on, "traced": traced, "modules": sorted(sys.modules)}))
"""
SANDBOX = """
import json, os, sys
import torch
import torch.distributed as dist

class Forbidden({base}):
    pass

def sandbox(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT:
        raise Forbidden(f"no new files: {{args[0]}}")

sys.addaudithook(sandbox)
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
from hangdoctor.probe.process_probe import probe
dist.destroy_process_group()
print(json.dumps([x.item(), probe.recorder is not None]))
"""


def told(script: Path, env: dict[str, str]) -> object:
    with ranks(str(script), 1, env) as started:
        code, out, err = started[0].end()
    assert code == 0 and "Traceback" not in err, (code, out, err)
    return json.loads(out)


def test_no_module_of_the_job_is_run_that_the_job_does_not_import(tmp_path: Path) -> None:
    script = tmp_path / "job" / "train.py"
    script.parent.mkdir()
    script.write_text(TRAIN)
    env = environment(tmp_path / "boxes", TRACE_LATER=TRACE)
    plain = told(script, {**env, "HANGDOCTOR_DISABLE": "1"})
    assert isinstance(plain, dict) and not plain["on"]
    not_loaded = sys.stdlib_module_names - set(plain["modules"])
    beside = {name for name in not_loaded if importlib.util.find_spec(name) is not None}
    assert beside, "torch loads them all: nothing is tried"
    for name in beside:
        (script.parent / f"{name}.py").write_text("raise SystemExit(f'{__name__} was run')\n")
    watched = told(script, env)
    assert isinstance(watched, dict)
    assert (watched["on"], watched["traced"]) == (True, True)


@pytest.mark.parametrize("base", ["RuntimeError", "PermissionError"])
def test_a_sandbox_of_the_job_that_forbids_the_box_costs_the_box_alone(
    tmp_path: Path, base: str
) -> None:
    script = tmp_path / "sandboxed.py"
    script.write_text(SANDBOX.format(base=base))
    assert told(script, environment(tmp_path / "boxes")) == [1.0, False]
