"""Configuration: what is refused, with which arithmetic, and that it happens before any process
group.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hangdoctor.train.config import Config, help_text, load_config
from hangdoctor.train.launch import discover
from hangdoctor.train.options import ConfigError
from hangdoctor.train.validate import Machine, check
from tests.support.trainer_ranks import ROOT


def complaint(*flags: str, world: int = 1, gpu: bool = False) -> str:
    config = load_config(flags)
    with pytest.raises(ConfigError) as error:
        check(config, Machine(world, gpu))
    return str(error.value)


@pytest.mark.parametrize(
    ("flags", "world", "says"),
    [
        ("--parallel.tp 2 --parallel.pp 2", 6, "world size 6 is not tp x pp x dp = 2 x 2 x 1 = 4"),
        ("--parallel.tp 2 --parallel.dp 3", 4, "2 x 1 x 3 = 6"),
        ("--train.global_batch 10 --train.micro_batch 4", 1, "10 % (4 x 1) = 2"),
        (
            "--train.global_batch 8 --train.rampup '3 5 100' --train.micro_batch 2",
            1,
            "3 % (2 x 1) = 1",
        ),
        ("--train.global_batch 16 --train.rampup '4 5 100'", 1, "(16 - 4) % 5 = 2"),
        (
            "--model.heads 3 --model.hidden_size 96 --parallel.tp 2",
            2,
            "--model.heads 3 % --parallel.tp 2 = 1",
        ),
        ("--model.hidden_size 100 --model.heads 3", 1, "100 % --model.heads 3 = 1"),
        ("--model.layers 5 --parallel.pp 4", 4, "(5 + 2 embeddings) % 4 = 3 and 5 % 4 = 1"),
        ("--model.layers 5 --parallel.pp 2 --parallel.partition uniform", 2, "5 % 2 = 1"),
        ("--model.layers 1 --parallel.pp 2", 2, "leaves 1 stages without a layer"),
        ("--parallel.pp 2 --parallel.partition type:nothing", 2, "matches 0 layers for 2 stages"),
        ("--parallel.pp 2 --parallel.partition 'type:('", 2, "no regular expression"),
        (
            "--parallel.tp 2 --parallel.sequence_parallel true --model.seq_length 65",
            2,
            "65 % --parallel.tp 2 = 1",
        ),
        ("--parallel.sequence_parallel true", 1, "--parallel.tp is 1"),
        (
            "--parallel.tp 2 --parallel.sequence_parallel true --parallel.ulysses true",
            2,
            "choose one",
        ),
        ("--train.precision fp16", 1, "needs a GPU"),
        ("--train.precision bf16 --parallel.zero_stage 0", 1, "use zero_stage 1"),
        (
            "--checkpoint.universal true --checkpoint.load x --parallel.zero_stage 0",
            1,
            "use zero_stage 1",
        ),
        ("--optimizer.min_lr 1", 1, "is above --optimizer.lr"),
        ("--data.split 1,1", 1, "three shares"),
        ("--data.split nan,1,1", 1, "three shares"),
        ("--data.split 1,0,0 --evaluate.interval 5", 1, "gives none"),
        ("--checkpoint.interval 5", 1, "needs --checkpoint.dir"),
        ("--fault sleep@0:3:tp", 1, "nothing of the kind with tp = 1"),
        ("--fault sleep@0:101:step", 1, "iterations are 1 to --train.iterations 100"),
        ("--fault stop@0:0", 1, "iterations are 1 to"),
        ("--fault sleep@0:3:evaluate", 1, "0: never"),
        ("--fault sleep@0:3:evaluate --evaluate.interval 2", 1, "every --evaluate.interval 2"),
        ("--fault checkpoint_fifo@0:3", 1, "nothing is saved without --checkpoint.dir"),
        ("--parallel.pp 4 --fault data_stuck@1:3", 4, "rank 1 is in stage 1 of 4"),
        (
            "--parallel.pp 4 --fault sleep@2:3:data",
            4,
            "only the first and the last stage load data",
        ),
        ("--fault sleep@4:3", 1, "rank 4 of a world of 1"),
        ("--fault slep@0:3", 1, "did you mean 'sleep'"),
        ("--fault device_wait@0:3", 1, "needs a GPU"),
        ("--fault missing_send@0:3:tp", 1, "it can at: send"),
        ("--fault sleep", 1, "write KIND@RANK:ITERATION[:WHERE]"),
    ],
)
def test_inconsistent_configurations_are_refused_with_their_arithmetic(flags, world, says) -> None:
    import shlex

    assert says in complaint(*shlex.split(flags), world=world)


def test_fp16_with_stages_needs_zero_1() -> None:
    flags = ("--train.precision", "fp16", "--parallel.pp", "2", "--parallel.zero_stage", "0")
    assert "use zero_stage 1" in complaint(*flags, world=2, gpu=True)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--model.hiden_size", "3"], "did you mean 'model.hidden_size'"),
        (["--model.layers", "0"], "valid range is 1 or more"),
        (["--model.layers", "many"], "takes a whole number, got 'many'"),
        (["--model.position", "sinus"], "learned, rope, alibi"),
        (["--model.recompute", "maybe"], "takes true or false"),
        (["--optimizer.lr", "nan"], "valid range"),
        (["--optimizer.lr", "inf"], "valid range"),
        (["--parallel.timeout_s", "1e15"], "valid range"),
        (["--model.layers"], "needs a value"),
        (["model.layers=3"], "is not a flag"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_words_that_mean_nothing_are_refused(flags, says) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(flags)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "fault",
    [
        "no_rendezvous@1:0",
        "data_stuck@0:3",
        "data_stuck@3:100",
        "stop@2:4:evaluate",
        "sleep@1:3:recv",
    ],
)
def test_faults_that_will_strike_are_let_through(fault) -> None:
    check(
        load_config(["--parallel.pp", "4", "--evaluate.interval", "2", "--fault", fault]),
        Machine(4, False),
    )


def test_all_complaints_come_at_once() -> None:
    lines = complaint(
        "--model.heads", "3", "--train.precision", "fp16", "--optimizer.min_lr", "1"
    ).splitlines()
    assert len(lines) == 3


def test_file_then_command_line(tmp_path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "model: {layers: 6, hidden_size: 1_024}\nkernels: reference\noptimizer: {lr: 1e-4}\n"
    )
    config = load_config(
        ["--config", str(file), "--model.layers=8", "--train.global_batch", "1_000"]
    )
    assert (config.model.layers, config.model.hidden_size, config.run.kernels) == (
        8,
        1024,
        "reference",
    )
    assert (config.optimizer.lr, config.train.global_batch) == (1e-4, 1000)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"- model\n- train\n", "it has no sections"), (b"\xff\xfe", "can't decode")],
)
def test_a_file_that_is_no_configuration_is_refused(content, says, tmp_path) -> None:
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        load_config(["--config", str(tmp_path / "c.yaml")])


def test_a_misspelt_section_of_a_file_is_refused(tmp_path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("modle: {layers: 6}\n")
    with pytest.raises(ConfigError, match="did you mean 'model'"):
        load_config(["--config", str(file)])


def test_the_mlp_follows_the_hidden_size() -> None:
    """A width that had to be set by hand once made a 104B training a 58B one."""
    assert load_config(["--model.hidden_size", "16384"]).ffn_hidden_size == 65536


def test_every_option_has_help_default_and_range() -> None:
    import dataclasses

    text = help_text()
    for name, section in Config().sections().items():
        for field in dataclasses.fields(section):
            flag = f"--{name}.{field.name}" if name else f"--{field.name}"
            line = next(
                li for li in text.splitlines() if li.strip().startswith((f"{flag}:", f"{flag} ["))
            )
            assert "(default " in line
            assert "valid: " in line
            assert field.metadata["help"] in line


def test_the_shipped_configuration_is_consistent() -> None:
    config = load_config(["--config", str(ROOT / "train/configs/cpu_2x2x2.yaml")])
    check(config, Machine(8, False))
    assert (config.parallel.tp, config.parallel.pp, config.parallel.dp) == (2, 2, 2)


def test_a_bad_word_ends_with_code_2_before_torch_is_imported() -> None:
    code = (
        "import sys; from hangdoctor.train.__main__ import main; c = main(['--model.layer', '3']);"
        "assert not {'torch', 'deepspeed'} & set(sys.modules), 'imported'; sys.exit(c)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2
    assert "did you mean 'model.layers'" in done.stderr


@pytest.mark.parametrize(
    ("environ", "rank", "size", "local"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "MASTER_ADDR": "h"}, 3, 8, 3),
        (
            {
                "SLURM_PROCID": "5",
                "SLURM_NTASKS": "8",
                "SLURM_LOCALID": "1",
                "SLURM_STEP_NODELIST": "n[3-4]",
            },
            5,
            8,
            1,
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            },
            1,
            2,
            1,
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, 1, 2, 1),
        ({"PALS_RANKID": "2", "PALS_NRANKS": "4", "PALS_LOCAL_RANKID": "2"}, 2, 4, 2),
        ({}, 0, 1, 0),
    ],
)
def test_every_launcher_is_understood(environ, rank, size, local) -> None:
    found = discover(environ)
    assert (found.rank, found.world_size, found.local_rank) == (rank, size, local)


def test_a_gpu_of_its_own_is_number_0_for_deepspeed_too() -> None:
    """srun with one GPU bound to each task: every rank sees one device, and DeepSpeed takes
    LOCAL_RANK for its number.
    """
    found = discover(
        {
            "OMPI_COMM_WORLD_RANK": "3",
            "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_COMM_WORLD_LOCAL_RANK": "3",
        }
    )
    for devices, local in ((1, "0"), (4, "3"), (0, "3")):
        environ = {"OMPI_COMM_WORLD_LOCAL_RANK": "3"}
        found.export(devices, environ)
        assert environ["LOCAL_RANK"] == environ["OMPI_COMM_WORLD_LOCAL_RANK"] == local


def test_meeting_place() -> None:
    slurm = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77"}
    assert discover({**slurm, "SLURM_STEP_NODELIST": "r7i6n[3-4],x"}).address == "r7i6n3"
    assert discover({**slurm, "SLURM_STEP_NODELIST": "x"}).port == 29577
    with pytest.raises(ConfigError, match="MASTER_ADDR"):
        discover(slurm)


def test_the_vocabulary_is_the_tokenizers_or_larger() -> None:
    pytest.importorskip("torch")
    from hangdoctor.train.session import vocabulary

    assert [vocabulary(0, 257), vocabulary(50304, 257)] == [257, 50304]
    with pytest.raises(ConfigError, match=r"--model.vocab_size 200 is below the 257 tokens"):
        vocabulary(200, 257)


def test_the_configuration_for_a_gpu_computes_a_real_vocabulary_once() -> None:
    config = load_config(["--config", str(ROOT / "train/configs/gpu_1b3.yaml")])
    assert config.model.vocab_size == 50304
    assert not (config.model.recompute or config.log.timers)


@pytest.mark.parametrize(
    ("flags", "chunked"),
    [
        ("--model.loss chunked", True),
        ("--train.precision bf16 --train.micro_batch 4", False),
        ("--train.precision bf16 --train.micro_batch 8", True),
        ("--train.precision bf16 --train.micro_batch 8 --model.loss whole", False),
        ("--train.precision fp32 --train.micro_batch 4", True),
    ],
)
def test_large_logits_are_made_in_pieces(flags, chunked) -> None:
    pytest.importorskip("torch")
    from hangdoctor.train.kernels.registry import choose
    from hangdoctor.train.model.context import ModelContext, torch
    from hangdoctor.train.random_state import RandomState
    from hangdoctor.train.topology import TensorGroup

    cpu = torch.device("cpu")
    config = load_config(["--model.seq_length", "2048", *flags.split()])
    random = RandomState(1, 0, 0, 0, cpu)
    kernels = choose("reference", cpu)
    context = ModelContext(config, TensorGroup(), kernels, random, vocab=(50304, 50304))
    assert context.chunks_loss is chunked


def test_options_without_a_section_may_be_written_with_that_of_their_class(tmp_path) -> None:
    assert load_config(["--run.bind", "auto"]).run.bind == "auto"
    (tmp_path / "c.yaml").write_text("run: {bind: auto}\ncompile: aot_eager\n")
    run = load_config(["--config", str(tmp_path / "c.yaml")]).run
    assert (run.bind, run.compile) == ("auto", "aot_eager")
    with pytest.raises(ConfigError, match=r"no option 'run\.bound'"):
        load_config(["--run.bound", "auto"])
    with pytest.raises(ConfigError, match=r"no option 'run\.train\.bind'"):
        load_config(["--run.train.bind", "auto"])
