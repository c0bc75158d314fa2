"""The plain GPT (nanoGPT's own model where NANOGPT names its model.py), compiled, in bf16, with a
fused AdamW: what a good single file does on this GPU.

plain_gpt.py SIZES: SIZES is JSON. Standard output is one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch

from benchmarks.gpu.worker import reason
from benchmarks.trainer.plain_gpt import yardstick


def steps(sizes: dict[str, Any]) -> list[dict[str, float]]:
    """Loss and seconds of each step."""
    device = torch.device(sizes["device"])
    torch.set_float32_matmul_precision("high")
    vocab, length = sizes["vocab"], sizes["length"]
    with device:
        model = yardstick(vocab, sizes["hidden"], sizes["heads"], sizes["layers"], length=length)
    compiled = torch.compile(model) if sizes["compiled"] else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.95), fused=True)
    made = []
    for _ in range(sizes["steps"]):
        batch = torch.randint(vocab, (sizes["batch"], length + 1), device=device)
        _wait(device)
        began = time.perf_counter()
        parts = batch.split(sizes["micro"])
        for part in parts:
            with torch.autocast(device.type, torch.bfloat16):
                loss = compiled(part) / len(parts)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _wait(device)
        seconds = time.perf_counter() - began
        made.append({"loss": float(loss.detach()) * len(parts), "seconds": seconds})
    return made


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Measure, and print the line."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sizes = json.loads(sys.argv[1])
    line: dict[str, Any] = {"name": "plain_gpt"}
    try:
        line["steps"] = steps(sizes)
        on_gpu = sizes["device"] == "cuda"
        line["memory_mb"] = torch.cuda.max_memory_allocated() / 1e6 if on_gpu else 0.0
    except Exception as error:
        line["failed"] = reason(error)
    print(json.dumps(line), file=out, flush=True)


if __name__ == "__main__":
    main()
