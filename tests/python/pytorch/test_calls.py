"""How modules are called: several times, around hooks, within backward passes, with results of every shape."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracle import every_step, fit, hooks_on, open_hook, train_twice
from torch import nn
from torch.utils.checkpoint import checkpoint
from trainings import mlp

import tensortap.pytorch as smd

Pair = namedtuple("Pair", ["first", "second"])


class Recurrence(nn.Module):
    """One layer, applied to its own result; the module calls itself, too."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
        x = torch.tanh(self.step(x))
        return x if depth == 1 else self.forward(x, depth - 1)


def test_calls_of_one_module_are_counted_within_the_step(tmp_path: Path) -> None:
    outputs: list[torch.Tensor] = []

    def train(model: Recurrence, hook: smd.Hook | None) -> list[torch.Tensor]:
        outputs.clear()
        handle = model.step.register_forward_hook(lambda m, i, o: outputs.append(o.detach() + 0))
        losses = fit(model, 2)
        handle.remove()
        return losses

    run = train_twice(tmp_path / "run", Recurrence, train)
    assert run.trial.tensor_names(regex="step_output") == [f"step_output_{i}" for i in range(3)]
    for call in range(3):
        np.testing.assert_array_equal(run.value(f"step_output_{call}", 1), outputs[3 + call])
    gradient = run.trial.tensor("gradient/Recurrence_step.weight")
    assert gradient.steps() == [0, 1]


class Tree(nn.Module):
    """A module that calls itself, as in networks over trees."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        hidden = torch.tanh(self.leaf(x))
        return hidden if depth == 0 else self(hidden, depth - 1) + self(hidden, depth - 1)


class Forest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tree(x, 2)


def test_calls_of_a_module_within_itself_count_on_in_the_order_they_end(tmp_path: Path) -> None:
    run = train_twice(tmp_path / "run", Forest, lambda model, hook: fit(model, 2))
    assert run.trial.steps() == [0, 1]
    assert len(run.trial.tensor_names(regex="^tree_output")) == 7
    assert len(run.trial.tensor_names(regex="^tree.leaf_output")) == 7
    np.testing.assert_array_equal(run.value("tree_output_6", 1), run.value("Forest_output_0", 1))


@dataclasses.dataclass
class Result:
    hidden: torch.Tensor
    label: str
    extra: list[torch.Tensor]


class Holder:
    """An object of the user's that nobody can look into."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Returns(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> Any:
        y = x * 2
        return {
            "dict": lambda: {"b": x, "a": y},
            "list": lambda: [x, [y]],
            "tuple": lambda: (x, (y, (x + y,))),
            "named_tuple": lambda: Pair(x, y),
            "dataclass": lambda: Result(x, "label", [y]),
            "none": lambda: None,
            "with_none": lambda: (None, x, 3, "text"),
            "object": lambda: Holder(x),
            "empty": lambda: [],
        }[self.kind]()


