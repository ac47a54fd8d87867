"""Small real trainings that the PyTorch tests share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    """The network of PyTorch's CIFAR-10 tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


NET_PARAMETERS = [
    f"{layer}.{kind}"
    for layer in ("conv1", "conv2", "fc1", "fc2", "fc3")
    for kind in ("bias", "weight")
]


def image_batches(count: int, batch_size: int = 8) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """CIFAR-shaped batches, the same every time."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(count):
        images = torch.randn(batch_size, 3, 32, 32, generator=generator)
        labels = torch.randint(0, 10, (batch_size,), generator=generator)
        yield images, labels


def mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def train_mlp(
    model: nn.Module,
    steps: int,
    *,
    seed: int = 3,
    lr: float = 0.05,
    after_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Regress random targets with SGD. Gives the loss of every step."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    criterion = nn.MSELoss()
    width = next(model.parameters()).shape[1]
    losses = []
    for step in range(steps):
        inputs = torch.randn(16, width, generator=generator)
        optimizer.zero_grad()
        loss = criterion(model(inputs), inputs.sum(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if after_step is not None:
            after_step(step, losses[-1])
    return losses
