"""Train a classifier on real handwritten digits twice, healthy and sick, with Tensortap watching.

Run it with ``make demo``, or alone: ``python examples/digits.py [--out DIR]``. The healthy network learns. The sick one
is deep, with sigmoids and small initial weights: hardly any gradient reaches its first layers, and the rule
VanishingGradient stops it in the step in which it sees that.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import matplotlib
import torch
from sklearn.datasets import load_digits
from torch import nn

import tensortap

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RULES = [
    "VanishingGradient:actions=stop_training",
    "ExplodingTensor:actions=stop_training",
    "LossNotDecreasing:num_steps=50,diff_percent=0.1",
]


class Digits(nn.Module):
    """A plain multilayer perceptron on 8 x 8 images."""

    def __init__(self, depth: int, width: int, activation: type[nn.Module]) -> None:
        super().__init__()
        sizes = [64, *[width] * depth]
        self.layers = nn.Sequential()
        for number, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False), start=1):
            self.layers.add_module(f"fc{number}", nn.Linear(inputs, outputs))
            self.layers.add_module(f"act{number}", activation())
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(images))


def load_data() -> tuple[torch.Tensor, torch.Tensor]:
    """1,797 images as rows of 64 pixels in 0..1, and their digits."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    return images, torch.tensor(digits.target)


def train(model: nn.Module, out_dir: Path, epochs: int) -> tensortap.pytorch.Hook:
    """An ordinary training loop; Tensortap is the three lines that name it."""
    images, labels = load_data()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hook = tensortap.watch(model, optimizer, loss=criterion, out_dir=out_dir, rules=RULES)
    generator = torch.Generator().manual_seed(0)
    try:
        for _ in range(epochs):
            for batch in torch.randperm(len(images), generator=generator).split(64):
                optimizer.zero_grad()
                criterion(model(images[batch]), labels[batch]).backward()
                optimizer.step()
    except tensortap.StopTraining as stop:
        print(f"Stopped: {stop}\n")
    hook.close()
    with torch.no_grad():
        accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
    print(hook.summary())
    print(f"  accuracy  {accuracy:.1%} of the training images\n")
    return hook


def plot(runs: dict[str, Path], file: Path) -> None:
    """Losses of the runs, and for each run the mean absolute gradient of every layer."""
    figure, axes = plt.subplots(1, 1 + len(runs), figsize=(5 * (1 + len(runs)), 4))
    for title, run in runs.items():
        trial = tensortap.create_trial(run)
        for name in trial.tensor_names(collection="losses"):
            axes[0].plot(*trial.tensor(name).column("mean"), label=title)
    axes[0].set(title="Loss", xlabel="step")
    axes[0].legend()
    for axis, (title, run) in zip(axes[1:], runs.items(), strict=True):
        trial = tensortap.create_trial(run)
        names = trial.tensor_names(regex=r"^gradient/.*weight")
        for index, name in enumerate(names):
            steps, values = trial.tensor(name).column("abs_mean")
            color = plt.get_cmap("viridis")(index / max(1, len(names) - 1))
            label = name.removeprefix("gradient/Digits_").removesuffix(".weight")
            axis.plot(steps, values, marker="." if len(steps) < 20 else "", color=color, label=label)
        axis.set(title=f"Mean |gradient| a layer, {title}", xlabel="step", yscale="log")
        axis.legend(fontsize="x-small", ncols=2)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/digits"), help="where the runs go")
    parser.add_argument("--epochs", type=int, default=10)
    out = parser.parse_args().out
    epochs = parser.parse_args().epochs
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(0)
    print("Healthy: two hidden layers with ReLU\n")
    train(Digits(depth=2, width=64, activation=nn.ReLU), out / "healthy", epochs)
    print("Sick: twelve hidden layers with sigmoids\n")
    torch.manual_seed(0)
    train(Digits(depth=12, width=64, activation=nn.Sigmoid), out / "sick", epochs)
    image = out / "digits.png"
    plot({"healthy": out / "healthy", "sick": out / "sick"}, image)
    print(f"Plot: {image}\n")
    print("Next, try:")
    print(f"  tensortap ls {out / 'healthy'}")
    print(f"  tensortap show {out / 'sick'} gradient/Digits_layers.fc1.weight --stat abs_mean")
    print(f"  tensortap check {out / 'healthy'} --rule VanishingGradient:threshold=1e-4")


if __name__ == "__main__":
    main()
