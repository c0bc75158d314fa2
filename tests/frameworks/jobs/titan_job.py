"""torchtitan's own trainer on CPU: its smallest Llama, sharded by FSDP2 and as the job asks, on data of no size.

torchtitan asks torch which device there is, and for its memory: here that is the CPU, which has no answer to the second.
Of torch it wants the next version's name of a function.
"""

import os
import types
from dataclasses import dataclass

import torch
import torch._utils
import torch.distributed
from torch.distributed.distributed_c10d import _set_pg_timeout


def _cpu() -> types.SimpleNamespace:
    """`torch.cpu`, with what torchtitan's memory figures ask of a GPU."""
    size = types.SimpleNamespace(total_memory=1 << 30, name="cpu")
    more = {
        "get_device_name": lambda *device: "cpu",
        "get_device_properties": lambda *device: size,
        "reset_peak_memory_stats": lambda: None,
        "empty_cache": lambda: None,
        "memory_stats": lambda *device: {},
        "current_device": lambda: 0,
    }
    return types.SimpleNamespace(**{**vars(torch.cpu), **more})


torch._utils._get_available_device_type = lambda: "cpu"
torch._utils._get_device_module = lambda name: _cpu()
torch.distributed.set_timeout = _set_pg_timeout

from torch.distributed.checkpoint.stateful import Stateful  # noqa: E402
from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.utils.data import IterableDataset  # noqa: E402
from torchtitan.components.dataloader import ParallelAwareDataloader  # noqa: E402
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss  # noqa: E402
from torchtitan.components.optimizer import default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.common.config_utils import decoder_vocab_size  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402
from torchtitan.tools.logging import init_logger  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

_LENGTH = 16


class Bytes(BaseTokenizer):
    """A tokenizer that no file is needed for."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to set."""

    def __init__(self, config: Config, *, tokenizer_path: str) -> None:
        super().__init__()

    def encode(self, text: str) -> list[int]:
        """One token a byte."""
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        """The text of such tokens."""
        return bytes(tokens).decode()

    def get_vocab_size(self) -> int:
        """So many bytes there are."""
        return 256


class Samples(IterableDataset, Stateful):
    """Random tokens without end."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.step = 0

    def sample(self) -> torch.Tensor:
        """The next sequence, one token longer than what is learned."""
        return torch.randint(0, 256, (_LENGTH + 1,))

    def __iter__(self):
        while True:
            tokens = self.sample()
            self.step += 1
            yield {"input": tokens[:-1], "positions": torch.arange(_LENGTH)}, tokens[1:]

    def state_dict(self) -> dict:
        """How far it is."""
        return {"step": self.step}

    def load_state_dict(self, state: dict) -> None:
        """Go on from there."""
        self.step = state["step"]


class Loader(ParallelAwareDataloader):
    """torchtitan's own loader with `samples` as its data."""

    samples = Samples

    @dataclass(kw_only=True, slots=True)
    class Config(ParallelAwareDataloader.Config):
        """Nothing more to set."""

        infinite: bool = True

    def __init__(self, config: Config, *, dp_world_size, dp_rank, local_batch_size, **more) -> None:
        super().__init__(
            self.samples(dp_rank),
            dp_rank=dp_rank,
            dp_world_size=dp_world_size,
            batch_size=local_batch_size,
            num_workers=config.num_workers,
        )


def rank() -> int:
    """This process's."""
    return int(os.environ["RANK"])


def settings(
    trainer: type[Trainer], loader: type[Loader] = Loader, **parallelism
) -> Trainer.Config:
    """torchtitan's configuration for a trainer of the job's own."""
    spec = model_registry("debugmodel")
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))
    found = trainer.Config(
        model_spec=spec,
        tokenizer=Bytes.Config(),
        dataloader=loader.Config(),
        loss=ChunkedLossWrapper.Config(loss_fn=loss),
        optimizer=default_adamw(lr=1e-3),
        dump_folder=os.environ["HANG_FOLDER"] + "/titan",
    )
    found.training = TrainingConfig(
        local_batch_size=2, seq_len=_LENGTH, steps=8, disable_cuda_graphs=True
    )
    found.comm.train_timeout_seconds = 1800
    found.parallelism = ParallelismConfig(spmd_backend="partial_dtensor", **parallelism)
    return found


def train(config: Trainer.Config) -> None:
    """As torchtitan's train.py does."""
    init_logger()
    trainer = config.build()
    for part in trainer.model_parts:
        for module in part.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)  # gloo has no other
    trainer.train()
    trainer.close()
    torch.distributed.destroy_process_group()
