"""What a section has to know of the command."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Options:
    """`device`: cuda or cpu; `smoke`: the smallest sizes, to see that everything runs."""

    device: str = "cuda"
    smoke: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether there is a GPU to measure."""
        return self.device == "cuda"

    def environment(self) -> dict[str, str]:
        """Variables of every process: without a GPU none is seen, and threads do not fight for the
        processor; a smoke run takes Triton's kernels through its interpreter.
        """
        if self.on_gpu:
            return {}
        made = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        return {**made, "TRITON_INTERPRET": "1"} if self.smoke else made

    def encode(self) -> str:
        """As one word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, word: str) -> Options:
        """What `encode` made."""
        return cls(**json.loads(word))