class Wrapping(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.odd = Returns(kind)
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.odd(x)
        return self.head(x)


LEAVES = {
    "dict": [1, 2],
    "list": [1, 2],
    "tuple": [1, 2, 3],
    "named_tuple": [1, 2],
    "dataclass": [1, 2],
    "none": [],
    "with_none": [1],
    "object": [],
    "empty": [],
}


@pytest.mark.parametrize("kind", LEAVES)
def test_every_tensor_in_a_result_has_its_place(tmp_path: Path, kind: str) -> None:
    ones = torch.ones(5, 4)
    run = train_twice(
        tmp_path / "run",
        lambda: Wrapping(kind),
        lambda model, hook: fit(model, 2, batch=ones.clone),
    )
    names = run.trial.tensor_names(regex="odd_output")
    assert [run.value(name, 1).max() for name in names] == LEAVES[kind]
    assert run.steps("gradient/Wrapping_head.weight") == [0, 1]


class KeywordModel(nn.Module):
    """Called the way Hugging Face models are: by keywords, giving a mapping with the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, *, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.head(torch.relu(self.body(input=inputs)))
        return {"loss": (logits - labels).pow(2).mean(), "logits": logits}


def test_keyword_arguments_and_a_loss_in_the_result(tmp_path: Path) -> None:
    def train(model: KeywordModel, hook: smd.Hook | None) -> list[torch.Tensor]:
        optimizer = torch.optim.Adam(model.parameters())
        losses = []
        for _ in range(2):
            loss = model(inputs=torch.randn(5, 4), labels=torch.ones(5, 1))["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    run = train_twice(tmp_path / "run", KeywordModel, train)
    assert run.value("KeywordModel_output_0", 1).shape == ()
    assert run.value("KeywordModel_output_1", 1).shape == (5, 1)


def test_inputs_given_by_keyword_are_recorded_after_the_positional_ones(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, a: torch.Tensor, *, b: torch.Tensor) -> torch.Tensor:
            return a + b

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.two = Two()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(x, b=x + 1)

    hook = open_hook(tmp_path / "run")
    model = Model()
    hook.register_module(model)
    model(torch.zeros(2))
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    assert [trial.tensor(f"two_input_{i}").value(0).max() for i in range(2)] == [0.0, 1.0]


class InPlace(nn.Module):
    """Everything that autograd allows to be written over: activations, additions, views."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.relu = nn.ReLU(inplace=True)
        self.second = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.relu(self.first(x))
        more = self.second(hidden)
        more += 1.0
        more[:, :2].mul_(0.5)
        return self.norm(more).view(-1)


def test_values_are_those_before_anybody_writes_over_them(tmp_path: Path) -> None:
    expected: list[torch.Tensor] = []

    def train(model: InPlace, hook: smd.Hook | None) -> list[torch.Tensor]:
        expected.clear()
        handles = [
            module.register_forward_hook(lambda m, i, o: expected.append(o.detach().clone()))
            for module in (model.first, model.second)
        ]
        losses = fit(model, 3)
        for handle in handles:
            handle.remove()
        return losses

    run = train_twice(tmp_path / "run", InPlace, train)
    for step in range(3):
        np.testing.assert_array_equal(run.value("first_output_0", step), expected[2 * step])
        np.testing.assert_array_equal(run.value("second_output_0", step), expected[2 * step + 1])
        assert run.value("first_output_0", step).min() < 0
        np.testing.assert_array_equal(
            run.value("relu_output_0", step), expected[2 * step].clamp(min=0)
        )


def test_a_module_gives_the_very_object_it_returned(tmp_path: Path) -> None:
    """A hook that returned something, or wrapped outputs for backward hooks, would give another."""

    class Same(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    model = nn.Sequential(Same(), Same())
    with open_hook(tmp_path / "run") as hook:
        hook.register_module(model)
        for value in (torch.ones(2, requires_grad=True), [torch.ones(2)], {"a": 1}):
            assert model(value) is value


def test_a_direct_forward_is_not_seen_and_harms_nothing(tmp_path: Path) -> None:
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.around = nn.Linear(4, 4)
            self.seen = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.seen(self.around.forward(x))

    run = train_twice(tmp_path / "run", Direct, lambda model, hook: fit(model, 2))
    assert run.trial.tensor_names(regex="^around") == []
    assert run.steps("seen_output_0") == [0, 1]
    # Its parameters and gradients do not depend on calls.
    assert run.steps("gradient/Direct_around.weight") == [0, 1]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_attention_and_the_fast_path_of_evaluation(tmp_path: Path) -> None:
    def train(model: Attention, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = fit(model, 2, batch=lambda: torch.randn(2, 3, 8))
        model.eval()
        if hook is not None:
            hook.set_mode(smd.modes.EVAL)
        with torch.no_grad():
            losses.append(model(torch.ones(2, 3, 8)).mean())
        return losses

    run = train_twice(tmp_path / "run", Attention, train)
    train_steps = {"mode": smd.modes.TRAIN}
    assert run.trial.steps(**train_steps) == []
    # The output projection is applied by a function, never called.
    assert run.trial.tensor_names(regex="self_attn.out_proj_output") == []
    assert run.steps("gradient/Attention_layer.self_attn.out_proj.weight") == [0, 1]
    # Whatever PyTorch decides about its fast path, the layer as a whole is seen; with hooks on its
    # children PyTorch takes the slow one.
    assert run.steps("layer_output_0") == [0, 1, 2]
    assert run.steps("layer.self_attn_output_0")[:2] == [0, 1]


def test_an_exception_inside_forward_leaves_the_next_steps_right(tmp_path: Path) -> None:
    class Fragile(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.first(x)
            if x.shape[0] == 3:
                raise MemoryError("the batch is too large")
            return self.second(self.first(hidden))

    def train(model: Fragile, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = fit(model, 1)
        with pytest.raises(MemoryError, match="too large"):
            fit(model, 1, batch=lambda: torch.randn(3, 4))
        return losses + fit(model, 2)

    run = train_twice(tmp_path / "run", Fragile, train)
    assert run.trial.steps() == [0, 1, 2, 3]
    assert run.steps("first_output_0") == [0, 1, 2, 3]
    assert run.steps("first_output_1") == [0, 2, 3]
    assert run.steps("first_output_2") == []
    assert run.steps("gradient/Fragile_first.weight") == [0, 2, 3]


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 1]), batch_first=True)
        output, (hidden, _) = self.rnn(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
        return self.head(padded) + hidden.mean()


def test_packed_sequences_give_their_data_and_not_their_batch_sizes(tmp_path: Path) -> None:
    run = train_twice(
        tmp_path / "run",
        Packed,
        lambda model, hook: fit(model, 2, batch=lambda: torch.randn(2, 3, 4)),
    )
    assert run.trial.tensor_names(regex="^rnn_input") == ["rnn_input_0"]
    assert run.value("rnn_input_0", 1).shape == (4, 4)
    shapes = [run.value(f"rnn_output_{i}", 1).shape for i in range(3)]
    assert shapes == [(4, 6), (1, 2, 6), (1, 2, 6)]
    assert run.steps("rnn_output_3") == []
    assert run.steps("gradient/Packed_rnn.weight_hh_l0") == [0, 1]


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.shared = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def part(y: torch.Tensor) -> torch.Tensor:
            return self.block(self.shared(y))

        hidden = checkpoint(part, self.shared(x), use_reentrant=self.use_reentrant)
        return self.head(hidden)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointed_blocks_are_recorded_once(tmp_path: Path, use_reentrant: bool) -> None:
    run = train_twice(
        tmp_path / "run", lambda: Checkpointed(use_reentrant), lambda model, hook: fit(model, 3)
    )
    assert run.trial.steps() == [0, 1, 2]
    assert run.steps("block_output_0") == run.steps("shared_output_1") == [0, 1, 2]
    assert run.trial.tensor_names(regex="output_[1-9]") == ["shared_output_1"]
    assert run.steps("gradient/Checkpointed_block.0.weight") == [0, 1, 2]


@pytest.mark.parametrize("interval", [1, 2])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_model_steps_once_a_batch(
    tmp_path: Path, use_reentrant: bool, interval: int
) -> None:
    """The registered module itself runs again in the backward pass."""

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(5):
            x = torch.randn(5, 4, requires_grad=True)
            loss = checkpoint(model, x, use_reentrant=use_reentrant).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    run = train_twice(
        tmp_path / "run",
        lambda: mlp(4, 8, 1),
        train,
        save_config=smd.SaveConfig(save_interval=interval),
    )
    steps = list(range(0, 5, interval))
    assert run.trial.steps() == steps
    assert run.trial.tensor_names(regex="output_[1-9]") == []
    assert run.steps("gradient/Sequential_0.weight") == steps


def test_a_gradient_is_the_sum_of_all_backward_passes(tmp_path: Path) -> None:
    """Two losses, each with its own backward pass over a retained graph, then one optimizer step."""
    gradients = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        gradients.clear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            output = model(torch.randn(5, 4))
            optimizer.zero_grad()
            output.pow(2).mean().backward(retain_graph=True)
            output.abs().sum().backward()
            gradients.append(model[0].weight.grad.clone())
            optimizer.step()
            losses.append(output.detach().sum())
        return losses

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1), train)
    name = "gradient/Sequential_0.weight"
    assert run.steps(name) == [0, 1, 2]
    for step in range(3):
        np.testing.assert_array_equal(run.value(name, step), gradients[step])


def test_double_backward_as_in_a_gradient_penalty(tmp_path: Path) -> None:
    gradients = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        gradients.clear()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = []
        for _ in range(3):
            x = torch.randn(5, 4, requires_grad=True)
            output = model(x).sum()
            (slope,) = torch.autograd.grad(output, x, create_graph=True)
            loss = output + (slope.norm() - 1).pow(2)
            optimizer.zero_grad()
            loss.backward()
            gradients.append(model[2].weight.grad.clone())
            optimizer.step()
            losses.append(loss.detach())
        return losses

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1, activation=nn.Tanh), train)
    for step in range(3):
        np.testing.assert_array_equal(
            run.value("gradient/Sequential_2.weight", step), gradients[step]
        )


