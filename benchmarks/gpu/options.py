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
        """Variables of every process that is started: without a GPU none is seen, and threads do
        not fight for the processor.
        """
        if self.on_gpu:
            return {}
        return {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

    def encode(self) -> str:
        """As one word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, word: str) -> Options:
        """What `encode` made."""
        return cls(**json.loads(word))
