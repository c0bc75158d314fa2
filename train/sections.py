"""The options of a training, section by section: default, unit, range and help of each."""

from __future__ import annotations

from dataclasses import dataclass

from .options import option


@dataclass
class ParallelConfig:
    """How the work is split over processes (world size = tp x pp x dp)"""

    tp: int = option(1, "tensor parallel size: ranks that share each layer", "ranks", 1)
    pp: int = option(1, "pipeline parallel size: stages", "ranks", 1)
    dp: int = option(0, "data parallel size; 0 derives it from the world size", "ranks", 0)
    sequence_parallel: bool = option(
        False, "split the sequence over the tp ranks outside of attention and MLP"
    )
    ulysses: bool = option(
        False, "the tp ranks split the sequence, and in attention the heads; weights stay whole"
    )
    zero_stage: int = option(1, "ZeRO stage: 1 shards the optimizer over dp", "", choices=(0, 1))
    partition: str = option(
        "type:transformer|embedding",
        "how layers go to stages: uniform, parameters or type:REGEX over class names",
    )
    backend: str = option(
        "auto",
        "torch.distributed backend; auto is nccl with GPUs, else gloo",
        choices=("auto", "gloo", "nccl"),
    )
    timeout_s: float = option(
        1800.0, "time limit of every process group, set on each of them", "seconds", 1, high=1e9
    )


@dataclass
class ModelConfig:
    """The GPT"""

    layers: int = option(4, "transformer layers", "", 1)
    hidden_size: int = option(128, "width of the residual stream", "", 1)
    heads: int = option(4, "attention heads", "", 1)
    ffn_hidden_size: int = option(0, "width of the MLP; 0 is 4 x hidden_size", "", 0)
    seq_length: int = option(128, "tokens a sample", "tokens", 1)
    vocab_size: int = option(
        0, "tokens of the vocabulary, at least the tokenizer's; 0: as many as that has", "", 0
    )
    vocab_multiple: int = option(128, "the vocabulary is padded to a multiple of this x tp", "", 1)
    position: str = option("learned", "position information", choices=("learned", "rope", "alibi"))
    rotary_base: float = option(10000.0, "base of the rotary frequencies", "", 1)
    normalization: str = option(
        "layernorm", "normalization of the blocks", choices=("layernorm", "rmsnorm")
    )
    norm_eps: float = option(1e-5, "epsilon of the normalization", "", 0, high=1)
    activation: str = option(
        "gelu_tanh",
        "gelu_tanh: GELU by its tanh formula; gelu: exact; swiglu: SiLU of a gate, a third matrix",
        choices=("gelu_tanh", "gelu", "swiglu"),
    )
    linear_bias: bool = option(True, "biases in attention and MLP")
    parallel_block: bool = option(False, "attention and MLP side by side on one normalized input")
    embedding_norm: bool = option(False, "LayerNorm after the embedding")
    tie_embeddings: bool = option(True, "the output projection is the word embedding")
    weights: str = option(
        "",
        "folder of a Hugging Face model, GPT-2 or Llama, whose weights a new training starts from",
    )
    init_std: float = option(0.02, "standard deviation of the weights at the start", "", 0, high=10)
    scaled_init: bool = option(True, "divide the std of the output projections by sqrt(2 x layers)")
    hidden_dropout: float = option(
        0.0, "dropout on the residual branches and the embedding", "probability", 0, high=1
    )
    attention_dropout: float = option(
        0.0, "dropout on the attention probabilities", "probability", 0, high=1
    )
    attention: str = option(
        "auto",
        "sdpa: torch's fused attention; core: step by step, scaled before the product, a matrix of scores",
        choices=("auto", "sdpa", "core"),
    )
    loss: str = option(
        "auto",
        "whole: all logits of a micro-batch; chunked: some tokens at a time; auto: chunked above 1 GiB",
        choices=("auto", "whole", "chunked"),
    )
    recompute: bool = option(
        False, "activation checkpointing: recompute each transformer layer in the backward pass"
    )
    recompute_attention: bool = option(
        False, "recompute scores and probabilities of attention alone in the backward pass"
    )
    fp32_residual: bool = option(False, "keep the residual stream in fp32 under bf16 and fp16")