def test_accumulated_gradients_are_those_the_optimizer_uses(tmp_path: Path) -> None:
    """Every forward pass is a step; the one before the optimizer's step has the whole sum."""
    used = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        used.clear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for micro in range(9):
            loss = model(torch.randn(5, 4)).pow(2).mean() / 3
            loss.backward()
            losses.append(loss.detach())
            if micro % 3 == 2:
                used.append(model[0].weight.grad.clone())
                optimizer.step()
                optimizer.zero_grad()
        return losses

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1), train)
    for index, gradient in enumerate(used):
        np.testing.assert_array_equal(
            run.value("gradient/Sequential_0.weight", 3 * index + 2), gradient
        )


def test_an_old_gradient_that_somebody_keeps_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    kept: list[torch.Tensor | None] = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        kept.clear()
        losses = fit(model, 1)
        for _ in range(4):
            model.zero_grad()
            loss = model(torch.randn(5, 4)).pow(2).mean()
            loss.backward()
            kept.append(model[0].weight.grad)
            losses.append(loss.detach())
        return losses

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1), train)
    # Zeroed before the forward pass, and no optimizer: only the last one can still be seen.
    np.testing.assert_array_equal(run.value("gradient/Sequential_0.weight", 4), kept[3])


def test_optimizers_that_step_within_the_backward_pass(tmp_path: Path) -> None:
    """One optimizer a parameter, called as soon as its gradient is there, which is then let go."""
    gradients: dict[int, list[torch.Tensor]] = {}

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        gradients.clear()
        optimizers = {p: torch.optim.Adam([p], lr=0.01) for p in model.parameters()}

        def update(parameter: torch.Tensor) -> None:
            gradients.setdefault(parameter.dim(), []).append(parameter.grad.clone())
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        handles = [p.register_post_accumulate_grad_hook(update) for p in model.parameters()]
        losses = []
        for _ in range(3):
            loss = model(torch.randn(5, 4)).pow(2).mean()
            loss.backward()
            losses.append(loss.detach())
        for handle in handles:
            handle.remove()
        return losses

    run = train_twice(tmp_path / "run", lambda: nn.Linear(4, 1), train)
    for step in range(3):
        for name, dimensions in (("weight", 2), ("bias", 1)):
            value = run.value(f"gradient/Linear_{name}", step)
            np.testing.assert_array_equal(value, gradients[dimensions][step])


