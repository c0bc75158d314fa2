"""Torn checkpoints, and checkpoints of another training: without a single rank."""

from __future__ import annotations

import json
import shutil
import time
from enum import Enum
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hangdoctor.model.layout import Layout  # noqa: E402
from hangdoctor.train.checkpoint import files  # noqa: E402
from hangdoctor.train.checkpoint.compare import check_same_training  # noqa: E402
from hangdoctor.train.checkpoint.store import Store  # noqa: E402
from hangdoctor.train.checkpoint.writer import Writer, _copied  # noqa: E402
from hangdoctor.train.config import Config, load_config  # noqa: E402
from hangdoctor.train.options import ConfigError  # noqa: E402
from hangdoctor.train.random_state import RandomState  # noqa: E402
from hangdoctor.train.schedule import LearningRate  # noqa: E402
from hangdoctor.train.topology import TensorGroup, Topology  # noqa: E402
from hangdoctor.train.train_state import TrainState  # noqa: E402


def make(folder: Path, iteration: int) -> Path:
    partial = folder / f"global_step{iteration}.partial"
    partial.mkdir(parents=True)
    (partial / "weights.pt").write_bytes(b"x" * 100)
    files.leave_marker(partial, 0, {"weights.pt": 100})
    return files.commit(partial, {"state": {"iteration": iteration}})


def test_a_committed_checkpoint_is_complete(tmp_path) -> None:
    folder = make(tmp_path, 5)
    assert folder.name == "global_step5"
    assert files.inspect(folder).fault == ""
    assert (tmp_path / "latest").read_text() == "global_step5"


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda f: (f / "weights.pt").write_bytes(b"x" * 60), "60 bytes, 100 were written"),
        (lambda f: (f / "weights.pt").unlink(), "-1 bytes"),
        (lambda f: (f / "complete.json").unlink(), "no readable complete.json"),
        (lambda f: (f / "complete.json").write_text("{"), "no readable complete.json"),
    ],
)
def test_a_torn_one_is_reported_and_the_one_before_stays(harm, says, tmp_path) -> None:
    make(tmp_path, 5)
    harm(make(tmp_path, 10))
    newest, older = files.saved_in(tmp_path)
    assert says in newest.fault
    assert (older.iteration, older.fault) == (5, "")


def test_after_going_back_the_abandoned_branch_is_not_taken(tmp_path) -> None:
    """Saved 2, 4 and 6, went back to 2, and saved 3."""
    for iteration in (2, 4, 6, 3):
        make(tmp_path, iteration)
    assert [s.iteration for s in files.candidates(tmp_path)] == [3, 2]
    (tmp_path / "global_step3" / "weights.pt").write_bytes(b"torn")
    assert [s.iteration for s in files.candidates(tmp_path) if not s.fault] == [2]
    make(tmp_path, 7)
    assert [s.iteration for s in files.candidates(tmp_path) if not s.fault] == [7, 2]


def test_what_latest_names_is_taken_though_the_node_that_saved_it_has_a_late_clock(
    tmp_path, monkeypatch
) -> None:
    for iteration, at in ((2, 1000.0), (4, 1600.0), (6, 1100.0)):
        monkeypatch.setattr(files.time, "time", lambda at=at: at)
        make(tmp_path, iteration)
    assert next(s.iteration for s in files.candidates(tmp_path)) == 6


def test_a_latest_whose_folder_is_gone_still_says_how_far_it_was(tmp_path) -> None:
    for iteration in (2, 6, 4):
        make(tmp_path, iteration)
    shutil.rmtree(tmp_path / "global_step4")
    assert [s.iteration for s in files.candidates(tmp_path)] == [2]


@pytest.mark.parametrize("harm", [Path.unlink, lambda p: p.write_text("nonsense")])
def test_without_a_readable_latest_the_newest_is_taken(harm, tmp_path) -> None:
    for iteration in (4, 6):
        make(tmp_path, iteration)
    harm(tmp_path / "latest")
    assert [s.iteration for s in files.candidates(tmp_path)] == [6, 4]


def test_a_save_that_was_cut_off_is_no_checkpoint(tmp_path) -> None:
    make(tmp_path, 5)
    (tmp_path / "global_step10.partial").mkdir()
    (tmp_path / "global_step10.partial" / "weights.pt").write_bytes(b"x")
    assert [s.iteration for s in files.saved_in(tmp_path)] == [5]