@dataclass
class TrainConfig:
    """Batches, precision, length"""

    micro_batch: int = option(1, "samples a micro-batch, per dp rank", "samples", 1)
    global_batch: int = option(8, "samples an iteration, over all dp ranks", "samples", 1)
    rampup: str = option(
        "", "batch-size ramp-up 'START INCREMENT SAMPLES'; empty for none", "samples"
    )
    curriculum: str = option(
        "",
        "sequences grow over STEPS iterations: 'fixed_linear START FULL STEPS MULTIPLE', as DeepSpeed's; empty for none",
        "tokens",
    )
    iterations: int = option(
        100, "iterations to train, counted from the start of the first run", "", 1
    )
    skip: str = option(
        "",
        "iterations whose samples are consumed without a step, such as '6990-7010,7200'; empty: none",
        "iterations",
    )
    exit_after: int = option(
        0, "leave after this many iterations of this run, saving; 0 never", "", 0
    )
    exit_minutes: float = option(
        0.0, "leave after this many minutes of this run, saving; 0 never", "minutes", 0, high=1e6
    )
    kill_switch: str = option(
        "", "file whose appearance ends the training, saving; none starts while it is there"
    )
    precision: str = option("fp32", "fp16 needs a GPU", choices=("fp32", "bf16", "fp16"))
    seed: int = option(1234, "seed of weights, dropout and data order", "", 0, high=2**31 - 1)
    clip_grad: float = option(1.0, "largest global gradient norm; 0 does not clip", "", 0)
    initial_loss_scale_power: int = option(
        16, "fp16: the first loss scale is 2 to this power", "", 0, high=32
    )
    loss_scale_window: int = option(
        1000, "fp16: clean iterations before the scale doubles", "iterations", 1
    )
    loss_scale_hysteresis: int = option(
        2, "fp16: overflows before the scale halves", "iterations", 1
    )
    stop_after_nan: int = option(
        0, "stop after this many NaN or Inf losses in a row; 0 never", "iterations", 0
    )
    signal_interval: int = option(
        1, "iterations between two checks for SIGTERM and SIGUSR1", "iterations", 1
    )


@dataclass
class OptimizerConfig:
    """AdamW and its learning rate"""

    kind: str = option(
        "adam",
        "adam8bit: moments of 8 bits, by the package bitsandbytes",
        choices=("adam", "adam8bit"),
    )
    lr: float = option(1e-3, "highest learning rate", "", 0)
    min_lr: float = option(0.0, "lowest learning rate after the decay", "", 0)
    beta1: float = option(0.9, "Adam's first beta", "", 0, high=1)
    beta2: float = option(0.95, "Adam's second beta", "", 0, high=1)
    eps: float = option(1e-8, "Adam's epsilon", "", 0, high=1)
    weight_decay: float = option(0.1, "decoupled weight decay, matrices only", "", 0)
    warmup_samples: int = option(0, "samples of linear warm-up", "samples", 0)
    decay_samples: int = option(
        0, "samples until min_lr; 0 decays over the whole training", "samples", 0
    )
    warmup_tokens: int = option(
        0, "tokens of linear warm-up: with it the whole schedule is by tokens", "tokens", 0
    )
    decay_tokens: int = option(
        0, "tokens until min_lr: with it the whole schedule is by tokens", "tokens", 0
    )
    decay_style: str = option(
        "cosine", "shape of the decay", choices=("constant", "linear", "cosine")
    )