def test_closures_of_lbfgs(tmp_path: Path) -> None:
    """Each evaluation of the closure is a forward pass, and so a step with its own gradients."""
    evaluated = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        evaluated.clear()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
        inputs = torch.randn(16, 4)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).pow(2).mean()
            loss.backward()
            evaluated.append((loss.item(), model[0].weight.grad.clone()))
            return loss

        return [optimizer.step(closure).detach() for _ in range(3)]

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1), train)
    assert len(run.trial.steps()) == len(evaluated)
    gradient = run.trial.tensor("gradient/Sequential_0.weight")
    assert gradient.steps() == run.trial.steps()
    for step in gradient.steps():
        np.testing.assert_array_equal(gradient.value(step), evaluated[step][1])


def test_integer_and_boolean_inputs_do_not_mind_reductions_made_for_floats(tmp_path: Path) -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 1)

        def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return self.head(self.embedding(batch["tokens"]) * batch["mask"].unsqueeze(-1))

    def batch() -> Any:
        return {
            "tokens": torch.tensor([[1, 2, 6]]),
            "mask": torch.tensor([[True, True, False]]),
            "lengths": torch.tensor([2**40 + 1], dtype=torch.int64),
        }

    reductions = smd.ReductionConfig(
        reductions=["min", "max", "mean", "std", "variance", "sum", "prod"],
        abs_reductions=["mean", "max"],
        norms=["l1", "l2"],
        abs_norms=["l1", "l2"],
    )
    run = train_twice(
        tmp_path / "run",
        Tokens,
        lambda model, hook: fit(model, 2, batch=batch),
        reduction_config=reductions,
    )
    tokens = run.trial.tensor("Tokens_input_0")
    assert tokens.reduction_value(1, "mean") == pytest.approx(3.0)
    assert tokens.reduction_value(1, "max", abs=True) == 6
    assert run.trial.tensor("Tokens_input_1").reduction_value(1, "mean") == pytest.approx(2 / 3)
    assert run.trial.tensor("Tokens_input_2").reduction_value(1, "max") == 2**40 + 1
    assert run.steps("embedding_input_0") == [0, 1]


def test_one_output_asked_for_is_one_module_hooked(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(24)))
    hook = open_hook(tmp_path / "run", include_regex="^7_output")
    hook.register_module(model)
    fit(model, 1)
    model(torch.ones(2, 4))
    hooked = [name for name in hooks_on(model) if not name.startswith("_global")]
    hook.close()
    assert [name for name in hooked if name[0] != "."] == ["7._forward_hooks"]
    assert smd.create_trial(tmp_path / "run").tensor_names(regex="_output_") == ["7_output_0"]


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp(3, 8, 4)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.layers(noise)


