"""A small plain GPT and its training step, as a tutorial would write them: the yardstick for one
process.

Learned positions, pre-norm blocks, fused attention, tied output, AdamW, clipping: the sizes and the
arithmetic of the trainer's default model, none of its layers.
"""

from __future__ import annotations

import importlib.util
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(h, dim=2)
        q, k, v = (t.view(b, s, self.heads, h // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    def __init__(self, vocab: int, hidden: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(length, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens [b, s + 1] -> loss."""
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        x = self.tokens(inputs) + self.positions(
            torch.arange(inputs.shape[1], device=inputs.device)
        )
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class NanoGPT(nn.Module):
    """nanoGPT's own model, from a copy of its `model.py` (https://github.com/karpathy/nanoGPT) that
    the caller names.
    """

    def __init__(
        self, file: str, vocab: int, hidden: int, heads: int, layers: int, length: int
    ) -> None:
        super().__init__()
        spec = importlib.util.spec_from_file_location("nanogpt_model", file)
        if spec is None or spec.loader is None:
            raise SystemExit(f"NANOGPT names {file}, which is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules["nanogpt_model"] = module  # its dataclass looks itself up there
        spec.loader.exec_module(module)
        sizes = module.GPTConfig(
            block_size=length, vocab_size=vocab, n_layer=layers, n_head=heads, n_embd=hidden
        )
        self.model = module.GPT(sizes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens [b, s + 1] -> loss."""
        loss: torch.Tensor = self.model(tokens[:, :-1], tokens[:, 1:].contiguous())[1]
        return loss


def yardstick(vocab: int, hidden: int, heads: int, layers: int, length: int) -> nn.Module:
    """nanoGPT's model where NANOGPT names a copy of its model.py, else the plain GPT of this file."""
    file = os.environ.get("NANOGPT", "")
    return (
        NanoGPT(file, vocab, hidden, heads, layers=layers, length=length)
        if file
        else PlainGPT(vocab, hidden, heads, layers, length=length)
    )


class PlainTraining:
    """The step: micro-batches, clipping, AdamW."""

    def __init__(self, model: nn.Module, micro: int) -> None:
        self.model, self.micro = model, micro
        matrices = [p for p in model.parameters() if p.dim() == 2]
        vectors = [p for p in model.parameters() if p.dim() == 1]
        groups = [
            {"params": matrices, "weight_decay": 0.1},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))

    def step(self, batch: torch.Tensor) -> float:
        """The loss of one batch, after the optimizer's step."""
        parts, total = batch.split(self.micro), 0.0
        for part in parts:
            loss = self.model(part) / len(parts)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total
