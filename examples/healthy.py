"""Three healthy trainings, watched by every rule: whatever fires here is a false alarm.

``python examples/healthy.py --steps 2000`` prints, as a Markdown table, how many findings each rule makes per 10,000
steps.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import tensortap
from tensortap import _core
from tensortap.pytorch import Hook

COLLECTIONS = (
    "weights",
    "biases",
    "gradients",
    "losses",
    "model_inputs",
    "optimizer_variables",
    "update_ratios",
    "relu_output",
    "normalization_output",
)

# Rules whose documented defaults are for other trainings than these, and the sensible setting for them. None: the rule
# must be told what to look at, or judges something that is no training.
SETTINGS: dict[str, str | None] = {
    "Expression": None,
    "SimilarAcrossRuns": None,
    "AllZero": "collection_names=weights",
    "TensorVariance": "collection_names=weights,max_threshold=100",
    "UnchangedTensor": "collection_names=weights,rtol=1e-8,atol=1e-12",
    # Losses of single batches scatter; the defaults are for losses that hardly do.
    "LossNotDecreasing": "num_steps=100,increase_threshold_percent=100",
    "Overtraining": "patience_train=500",
    # On a machine that does other things too, a few slow steps in a thousand are no illness.
    "StepOutlier": "min_ratio=2",
    "Dataloader": "only_if_slow=true",
    "ProfilerReport": "StepOutlier_min_ratio=2,Dataloader_only_if_slow=true",
}

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def all_rules() -> list[str]:
    """Every registered rule at its sensible setting."""
    specs = []
    for descriptor in _core.rule_descriptors():
        name = descriptor["name"]
        setting = SETTINGS.get(name, "")
        if setting is not None:
            specs.append(f"{name}:{setting}" if setting else name)
    return specs


def digit_batches(batch_size: int, *, is_image: bool) -> Batches:
    """Shuffled anew in every epoch, without end."""
    data = load_digits()
    pixels = torch.tensor(data.data, dtype=torch.float32) / 16.0 - 0.3
    inputs = pixels.reshape(-1, 1, 8, 8) if is_image else pixels
    labels = torch.tensor(data.target)
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(len(inputs), generator=generator)
        for start in range(0, len(order) - batch_size + 1, batch_size):
            chosen = order[start : start + batch_size]
            yield inputs[chosen], labels[chosen]


def text_batches(batch_size: int, length: int) -> tuple[Batches, int]:
    """Windows of a text that every Python carries (docstrings of its library), and the size of its alphabet."""
    text = "".join(
        str(module.__doc__) + "".join(str(value.__doc__) for value in vars(module).values())
        for module in (argparse, collections, itertools, tempfile)
    )
    letters = sorted(set(text))
    codes = torch.tensor([letters.index(letter) for letter in text])

    def batches() -> Batches:
        generator = torch.Generator().manual_seed(1)
        while True:
            starts = torch.randint(len(codes) - length - 1, (batch_size,), generator=generator)
            windows = torch.stack([codes[start : start + length + 1] for start in starts.tolist()])
            yield windows[:, :-1], windows[:, 1:]

    return batches(), len(letters)


class Block(nn.Module):
    """A transformer's block: attention and a feed-forward part, each normalised before and added up after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )
        self.logits: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        self.logits = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        weights = self.logits.masked_fill(~mask, -torch.inf).softmax(-1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))
        x = x + self.mlp(self.norm2(x))
        return x


class CharacterGPT(nn.Module):
    """A small causal transformer over characters."""

    def __init__(self, alphabet: int, length: int = 32, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(alphabet, width)
        self.position_embedding = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads=4) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, alphabet, bias=False)
        for embedding in (self.token_embedding, self.position_embedding):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1])
        x = self.blocks(self.token_embedding(tokens) + self.position_embedding(positions))
        logits: torch.Tensor = self.head(self.norm(x))
        return logits.flatten(0, 1)


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    hook: Hook,
    steps: int,
    schedule: Callable[[int], float],
) -> None:
    """Train with clipping and a schedule, as one should."""
    criterion = nn.CrossEntropyLoss()
    hook.register_loss(criterion)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    for _ in range(steps):
        inputs, labels = next(batches)
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels.flatten())
        loss.backward()
        for index, block in enumerate(m for m in model.modules() if isinstance(m, Block)):
            if block.logits is not None:
                hook.save_tensor(f"attention_logits/{index}", block.logits, "attention_logits")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    hook.close()


def warm_up_then_decay(steps: int) -> Callable[[int], float]:
    """Linear warm-up over a twentieth of the steps, then linear decay to a tenth."""
    warmup = max(1, steps // 20)
    return lambda step: min((step + 1) / warmup, 1.0 - 0.9 * step / steps)


def train(name: str, out_dir: Path, rules: list[str], steps: int) -> Hook:
    """Train one of TRAININGS under these rules; gives the closed hook."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the models are small
    model: nn.Module
    if name == "mlp":
        model = nn.Sequential(
            nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
        )
        batches = digit_batches(64, is_image=False)
    elif name == "cnn":
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 10),
        )
        batches = digit_batches(64, is_image=True)
    else:
        batches, alphabet = text_batches(16, 32)
        model = CharacterGPT(alphabet)
    optimizer: torch.optim.Optimizer
    if name == "cnn":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    hook = tensortap.watch(model, optimizer, out_dir=out_dir, rules=rules, collections=COLLECTIONS)
    fit(model, optimizer, batches, hook, steps, warm_up_then_decay(steps))
    return hook


TRAININGS = ("mlp", "cnn", "gpt")


def main() -> None:
    """Count false alarms and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--only", choices=TRAININGS, help="one of the trainings")
    parser.add_argument("--show", action="store_true", help="print the findings too")
    arguments = parser.parse_args()
    counts: dict[str, list[int | None]] = {}
    names = [arguments.only] if arguments.only else TRAININGS
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            hook = train(name, Path(folder) / "run", all_rules(), arguments.steps)
        for report in hook.rule_reports():
            is_judged = report.status != "NoData"
            counts.setdefault(report.name, []).append(report.finding_count if is_judged else None)
        for finding in hook.findings() if arguments.show else []:
            print(name, finding.rule, finding.severity, finding.message)
    print("| rule | " + " | ".join(names) + " |")
    print("|---|" + "--:|" * len(names))
    for rule, row in counts.items():
        cells = ["–" if n is None else f"{10000 * n / arguments.steps:.0f}" for n in row]
        print(f"| {rule} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
