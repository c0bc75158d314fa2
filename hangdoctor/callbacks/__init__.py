"""Steps and phases of other frameworks' trainings, for hangdoctor's probe: one line each.

    lightning.Trainer(callbacks=[hangdoctor.callbacks.lightning_callback()])
    transformers.Trainer(..., callbacks=[hangdoctor.callbacks.trainer_callback()])
    hangdoctor.callbacks.mark_accelerator(accelerator)

They mark iteration, micro-batch and phase, and nothing else. Where the probe is not installed
(`hangdoctor run`, or `hangdoctor.probe.install()`) each mark is a call that does nothing. A framework is
imported by its own function alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def lightning_callback() -> Any:
    """A `Callback` for Lightning's Trainer, of `lightning` or `pytorch_lightning`, whichever the job
    has imported.

    Raises:
        ImportError: neither is installed.
    """
    from .lightning_marks import callback

    return callback()


def trainer_callback() -> Any:
    """A `TrainerCallback` for the Trainer of Hugging Face's transformers, and of what builds on it.

    Raises:
        ImportError: transformers is not installed.
    """
    from .trainer_marks import callback

    return callback()


def mark_accelerator(accelerator: Any) -> Any:
    """Have an `Accelerator` mark its backward passes and its saving and loading.

    Args:
        accelerator: an object of `accelerate.Accelerator`; once marked it stays so.

    Returns:
        the accelerator.
    """
    from .accelerator_marks import mark

    return mark(accelerator)
