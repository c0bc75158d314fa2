"""A spike of a real training's loss, from its black box to the operator's command; once."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from hangdoctor.cli.main import program
from hangdoctor.storage.event_rows import EventRow
from hangdoctor.storage.incidents import Incidents
from hangdoctor.train.data import prepare
from tests.support.ports import free_port
from tests.support.sidecar_stage import Job, Start
from tests.support.stage import wait_until
from tests.support.trainer_ranks import SMALL

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

KEY = "spike-job"
# Samples of another script: all of the eight are due after half of a thousand, and again after each.
BLEND = "0.992 {0}/text" + " 0.001 {0}/bad" * 8
ACTIONS = """
[[action]]
kind = "command"
command = ["sh", "-c", "echo \\"$HANGDOCTOR_KIND at $HANGDOCTOR_ITERATION: $1\\" >> {0}", "x", "{{summary}}"]
on = ["event:spike"]

[[action]]
kind = "command"
command = ["touch", "{0}.hang"]
"""


def data_with_a_bad_place(folder: Path) -> str:
    noise = random.Random(0)
    (folder / "bad.txt").write_text(
        "".join(chr(noise.randrange(0x4E00, 0x9FA5)) for _ in range(2000))
    )
    sources = sorted(Path(json.__file__).parent.glob("*.py"))
    for name, inputs in (("text", sources), ("bad", [folder / "bad.txt"])):
        words = ["--input", *map(str, inputs), "--output", str(folder / name), "--workers", "1"]
        assert prepare.main(words) == 0
    return BLEND.format(folder)


def train(folder: Path, start: Start) -> None:
    """One rank that trains until it is ended, with the probe in it."""
    flags = (
        "--train.iterations 1000000 --train.micro_batch 8 --optimizer.warmup_samples 80 --data.path"
    )
    words = ["-m", "hangdoctor.train", *SMALL, *flags.split(), data_with_a_bad_place(folder)]
    start(
        "training",
        *("-m", "hangdoctor", "run", "--", sys.executable, *words, "--log.spikes", "true"),
        RANK="0",
        WORLD_SIZE="1",
        LOCAL_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
        TORCHELASTIC_RUN_ID=KEY,
        HANGDOCTOR_DIR=str(folder / "boxes"),
        OMP_NUM_THREADS="1",
    )


def events(job: Job) -> list[EventRow]:
    return Incidents(job.folder).events() if (job.folder / "incidents").exists() else []


@pytest.mark.full
def test_a_spike_runs_the_operators_command_once_whatever_is_restarted(
    job: Job, start: Start
) -> None:
    acted, settings = job.logs / "acted", job.logs / "hangdoctor.toml"
    settings.write_text(ACTIONS.format(acted))
    collector = job.collector("--config", str(settings))
    train(job.logs, start)
    agent = job.agent("n1", KEY)
    wait_until(lambda: acted.exists() and bool(acted.read_text()), "the command has run", 150)
    first = events(job)[0]
    assert (first.kind, first.rank, first.node) == ("spike", 0, "n1")
    at = first.iteration
    assert at is not None and at % 125 == 63, "on a busy machine the agent may miss the first"
    assert f" {first.text}\n" in (job.logs / "training.log").read_text()
    assert acted.read_text() == f"spike at {at}: {first.text}\n"
    assert first.text.startswith(f"spike at iteration {at}: lm loss ")

    agent.kill()
    agent.wait(20)
    job.agent("n1", KEY)
    wait_until(lambda: len(job.positions()) == 1 and len(events(job)) > 1, "a second one", 150)
    collector.kill()
    collector.wait(20)
    job.collector("--config", str(settings))
    before = len(events(job))
    wait_until(lambda: len(events(job)) > before, "one after the restarts", 150)

    found = events(job)
    texts = [row.text for row in found]
    assert len(set(texts)) == len(texts) and texts[0] == first.text
    assert len(acted.read_text().splitlines()) == 1  # the others fell into its cool-down
    assert found[0].actions == "command: sh exited with code 0"
    # Of one that was kept right before the collector was killed it is not known whether it acted.
    later = {row.actions[:11] for row in found[1:]}
    assert later <= {"no action: ", ""} and "no action: " in later
    assert not (job.logs / "acted.hang").exists()
    log = (job.logs / "collector.log").read_text()
    assert log.count(f"EVENT spike: {first.text}") == 1

    listed = CliRunner().invoke(program, ["incidents", "events", "--folder", str(job.folder)])
    assert listed.exit_code == 0, listed.output
    assert f"spike  {at:<10} 0     n1    {found[0].actions}" in listed.output
    assert first.text in listed.output
