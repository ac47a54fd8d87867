"""The trainings whose capture is measured: small enough for two cores, of shapes people train."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


class Transformer(nn.Module):
    """Encoder over token ids, with a head that predicts a token at every place."""

    def __init__(self, width: int, layers: int, vocabulary: int = 1000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits, (batch, vocabulary, sequence)."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).transpose(1, 2)


class SmallCnn(nn.Module):
    """The network of PyTorch's CIFAR-10 tutorial: 62 thousand parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits, (batch, 10)."""
        x = self.pool(torch.relu(self.conv1(images)))
        x = self.pool(torch.relu(self.conv2(x)))
        x = torch.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(torch.relu(self.fc2(x)))


@dataclass
class Training:
    """A model with its loss, and one step of its training."""

    model: nn.Module
    criterion: nn.Module
    step: Callable[[], None]


def _training(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple) -> Training:
    criterion = nn.CrossEntropyLoss()
    inputs, targets = batch

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()

    return Training(model, criterion, step)


def transformer() -> Training:
    """12 layers, 10 million parameters, sequence 64, batch 8."""
    torch.manual_seed(0)
    model = Transformer(width=256, layers=12)
    tokens = torch.randint(1000, (8, 64))
    return _training(model, torch.optim.AdamW(model.parameters(), 1e-4), (tokens, tokens))


def tiny_transformer() -> Training:
    """As many modules and parameters as `transformer`, but next to no arithmetic."""
    torch.manual_seed(0)
    model = Transformer(width=8, layers=12, vocabulary=16)
    tokens = torch.randint(16, (1, 4))
    return _training(model, torch.optim.SGD(model.parameters(), 1e-4), (tokens, tokens))


def mlp() -> Training:
    """10 million parameters, batch 64: little arithmetic, much memory."""
    torch.manual_seed(0)
    sizes = [784, 1800, 1800, 1800, 1000, 10]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    batch = (torch.randn(64, sizes[0]), torch.randint(10, (64,)))
    return _training(model, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9), batch)


def cnn() -> Training:
    """62 thousand parameters, batch 32 of 3x32x32 images."""
    torch.manual_seed(0)
    model = SmallCnn()
    batch = (torch.randn(32, 3, 32, 32), torch.randint(10, (32,)))
    return _training(model, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9), batch)
