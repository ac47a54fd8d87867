"""Train a classifier on real handwritten digits twice, healthy and sick, with Tensortap watching.

Run it with ``make demo``, or alone: ``python examples/digits.py [--out DIR]``. Both networks are the
same; the sick one learns a hundred times too fast. Its units saturate, hardly any gradient gets
through them, and the rule VanishingGradient stops the training in the step in which it sees that.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

import matplotlib
import torch
from sklearn.datasets import load_digits
from torch import nn

import tensortap
from tensortap import modes

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RULES = [
    "VanishingGradient:actions=stop_training",
    "ExplodingTensor:actions=stop_training",
    "LossNotDecreasing:mode=EVAL,num_steps=3",
]


class Digits(nn.Module):
    """A multilayer perceptron with four hidden layers on 8 x 8 images."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential()
        for number, inputs in enumerate([64, width, width, width], start=1):
            self.layers.add_module(f"fc{number}", nn.Linear(inputs, width))
            self.layers.add_module(f"tanh{number}", nn.Tanh())
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(images))


def load_data() -> tuple[torch.Tensor, torch.Tensor]:
    """1,797 images as rows of 64 pixels in 0..1, and their digits, shuffled."""
    digits = load_digits()
    order = torch.randperm(len(digits.data), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    return images[order], torch.tensor(digits.target)[order]


def train(learning_rate: float, out_dir: Path, epochs: int) -> None:
    """An ordinary training loop; Tensortap is the lines that name it."""
    images, labels = load_data()
    train_images, train_labels = images[:1500], labels[:1500]
    torch.manual_seed(0)
    model = Digits()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    hook = tensortap.watch(model, optimizer, loss=criterion, out_dir=out_dir, rules=RULES)
    try:
        for _ in range(epochs):
            hook.set_mode(modes.TRAIN)
            for batch in torch.randperm(len(train_images)).split(50):
                optimizer.zero_grad()
                criterion(model(train_images[batch]), train_labels[batch]).backward()
                optimizer.step()
            hook.set_mode(modes.EVAL)
            with torch.no_grad():
                criterion(model(images[1500:]), labels[1500:])
    except tensortap.StopTraining as stop:
        print(f"Stopped. {stop}\n")
    hook.close()
    with torch.no_grad():
        right = model(images[1500:]).argmax(dim=1) == labels[1500:]
    print(hook.summary())
    print(f"  accuracy  {right.float().mean().item():.1%} of {len(right)} images it has not seen\n")


def plot(runs: dict[str, Path], file: Path) -> None:
    """Losses of the runs, and for each run the mean absolute gradient of every layer."""
    figure, axes = plt.subplots(1, 1 + len(runs), figsize=(5 * (1 + len(runs)), 4))
    for title, run in runs.items():
        trial = tensortap.create_trial(run)
        for name in trial.tensor_names(collection="losses"):
            axes[0].plot(*trial.tensor(name).column("mean", mode=modes.TRAIN), label=title)
    axes[0].set(title="Training loss", xlabel="step", yscale="log")
    axes[0].legend()
    for axis, (title, run) in zip(axes[1:], runs.items(), strict=True):
        trial = tensortap.create_trial(run)
        names = trial.tensor_names(regex=r"^gradient/.*weight")
        for index, name in enumerate(names):
            steps, values = trial.tensor(name).column("abs_mean")
            color = plt.get_cmap("viridis")(index / max(1, len(names) - 1))
            label = name.removeprefix("gradient/Digits_").removesuffix(".weight")
            axis.plot(
                steps, values, marker="." if len(steps) < 20 else "", color=color, label=label
            )
        axis.set(title=f"Mean |gradient| a layer, {title}", xlabel="step", yscale="log")
        axis.legend(fontsize="x-small", ncols=2)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/digits"), help="where the runs go")
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    out: Path = arguments.out
    shutil.rmtree(out, ignore_errors=True)
    print("Healthy: learning rate 0.02\n")
    train(0.02, out / "healthy", arguments.epochs)
    print("Sick: learning rate 2\n")
    train(2.0, out / "sick", arguments.epochs)
    image = out / "digits.png"
    plot({"healthy": out / "healthy", "sick": out / "sick"}, image)
    print(f"Plot: {image}\n")
    # What can be typed as it stands, whether or not the virtual environment is active.
    program = Path(sys.executable).with_name("tensortap")
    tensortap_program = os.path.relpath(program) if program.exists() else "tensortap"
    print("Next, try:")
    print(f"  {tensortap_program} ls {out / 'healthy'}")
    print(
        f"  {tensortap_program} show {out / 'sick'} gradient/Digits_layers.fc1.weight --stat abs_mean"
    )
    print(f"  {tensortap_program} check {out / 'healthy'} --rule VanishingGradient:threshold=1e-3")


if __name__ == "__main__":
    main()
