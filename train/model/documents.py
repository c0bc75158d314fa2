"""Several documents in one sample: where each begins, so that they do not see each other.

Beside the activations goes, from layer to layer and from stage to stage, the number of the document
of each token: [b, s], whole on every rank, only where `--data.reset_*` asks for it.
"""

from __future__ import annotations

import torch

Stream = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def parts(stream: Stream) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Activations, and the documents where they come along."""
    return stream if isinstance(stream, tuple) else (stream, None)


def joined(hidden: torch.Tensor, documents: torch.Tensor | None) -> Stream:
    """The opposite of `parts`."""
    return hidden if documents is None else (hidden, documents)


def documents_of(tokens: torch.Tensor, end: int) -> torch.Tensor:
    """[b, s]: the number of each token's document in its sample, from 0. An end-of-document token
    is the last of its document.
    """
    ends = (tokens == end).to(torch.int64)
    return ends.cumsum(dim=1) - ends


def positions_in(documents: torch.Tensor) -> torch.Tensor:
    """[b, s]: the place of each token in its document, from 0."""
    places = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return places - torch.where(begins, places, 0).cummax(dim=1).values


def same_document(documents: torch.Tensor) -> torch.Tensor:
    """[b, 1, s, s]: whether query and key are of one document."""
    return (documents[:, :, None] == documents[:, None, :]).unsqueeze(1)


def causal(mask: torch.Tensor) -> torch.Tensor:
    """`mask` without the keys that come after their query."""
    return mask & torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
