"""A GPT in plain torch on one process: no DeepSpeed, no pipeline, none of the trainer's layers or
schedules.

Weights come from the layer files of a checkpoint (plain tensors on disk), tokens from the same data
set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

Weights = dict[str, torch.Tensor]


def load_weights(folder: Path, layers: int, vocab: int) -> Weights:
    """The model of a one-process checkpoint, its vocabulary cut to the tokens that exist."""

    def layer(index: int) -> Weights:
        return torch.load(folder / f"layer_{index:02d}-model_00-model_states.pt", weights_only=True)

    weights = {"embedding": layer(0)["weight"][:vocab]}
    weights |= {f"input.{k}": v for k, v in layer(1).items()}
    for i in range(layers):
        weights |= {f"{i}.{k}": v for k, v in layer(2 + i).items()}
    weights |= {f"final.{k}": v for k, v in layer(2 + layers).items()}
    untied = folder / f"layer_{3 + layers:02d}-model_00-model_states.pt"
    if untied.exists():
        weights["output"] = layer(3 + layers)["weight"][:vocab]
    return {k: v.detach().clone() for k, v in weights.items()}


class Reference:
    """`model` and `train` are the sections of the trainer's configuration, as plain dictionaries."""

    def __init__(self, weights: Weights, config: dict[str, Any]) -> None:
        self.model, self.config = config["model"], config
        self.weights = {k: v.requires_grad_() for k, v in weights.items()}
        self.master = {k: v.detach().float().clone().requires_grad_() for k, v in weights.items()}
        o = config["optimizer"]
        matrices = [v for v in self.master.values() if v.dim() == 2]
        vectors = [v for v in self.master.values() if v.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": o["weight_decay"]},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=o["lr"],
            betas=(o["beta1"], o["beta2"]),
            eps=o["eps"],
        )

    def _norm(self, x: torch.Tensor, name: str, kind: str = "") -> torch.Tensor:
        weight, eps = self.weights[f"{name}.weight"], self.model["norm_eps"]
        if (kind or self.model["normalization"]) == "rmsnorm":
            return F.rms_norm(x, weight.shape, weight, eps)
        return F.layer_norm(x, weight.shape, weight, self.weights[f"{name}.bias"], eps)

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _ends_branch(self, x: torch.Tensor, name: str, residual: torch.Tensor) -> torch.Tensor:
        """residual + (x W^T + b), with bf16's roundings where any tensor parallel layer has them: b
        comes after the sum.
        """
        return residual + (
            F.linear(x, self.weights[f"{name}.weight"]) + self.weights[f"{name}.bias"]
        )

    def _attention(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        b, s, h = x.shape
        heads = self.model["heads"]
        width = h // heads
        qkv = self._linear(x, f"{layer}.attention.qkv").view(b, s, heads, 3, width)
        q, k, v = (qkv[:, :, :, i].transpose(1, 2) for i in range(3))
        if self.model["position"] == "rope":
            q, k = self._rotate(q), self._rotate(k)
        if self.model["position"] == "alibi":
            mask = torch.full((s, s), float("-inf")).triu(1)
            distance = torch.arange(s)[None, :] - torch.arange(s)[:, None]
            slopes = torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)])
            mask = mask + slopes[:, None, None] * distance
        if self.model["position"] == "alibi":
            y = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask).to(
                x.dtype
            )
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, s, h)

    def _rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Complex form: (x1 + i x2) e^(i m theta), with x1 and x2 the halves of a head."""
        s, width = x.shape[-2:]
        theta = self.model["rotary_base"] ** (-torch.arange(0, width, 2).double() / width)
        turn = torch.polar(
            torch.ones(s, width // 2).double(), torch.outer(torch.arange(s).double(), theta)
        )
        first, second = x.double().chunk(2, dim=-1)
        turned = torch.complex(first, second) * turn
        return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: [b, s + 1]."""
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        x = F.embedding(inputs, self.weights["embedding"])
        if self.model["position"] == "learned":
            x = x + self.weights["input.position"][: x.shape[1]]
        if self.model["embedding_norm"]:
            x = self._norm(x, "input.norm", "layernorm")
        for i in range(self.model["layers"]):
            normed = self._norm(x, f"{i}.norm")
            attended = self._ends_branch(self._attention(normed, i), f"{i}.attention.out", x)
            inner = (
                normed if self.model["parallel_block"] else self._norm(attended, f"{i}.mlp_norm")
            )
            hidden = F.gelu(self._linear(inner, f"{i}.mlp.up"), approximate="tanh")
            x = self._ends_branch(hidden, f"{i}.mlp.down", attended)
        logits = F.linear(
            self._norm(x, "final"), self.weights.get("output", self.weights["embedding"])
        )
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    def step(self, batch: torch.Tensor, learning_rate: float) -> tuple[float, float]:
        """One optimizer step on [samples, s + 1]; returns loss and gradient norm before clipping."""
        micro = self.config["train"]["micro_batch"]
        parts = batch.split(micro)
        sums = {k: torch.zeros_like(v) for k, v in self.master.items()}
        total = 0.0
        for part in parts:
            loss = self.loss(part) / len(parts)
            grads = torch.autograd.grad(loss, list(self.weights.values()))
            for name, grad in zip(self.weights, grads, strict=True):
                sums[name] += grad.float()
            total += float(loss.detach())
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in sums.values()))
        limit = self.config["train"]["clip_grad"]
        scale = min(1.0, limit / (norm + 1e-6)) if limit else 1.0
        for name, master in self.master.items():
            master.grad = sums[name] * scale
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(self.master[name])
        return total, norm


def batch_sizes(train: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """(samples before, global batch) of each iteration; ramp-up 'start increment samples'."""
    seen, final = 0, train["global_batch"]
    words = [int(w) for w in train["rampup"].split()] or [final, 1, 0]
    start, increment, over = words
    stages = (final - start) // increment
    for _ in range(train["iterations"]):
        size = final
        if seen < over:
            size = start + increment * min(stages, seen * stages // over)
        yield seen, size
        seen += size


def rate(optimizer: dict[str, Any], seen: int, total: int) -> float:
    """Linear warm-up, cosine decay."""
    warmup, top, low = optimizer["warmup_samples"], optimizer["lr"], optimizer["min_lr"]
    if seen < warmup:
        return top * seen / warmup
    done = min(1.0, (seen - warmup) / (total - warmup))
    return low + (top - low) * (1 + math.cos(math.pi * done)) / 2


def train(config: dict[str, Any], weights: Weights, samples: Any) -> list[dict[str, float]]:
    """Loss and gradient norm of every iteration."""
    model, sizes = Reference(weights, config), list(batch_sizes(config["train"]))
    total = sum(size for _, size in sizes)
    made = []
    for seen, size in sizes:
        batch = torch.stack([torch.from_numpy(samples[i]) for i in range(seen, seen + size)])
        loss, norm = model.step(batch, rate(config["optimizer"], seen, total))
        made.append({"loss": loss, "grad_norm": norm})
    return made
