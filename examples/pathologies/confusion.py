"""Two digits with their labels exchanged in half of the training data: the network takes them for one another."""

from collections.abc import Sequence
from pathlib import Path

import torch
from pathology import Pathology, digits, evaluate, fit, main, mlp
from torch import nn

from tensortap.pytorch import Hook


def learn(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def train(out_dir: Path, is_sick: bool, rules: Sequence[str]) -> Hook:
    images, true_labels = digits()
    labels = true_labels.clone()
    if is_sick:
        half = torch.arange(len(labels)) % 2 == 0
        labels[half & (true_labels == 3)] = 5
        labels[half & (true_labels == 5)] = 3
    model = mlp(64, 32, 10)
    learn(model, images, labels)

    def after_step(hook: Hook, step: int) -> None:
        scores = evaluate(model, hook, images, true_labels)
        hook.record_tensor_value("labels", true_labels)
        hook.record_tensor_value("predictions", scores)

    return fit(
        model,
        out_dir,
        rules,
        steps=1,
        inputs=images,
        labels=labels,
        collections=("all",),
        save_raw_tensor=True,
        after_step=after_step,
    )


PATHOLOGY = Pathology(
    "Confusion:mode=EVAL,labels=labels_output_0,predictions=predictions_output_0",
    "^predictions_output_0$",
    train,
)

if __name__ == "__main__":
    main(PATHOLOGY)