def gan_step(
    made: list[nn.Module], optimizers: list[torch.optim.Optimizer], seen: dict[str, list[Any]]
) -> torch.Tensor:
    """One step of the usual recipe; the discriminator is frozen while the generator learns."""
    generator, discriminator = made
    generator_optimizer, discriminator_optimizer = optimizers
    loss_of = nn.functional.binary_cross_entropy_with_logits
    fake = generator(torch.randn(5, 3))
    judged = [discriminator(torch.randn(5, 4)), discriminator(fake.detach())]
    loss = loss_of(judged[0], torch.ones(5, 1)) + loss_of(judged[1], torch.zeros(5, 1))
    discriminator_optimizer.zero_grad()
    loss.backward()
    seen["discriminator"].append(discriminator[0].weight.grad.clone())
    discriminator_optimizer.step()

    discriminator.requires_grad_(False)
    generator_loss = loss_of(discriminator(fake), torch.ones(5, 1))
    generator_optimizer.zero_grad()
    generator_loss.backward()
    seen["generator"].append(generator.layers[0].weight.grad.clone())
    generator_optimizer.step()
    discriminator.requires_grad_(True)
    return loss.detach() + generator_loss.detach()


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_two_networks_have_the_gradients_of_their_own_optimizers(
    tmp_path: Path, order: list[int]
) -> None:
    seen: dict[str, list[torch.Tensor]] = {}

    def train(made: list[nn.Module], hook: smd.Hook | None) -> list[torch.Tensor]:
        seen.update(discriminator=[], generator=[])
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in made]
        return [gan_step(made, optimizers, seen) for _ in range(4)]

    def register(hook: smd.Hook, made: list[nn.Module]) -> None:
        for index in order:
            hook.register_module(made[index])

    run = train_twice(
        tmp_path / "run", lambda: [Generator(), mlp(4, 8, 1)], train, register=register
    )
    # The generator runs once a batch and comes first: its forward pass is where a step begins.
    assert run.trial.steps() == [0, 1, 2, 3]
    for step in range(4):
        np.testing.assert_array_equal(
            run.value("gradient/Generator_layers.0.weight", step), seen["generator"][step]
        )
        np.testing.assert_array_equal(
            run.value("gradient/Sequential_0.weight", step), seen["discriminator"][step]
        )
    assert run.steps("Sequential_output_2") == [0, 1, 2, 3]


def test_models_of_one_class_get_names_of_their_own(tmp_path: Path) -> None:
    def train(made: list[nn.Module], hook: smd.Hook | None) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD([*made[0].parameters(), *made[1].parameters()], lr=0.1)
        losses = []
        for _ in range(2):
            x = torch.randn(5, 4)
            loss = (made[0](x) - made[1](x)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    run = train_twice(tmp_path / "run", lambda: [mlp(4, 2), mlp(4, 2)], train)
    assert run.trial.tensor_names(collection="gradients") == [
        "gradient/Sequential_0.bias",
        "gradient/Sequential_0.weight",
        "gradient/Sequential_1_0.bias",
        "gradient/Sequential_1_0.weight",
    ]
    np.testing.assert_array_equal(
        run.value("gradient/Sequential_0.bias", 1), -run.value("gradient/Sequential_1_0.bias", 1)
    )
    # Inner modules of both are called "0": the second model's get its name in front.
    first, second = run.value("0_output_0", 1), run.value("Sequential_1_0_output_0", 1)
    assert not np.array_equal(first, second)


def test_losses_hold_the_loss_only(tmp_path: Path) -> None:
    """A loss module's inputs, predictions and labels, are no losses."""

    def make() -> list[nn.Module]:
        return [mlp(4, 3), nn.CrossEntropyLoss()]

    def train(made: list[nn.Module], hook: smd.Hook | None) -> list[torch.Tensor]:
        model, criterion = made
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(2):
            loss = criterion(model(torch.randn(5, 4)), torch.tensor([0, 1, 2, 0, 1]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    def register(hook: smd.Hook, made: list[nn.Module]) -> None:
        hook.register_module(made[0])
        hook.register_loss(made[1])

    run = train_twice(tmp_path / "run", make, train, register=register, **every_step())
    assert run.trial.tensor_names(collection="losses") == ["CrossEntropyLoss_output_0"]
    np.testing.assert_array_equal(run.value("CrossEntropyLoss_input_1", 1), [0, 1, 2, 0, 1])
