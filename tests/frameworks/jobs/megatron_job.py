"""A pipeline of two stages by Megatron-core's own schedule and groups, two data-parallel copies of it, on CPU.

Megatron asks for the device "cuda" by name: here that is the CPU.
"""

import os
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist


def _on_cpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda *sizes, **more: make(*sizes, **{k: v for k, v in more.items() if k != "device"})


torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.synchronize = lambda *device: None
for name in ("zeros", "empty", "tensor"):
    setattr(torch, name, _on_cpu(getattr(torch, name)))

from megatron.core import parallel_state  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402

_SHAPE = (4, 2, 8)  # sequence, micro-batch, hidden


class Stage(torch.nn.Module):
    """What one rank has of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.config = TransformerConfig(
            num_layers=2,
            hidden_size=_SHAPE[2],
            num_attention_heads=1,
            pipeline_model_parallel_size=2,
            pipeline_dtype=torch.float32,
            batch_p2p_comm=False,
        )
        self.model_type = ModelType.encoder_or_decoder
        self.layer = torch.nn.Linear(8, 8)
        self.received: torch.Tensor | None = None

    def set_input_tensor(self, tensors: list[torch.Tensor]) -> None:
        """Megatron gives what the stage before has sent."""
        self.received = tensors[0] if isinstance(tensors, list) else tensors

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The batch at the first stage, else what came from the one before."""
        return self.layer(batch if self.received is None else self.received)


ForwardStep = Callable[[Iterator[torch.Tensor], Stage], tuple[torch.Tensor, Callable[..., object]]]


def loss_of(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """As Megatron wants it: the loss, and what goes into the log."""
    loss = output.square().mean()
    return loss, {"loss": loss.detach()}


def begin() -> tuple[int, Stage]:
    """The rank, and its stage."""
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=2)
    torch.manual_seed(int(os.environ["RANK"]))
    return dist.get_rank(), Stage()


def forward_backward(step: ForwardStep, stage: Stage, micro_batches: int) -> None:
    """One step by Megatron's 1F1B schedule."""
    batches = iter([torch.randn(_SHAPE) for _ in range(micro_batches)])
    get_forward_backward_func()(
        forward_step_func=step,
        data_iterator=batches,
        model=stage,
        num_microbatches=micro_batches,
        seq_length=_SHAPE[0],
        micro_batch_size=_SHAPE[1],
        forward_only=False,
    )


def reduce_gradients(stage: Stage) -> None:
    """Over the data-parallel group."""
    group = parallel_state.get_data_parallel_group()
    for parameter in stage.parameters():
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad.div_(dist.get_world_size(group))
