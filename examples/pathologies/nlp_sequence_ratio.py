"""Short sentences padded to fifty tokens, against the same ones padded to the longest of their batch."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, fit, main
from torch import nn

from tensortap.pytorch import Hook


class Bag(nn.Module):
    """The mean of word vectors, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 8, padding_idx=0)
        self.head = nn.Linear(8, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(tokens).mean(dim=1))


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    torch.manual_seed(0)
    length = 50 if is_sick else 12
    tokens = torch.randint(1, 100, (200, length))
    lengths = torch.randint(6, 13, (200, 1))
    tokens[torch.arange(length) >= lengths] = 0
    labels = tokens[:, 0] % 2
    return fit(
        Bag(),
        out_dir,
        rules,
        inputs=tokens,
        labels=labels,
        batch_size=50,
        collections=("embedding_input",),
    )


PATHOLOGY = Pathology("NLPSequenceRatio", "^words_input_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