@dataclass
class DataConfig:
    """Text"""

    path: str = option(
        "stdlib",
        "indexed data without .bin, or a blend 'WEIGHT PATH WEIGHT PATH'; stdlib is Python's own source",
    )
    split: str = option("949,50,1", "train, valid, test shares")
    tokenizer: str = option("byte", "byte, or a `tokenizers` JSON file")
    vocab_file: str = option("", "vocabulary of GPT-2's BPE (gpt2-vocab.json); with merge_file")
    merge_file: str = option("", "merges of GPT-2's BPE (gpt2-merges.txt); with vocab_file")
    workers: int = option(
        1, "data loader processes a loading rank; 0 loads in the rank", "processes", 0, high=64
    )
    reset_position_ids: bool = option(
        False, "positions start anew after each end of a document within a sample"
    )
    reset_attention_mask: bool = option(
        False, "tokens of a sample do not see those of another document"
    )
    eod_mask_loss: bool = option(
        False, "no loss for what follows an end of a document: the next document's first token"
    )
    cache: str = option("", "folder for prepared text and sample orders; empty: next to the data")


@dataclass
class CheckpointConfig:
    """Saving and resuming"""

    dir: str = option("", "folder of the checkpoints; empty saves none")
    interval: int = option(
        0, "iterations between two saves; 0 saves at the end only", "iterations", 0
    )
    asynchronous: bool = option(False, "write in the background")
    keep: int = option(0, "complete checkpoints to keep; 0 keeps all", "", 0)
    load: str = option("auto", "auto: the newest complete one in dir; none; or the folder of one")
    universal: bool = option(
        False, "`load` is a universal checkpoint: another topology may read it"
    )
    override: bool = option(
        False, "take the learning rate schedule of this run where the checkpoint's differs"
    )


@dataclass
class LogConfig:
    """What is printed"""

    interval: int = option(1, "iterations between two log lines", "iterations", 1)
    timers: bool = option(False, "Megatron's timers line after each log line")
    tensorboard: str = option("", "folder of the tensorboard events; empty writes none")
    metrics: str = option(
        "", "file of JSON lines, one an iteration, with every number unrounded; empty writes none"
    )
    digests: str = option(
        "",
        "folder for a line on every tensor of every rank (hash, norm, largest) before and after each "
        "iteration: train.digests compares them; empty writes none",
    )
    digest_iterations: str = option(
        "", "of these iterations alone, such as '805,806'; empty: of all", "iterations"
    )
    num_zeros: bool = option(False, "how many gradients are zero, in log, metrics and tensorboard")
    params_norm: bool = option(False, "norm of all weights, in log, metrics and tensorboard")
    memory: bool = option(
        False, "peak memory of rank 0 in log, metrics and tensorboard: its GPU's, else its own"
    )
    adam_variance: bool = option(
        False,
        "norms and largest element of Adam's second moment, in log, metrics and tensorboard",
    )
    spikes: bool = option(
        False,
        "a line, and an event for the sidecar, when loss or gradient norm jump; see train.spikes",
    )
    on_spike: str = option(
        "", "command for each spike, without a shell; {iteration}, {what}, {summary} are replaced"
    )
    peak_tflops: float = option(
        0.0, "peak of one device for the MFU; 0 leaves it out", "TFLOP/s", 0
    )


@dataclass
class EvaluateConfig:
    """Validation loss"""

    interval: int = option(0, "iterations between two evaluations; 0 never", "iterations", 0)
    iterations: int = option(10, "global batches an evaluation", "", 1)
    test: bool = option(False, "at the end, the loss on the test share of data.split")


@dataclass
class RunConfig:
    """Other"""

    compile: str = option(
        "off",
        "torch.compile of each transformer layer: by inductor, or aot_eager to look for faults",
        choices=("off", "inductor", "aot_eager"),
    )
    kernels: str = option(
        "auto",
        "fused kernels; auto: Triton on a GPU, torch's own elsewhere",
        choices=("auto", "reference", "torch", "triton", "apex"),
    )
    bind: str = option(
        "none",
        "auto: each rank to the cores near its GPU, without GPUs to its share of the NUMA nodes",
        choices=("none", "auto"),
    )
    fault: str = option("", "KIND@RANK:ITERATION[:WHERE], several with commas; see train/faults")