def test_prune_keeps_the_newest_complete_ones(tmp_path) -> None:
    for i in (1, 2, 3):
        make(tmp_path, i)
    files.prune(tmp_path, 2)
    assert [s.iteration for s in files.saved_in(tmp_path)] == [3, 2]


def test_prune_leaves_what_a_training_that_went_back_has_left(tmp_path) -> None:
    """From 3, it saves 4 beside the 5 and 6 of before."""
    for i in (5, 6, 4):
        make(tmp_path, i)
    files.prune(tmp_path, 1)
    assert [s.iteration for s in files.saved_in(tmp_path)] == [6, 5, 4]
    assert (tmp_path / "latest").read_text() == "global_step4"


def test_prune_removes_what_a_killed_save_left(tmp_path) -> None:
    make(tmp_path, 1)
    (tmp_path / "global_step2.partial").mkdir()
    files.prune(tmp_path, 0)
    names = ["global_step1", "latest", "latest_checkpointed_iteration.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert (tmp_path / names[2]).read_text() == "1", "as Megatron writes it"


class FakeEngine:
    """Writes one file a rank, as DeepSpeed's does through the writer that the store gives it."""

    def save_checkpoint(self, folder: str, tag: str, save_latest: bool) -> None:
        self.checkpoint_engine.save({"w": torch.ones(4)}, f"{folder}/{tag}/w.pt")


def test_markers_of_a_killed_save_are_not_taken_for_ranks_that_have_written(tmp_path) -> None:
    """Two ranks, killed while rank 0 wrote; rank 1's marker must not complete the next save, which
    rank 1 is slow at.
    """
    partial = tmp_path / "global_step5.partial"
    partial.mkdir()
    files.leave_marker(partial, 1, {})
    config = load_config(["--checkpoint.dir", str(tmp_path), "--checkpoint.asynchronous", "true"])
    topology = Topology(Layout(tp=2), 0, TensorGroup(), torch.device("cpu"))
    store = Store(config, topology, FakeEngine(), RandomState(1, 0, 0, 0, torch.device("cpu")), 257)
    store.save(TrainState(iteration=5), LearningRate(1.0, 0.0, 0, 0, "constant"))
    while not (partial / "rank_00000.done").exists():
        time.sleep(0.01)
    assert not (tmp_path / "global_step5").exists()
    files.leave_marker(partial, 1, {})
    store.wait()
    assert files.inspect(tmp_path / "global_step5").fault == ""


def test_background_writer_copies_before_the_training_goes_on(tmp_path) -> None:
    writer = Writer(0, 1, background=True)
    weights = torch.zeros(1000)
    folder = tmp_path / "global_step1.partial"
    writer.begin(1)
    writer.save({"w": weights, "deep": [{"v": weights}]}, str(folder / "w.pt"))
    weights.fill_(7)  # the next step
    writer.finish(folder, {}, lambda: None)
    writer.wait()
    loaded = torch.load(tmp_path / "global_step1" / "w.pt", weights_only=True)
    assert loaded["w"].abs().max() == 0
    assert loaded["deep"][0]["v"].abs().max() == 0


def test_background_writer_hands_its_error_over(tmp_path) -> None:
    writer = Writer(0, 1, background=True)
    (tmp_path / "file").write_text("")
    writer.begin(1)
    writer.save({}, str(tmp_path / "file" / "below_a_file.pt"))
    with pytest.raises(OSError, match=r"below_a_file|Not a directory|File exists"):
        writer.wait()


def test_loading_runs_no_code(tmp_path) -> None:
    class Evil:
        def __reduce__(self):
            return (print, ("ran",))

    torch.save({"x": Evil()}, tmp_path / "evil.pt")
    pytest.importorskip("deepspeed")
    with pytest.raises(Exception, match=r"(?i)weights.only|unsupported"):
        Writer(0, 1, False).load(str(tmp_path / "evil.pt"))


class Stage(int, Enum):
    """Pickled through getattr by Python 3.11.0 to 3.11.3, as DeepSpeed's enum of ZeRO stages."""

    one = 1


def test_enums_are_written_as_their_values(tmp_path) -> None:
    """A file names no class of an enum and no getattr, so every Python loads what any other wrote."""
    weight = torch.ones(2)
    state = {"stage": Stage.one, "groups": [{"of": (Stage.one, weight)}], "again": weight}
    writer = Writer(0, 1, background=False)
    writer.save(state, str(tmp_path / "optim.pt"))
    found = torch.load(tmp_path / "optim.pt", weights_only=True)
    assert found["stage"] == 1 and type(found["stage"]) is int
    assert found["groups"][0]["of"][0] == 1
    # What shares memory in the training shares it in the file.
    assert found["groups"][0]["of"][1].data_ptr() == found["again"].data_ptr()


def test_converting_runs_no_code(tmp_path) -> None:
    """DeepSpeed's own converter would run what a file pickles."""
    pytest.importorskip("deepspeed")
    from hangdoctor.train.checkpoint import universal

    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return (Path.touch, (ran,))

    source = make(tmp_path, 3)
    (source / "mp_rank_00_model_states.pt").unlink(missing_ok=True)
    torch.save(
        {"universal_checkpoint_info": {"parameter_with_row_parallelism_patterns": ["x"]}},
        source / "mp_rank_00_model_states.pt",
    )
    torch.save({"x": Evil()}, source / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")
    manifest = json.loads((source / files.MANIFEST).read_text())
    manifest["config"] = {"parallel": {"zero_stage": 1}}
    (source / files.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(Exception, match=r"(?i)weights.only|unsupported"):
        universal.convert(source, tmp_path / "universal")
    assert not ran.exists()


def test_copies_keep_their_types() -> None:
    shape = torch.Size([2, 3])
    assert _copied({"s": shape})["s"] is shape


def meta(config: Config) -> dict:
    lr = {"lr": config.optimizer.lr, "min_lr": 0.0}
    layout = {"tp": config.parallel.tp, "pp": config.parallel.pp, "dp": 1}
    return {"config": config.as_dict(), "learning_rate": lr, "layout": layout, "vocabulary": 257}


def refused(then: list[str], now: list[str]) -> str:
    old, new = load_config(then), load_config(now)
    saved = files.Saved(Path("ckpt/global_step5"), 5, json.loads(json.dumps(meta(old))))
    try:
        check_same_training(saved, new, meta(new))
    except ConfigError as error:
        return str(error)
    return ""


def test_the_same_training_is_accepted() -> None:
    assert refused([], []) == ""


@pytest.mark.parametrize(
    ("flag", "old", "new"),
    [
        ("--optimizer.lr", "3e-05", "1e-05"),
        ("--model.hidden_size", "256", "128"),
        ("--model.heads", "8", "4"),
        ("--train.seed", "42", "43"),
        ("--optimizer.beta1", "0.85", "0.9"),
        ("--optimizer.beta2", "0.95", "0.98"),
        ("--optimizer.eps", "1e-08", "1e-06"),
        ("--optimizer.weight_decay", "0.1", "0.2"),
        ("--train.clip_grad", "1.5", "0.5"),
        ("--train.precision", "bf16", "fp32"),
        ("--model.vocab_multiple", "64", "128"),
        ("--parallel.partition", "uniform", "parameters"),
        ("--data.eod_mask_loss", "True", "False"),
        ("--data.reset_attention_mask", "True", "False"),
        ("--model.linear_bias", "True", "False"),
    ],
)
def test_a_difference_is_refused_with_both_values(flag, old, new) -> None:
    message = refused([flag, old], [flag, new])
    assert old in message
    assert new in message


def test_a_checkpoint_without_later_options_was_trained_as_they_are_by_default() -> None:
    config = load_config([])
    then = meta(config)
    for section, name in (
        ("data", "reset_position_ids"),
        ("data", "reset_attention_mask"),
        ("data", "eod_mask_loss"),
        ("model", "linear_bias"),
    ):
        del then["config"][section][name]
    check_same_training(files.Saved(Path("ckpt/global_step5"), 5, then), config, meta(config))


def test_override_takes_the_new_learning_rate_but_no_other_shape() -> None:
    override = ["--checkpoint.override", "true"]
    assert refused(["--optimizer.lr", "3e-5"], ["--optimizer.lr", "1e-5", *override]) == ""
    assert "--model.layers is 8, the checkpoint has 4" in refused(
        [], ["--model.layers", "8", *override]
    )


def test_another_topology_is_sent_to_the_universal_format() -> None:
    message = refused(["--parallel.tp", "2"], ["--parallel.pp", "2"])
    assert "tp 1 x pp 2 x dp 1, the checkpoint tp 2 x pp 1 x dp 1" in message
    assert "hangdoctor.train.checkpoint.universal" in message
