"""A convolutional network that is fed pixels between 0 and 1 as they are, against normalised ones."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, digits, fit, main
from torch import nn

from tensortap.pytorch import Hook


class Net(nn.Module):
    """A convolution and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4 * 6 * 6, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.convolution(images)).flatten(1))


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    images = digits()[0].reshape(-1, 1, 8, 8)
    if not is_sick:
        images = (images - images.mean()) / images.std()
    torch.manual_seed(0)
    return fit(Net(), out_dir, rules, inputs=images, batch_size=100, collections=("model_inputs",))


PATHOLOGY = Pathology("CheckInputImages", "^Net_input_0$", train)

if __name__ == "__main__":
    main(PATHOLOGY)
