"""Parameters of every kind, and those that change while training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracle import every_step, fit, train_twice
from torch import nn
from torch.nn.utils import parametrizations
from trainings import mlp

import tensortap.pytorch as smd


class Tied(nn.Module):
    """A language model in small: the decoder's weight is the embedding's."""

    def __init__(self, *, sparse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4, sparse=sparse)
        self.decoder = nn.Linear(4, 7, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.embedding(tokens))


def tokens() -> torch.Tensor:
    return torch.randint(0, 7, (6,))


def test_a_tied_weight_is_recorded_once_with_the_gradient_of_both_uses(tmp_path: Path) -> None:
    gradients = []

    def train(model: Tied, hook: smd.Hook | None) -> list[torch.Tensor]:
        gradients.clear()
        return fit(
            model,
            3,
            batch=tokens,
            before_step=lambda step: gradients.append(model.decoder.weight.grad.clone()),
        )

    run = train_twice(tmp_path / "run", Tied, train, include_collections=["weights", "gradients"])
    assert run.trial.tensor_names(collection="weights") == ["Tied_embedding.weight"]
    for step in range(3):
        for name in ("gradient/Tied_embedding.weight", "gradient/Tied_decoder.weight"):
            np.testing.assert_array_equal(run.value(name, step), gradients[step])
    assert run.hook.coverage().aliases == {"Tied_decoder.weight": "Tied_embedding.weight"}
    assert run.trial.tensor("Tied_decoder.weight").steps() == [0, 1, 2]


class SharedBlock(nn.Module):
    """One block under two names, called under both."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.decoder = self.encoder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(torch.tanh(self.encoder(x)))


def test_a_shared_module_keeps_its_first_name_and_counts_its_calls(tmp_path: Path) -> None:
    run = train_twice(tmp_path / "run", SharedBlock, lambda model, hook: fit(model, 2))
    assert run.trial.tensor_names(collection="weights") == ["SharedBlock_encoder.weight"]
    assert run.trial.tensor_names(regex="coder_output") == ["encoder_output_0", "encoder_output_1"]
    first, second = (run.value(f"encoder_output_{call}", 1) for call in (0, 1))
    np.testing.assert_array_equal(run.value("SharedBlock_output_0", 1), second)
    np.testing.assert_array_equal(run.value("decoder_output_1", 1), second)
    assert run.hook.coverage().aliases == {
        "decoder": "encoder",
        "SharedBlock_decoder.bias": "SharedBlock_encoder.bias",
        "SharedBlock_decoder.weight": "SharedBlock_encoder.weight",
    }
    assert not np.array_equal(first, second)


def test_gradients_appear_when_a_layer_is_unfrozen(tmp_path: Path) -> None:
    def make() -> nn.Module:
        model = mlp(4, 8, 1)
        model[0].requires_grad_(False)
        return model

    def train(model: nn.Sequential, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = fit(model, 3)
        model[0].requires_grad_(True)
        losses += fit(model, 2)
        model[2].requires_grad_(False)
        model[2].zero_grad()
        return losses + fit(model, 2)

    run = train_twice(tmp_path / "run", make, train)
    assert run.steps("Sequential_0.weight") == list(range(7))
    assert run.steps("Sequential_2.weight") == list(range(7))
    assert run.steps("gradient/Sequential_0.weight") == [3, 4, 5, 6]
    assert run.steps("gradient/Sequential_2.weight") == [0, 1, 2, 3, 4]


def test_a_fully_frozen_model_trains_as_a_feature_extractor(tmp_path: Path) -> None:
    """Nothing of the registered model is updated: there is no optimizer of its own."""

    def make() -> list[nn.Module]:
        return [mlp(4, 8).requires_grad_(False), nn.Linear(8, 1)]

    def train(made: list[nn.Module], hook: smd.Hook | None) -> list[torch.Tensor]:
        body, head = made
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            loss = head(body(torch.randn(5, 4))).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    run = train_twice(
        tmp_path / "run", make, train, register=lambda hook, made: hook.register_module(made[0])
    )
    assert run.trial.steps() == [0, 1, 2]
    assert run.trial.tensor_names(collection="gradients") == []


def test_layers_added_replaced_and_removed_while_training(tmp_path: Path) -> None:
    """A progressively grown network: new parameters join, replaced ones go on, removed ones end."""
    seen: dict[int, torch.Tensor] = {}

    def train(model: nn.Sequential, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = fit(model, 2)
        model.append(nn.Linear(2, 2))
        losses += fit(model, 2, before_step=lambda i: seen.update({i: model[3].weight.grad + 0}))
        model[0].weight = nn.Parameter(torch.ones(8, 4))
        losses += fit(model, 2)
        del model[3]
        return losses + fit(model, 1)

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 2), train)
    assert run.steps("Sequential_3.weight") == [2, 3, 4, 5]
    assert run.steps("gradient/Sequential_3.weight") == [2, 3, 4, 5]
    np.testing.assert_array_equal(run.value("gradient/Sequential_3.weight", 3), seen[1])
    assert run.steps("gradient/Sequential_0.weight") == list(range(7))
    np.testing.assert_array_equal(run.value("Sequential_0.weight", 4), np.ones((8, 4)))
    # The new layer's outputs too: modules are looked up anew like parameters.
    assert run.steps("3_output_0") == [2, 3, 4, 5]


def test_a_replaced_parameter_is_followed_without_an_optimizer(tmp_path: Path) -> None:
    """By-hand updates: gradients come from autograd alone, also after the parameter was replaced."""

    def train(model: nn.Linear, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = []
        for step in range(4):
            if step == 2:
                model.weight = nn.Parameter(torch.full((1, 4), 0.5))
            loss = model(torch.ones(2, 4)).sum()
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                model.weight -= 0.1 * model.weight.grad
            losses.append(loss.detach())
        return losses

    run = train_twice(tmp_path / "run", lambda: nn.Linear(4, 1), train)
    assert run.steps("gradient/Linear_weight") == [0, 1, 2, 3]
    np.testing.assert_array_equal(run.value("gradient/Linear_weight", 3), np.full((1, 4), 2.0))
    np.testing.assert_array_equal(run.value("Linear_weight", 2), np.full((1, 4), 0.5))


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.SparseAdam])
def test_a_sparse_gradient_does_not_hide_the_dense_ones(
    tmp_path: Path, optimizer_class: Any
) -> None:
    norms = []

    def train(made: list[nn.Module], hook: smd.Hook | None) -> list[torch.Tensor]:
        embedding, head = made
        optimizers = [
            optimizer_class(embedding.parameters(), lr=0.1),
            torch.optim.SGD(head.parameters(), lr=0.1),
        ]
        norms.clear()
        losses = []
        for _ in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = head(embedding(torch.tensor([1, 1, 4, 9]))).pow(2).mean()
            loss.backward()
            norms.append(embedding.weight.grad.to_dense().double().norm().item())
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.detach())
        return losses

    run = train_twice(
        tmp_path / "run", lambda: [nn.Embedding(10, 3, sparse=True), nn.Linear(3, 1)], train
    )
    gradient = run.trial.tensor("gradient/Embedding_weight")
    assert [gradient.statistics(step).l2 for step in range(3)] == pytest.approx(norms, rel=1e-6)
    # Three rows are stored, the repeated one once.
    assert gradient.value(0).shape == (3, 3)
    assert gradient.statistics(0).count == 9
    assert run.steps("gradient/Linear_weight") == [0, 1, 2]


class ComplexNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))
        self.phase = nn.Parameter(torch.randn(3, dtype=torch.complex128))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x.to(torch.complex64) @ self.weight.conj()) * self.phase).abs()


def test_complex_parameters_have_statistics_of_their_magnitude(tmp_path: Path) -> None:
    gradients = []

    def train(model: ComplexNet, hook: smd.Hook | None) -> list[torch.Tensor]:
        gradients.clear()
        return fit(model, 2, before_step=lambda step: gradients.append(model.weight.grad.clone()))

    run = train_twice(tmp_path / "run", ComplexNet, train)
    gradient = run.trial.tensor("gradient/ComplexNet_weight")
    np.testing.assert_array_equal(gradient.value(1), gradients[1].resolve_conj().numpy())
    magnitude = gradients[1].to(torch.complex128).abs()
    row = gradient.statistics(1)
    assert row.max == pytest.approx(magnitude.max().item(), rel=1e-6)
    assert row.mean == pytest.approx(magnitude.mean().item(), rel=1e-6)
    assert run.value("ComplexNet_phase", 0).dtype == np.complex128


class OddShapes(nn.Module):
    """A scalar, a single element, and nothing at all."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.single = nn.Parameter(torch.tensor([2.0]))
        self.nothing = nn.Parameter(torch.empty(0, 3))
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.temperature * self.single + self.nothing.sum()


def test_scalars_single_elements_and_empty_parameters(tmp_path: Path) -> None:
    run = train_twice(tmp_path / "run", OddShapes, lambda model, hook: fit(model, 2))
    scalar = run.trial.tensor("OddShapes_temperature")
    assert scalar.value(0).shape == ()
    assert float(scalar.value(0)) == 1.5
    row = run.trial.tensor("OddShapes_single").statistics(0)
    assert (row.count, row.mean, row.variance) == (1, 2.0, 0.0)
    empty = run.trial.tensor("OddShapes_nothing")
    assert empty.value(0).shape == (0, 3)
    assert empty.statistics(0).count == 0
    assert run.steps("gradient/OddShapes_nothing") == [0, 1]
    assert run.steps("gradient/OddShapes_temperature") == [0, 1]


class Layouts(nn.Module):
    """Memory in other orders: a transposed weight, a channels-last convolution, expanded and sliced values."""

    def __init__(self) -> None:
        super().__init__()
        self.transposed = nn.Parameter(torch.randn(4, 6).t())
        self.conv = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
        self.inner = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = x.new_ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
        mixed = self.inner((self.conv(image), x[:1].expand(1000, 4), x[::2, 1::2], x.flip(0).t()))
        return mixed[0].mean() + (x @ self.transposed.t()).mean() + mixed[1].mean()


def test_values_do_not_depend_on_how_the_memory_lies(tmp_path: Path) -> None:
    inputs = []

    def train(model: Layouts, hook: smd.Hook | None) -> list[torch.Tensor]:
        inputs.clear()

        def batch() -> torch.Tensor:
            inputs.append(torch.randn(5, 4))
            return inputs[-1]

        return fit(model, 2, batch=batch)

    run = train_twice(tmp_path / "run", Layouts, train)
    x = inputs[1].numpy()
    assert run.value("Layouts_transposed", 0).shape == (6, 4)
    assert not run.made.transposed.is_contiguous()
    np.testing.assert_array_equal(run.value("inner_input_1", 1), np.broadcast_to(x[:1], (1000, 4)))
    np.testing.assert_array_equal(run.value("inner_output_2", 1), x[::2, 1::2])
    np.testing.assert_array_equal(run.value("inner_output_3", 1), x[::-1].T)
    convolved = run.value("inner_output_0", 1)
    with torch.no_grad():
        contiguous = convolved.transpose(0, 2, 3, 1).reshape(-1, 5)
    row = run.trial.tensor("inner_output_0").statistics(1)
    assert row.mean == pytest.approx(contiguous.astype(np.float64).mean(), rel=1e-9)
    assert run.trial.tensor("inner_input_1").statistics(1).count == 4000


def test_weight_norm_shows_magnitude_direction_and_effective_weight(tmp_path: Path) -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            parametrizations.weight_norm(nn.Linear(4, 3)),
            parametrizations.orthogonal(nn.Linear(3, 3)),
        )

    weights = []

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        weights.append(model[0].weight.detach().clone())
        return fit(model, 2)

    run = train_twice(tmp_path / "run", make, train)
    names = [
        "Sequential_0.parametrizations.weight.original0",
        "Sequential_0.parametrizations.weight.original1",
        "Sequential_1.parametrizations.weight.original",
    ]
    for name in names:
        assert run.steps(name) == run.steps(f"gradient/{name}") == [0, 1]
    # The effective weight is no parameter; it is what the parametrization gives.
    np.testing.assert_array_equal(run.value("0.parametrizations.weight_output_0", 0), weights[1])


def test_lazy_modules_are_recorded_from_their_first_forward_on(tmp_path: Path) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(1))

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = [model(torch.randn(5, 4)).pow(2).mean().detach()]
        return losses + fit(model, 3)

    run = train_twice(tmp_path / "run", make, train)
    assert run.trial.steps() == [0, 1, 2, 3]
    assert run.steps("Sequential_0.weight") == [1, 2, 3]
    assert run.steps("gradient/Sequential_2.weight") == [1, 2, 3]
    assert run.steps("0_output_0") == [0, 1, 2, 3]
    assert run.value("Sequential_0.weight", 1).shape == (6, 4)


class Quantized(nn.Module):
    """int8 weights as people keep them: in buffers, and as the output of a quantizing module."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Identity()
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = torch.tensor([-128, -1, 0, 127])
        self.codes((values.to(torch.int8), (values + 128).to(torch.uint8), values > 0))
        self.codes(torch.quantize_per_tensor(torch.tensor([-1.0, 0.26, 3.0]), 0.5, 3, torch.qint8))
        return self.head(x)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_integers_are_summarized_in_wide_arithmetic_and_quantized_values_dequantized(
    tmp_path: Path,
) -> None:
    run = train_twice(tmp_path / "run", Quantized, lambda model, hook: fit(model, 2))
    signed = run.trial.tensor("codes_output_0")
    np.testing.assert_array_equal(signed.value(1), np.array([-128, -1, 0, 127], np.int8))
    assert (signed.statistics(1).min, signed.statistics(1).mean) == (-128.0, -0.5)
    assert signed.statistics(1).abs_max == 128.0
    assert run.trial.tensor("codes_output_1").statistics(1).max == 255.0
    assert run.trial.tensor("codes_output_2").statistics(1).mean == 0.25
    np.testing.assert_array_equal(run.value("codes_output_3", 1), [-1.0, 0.5, 3.0])


@pytest.mark.parametrize("poison", ["one_of_each", "all_nan", "all_inf"])
def test_gradients_that_are_not_finite_are_counted(tmp_path: Path, poison: str) -> None:
    def poisoned(gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.clone()
        if poison == "one_of_each":
            gradient.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
        else:
            gradient.fill_(float(poison[4:]))
        return gradient

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = fit(model, 1)
        handle = model[0].weight.register_hook(poisoned)
        losses += fit(model, 1)
        handle.remove()
        return losses

    run = train_twice(
        tmp_path / "run", lambda: mlp(4, 8, 1), train, **every_step(save_raw_tensor=False)
    )
    row = run.trial.tensor("gradient/Sequential_0.weight").statistics(1)
    counts = (row.count, row.nan_count, row.positive_inf_count, row.negative_inf_count)
    assert (
        counts
        == {
            "one_of_each": (32, 1, 1, 1),
            "all_nan": (32, 32, 0, 0),
            "all_inf": (32, 0, 32, 0),
        }[poison]
    )
    assert run.trial.tensor("gradient/Sequential_0.weight").statistics(0).nan_count == 0


def test_a_model_may_change_its_dtype_between_steps(tmp_path: Path) -> None:
    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        losses = fit(model, 2)
        model.double()
        return losses + fit(model, 2, batch=lambda: torch.randn(5, 4, dtype=torch.float64))

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1), train)
    for name in ("Sequential_0.weight", "gradient/Sequential_0.weight", "0_output_0"):
        assert [run.value(name, step).dtype.itemsize for step in range(4)] == [4, 4, 8, 8]


class Wrapper(torch.Tensor):
    """A tensor made of another, somewhere inside a storage that it does not have."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), dtype=inner.dtype, storage_offset=64
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.ops.aten.detach.default:
            return Wrapper(args[0].inner)
        raise NotImplementedError(str(function))


class Named(torch.Tensor):
    """A tensor with something of the user's on it."""


class Subclasses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.odd = nn.Identity()
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(3)
        jagged = torch.nested.nested_tensor([ones, torch.ones(2)], layout=torch.jagged)
        self.odd((Wrapper(ones), ones.as_subclass(Named) * 2, jagged))
        return self.head(x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_of_other_classes_are_read_or_left_out(tmp_path: Path) -> None:
    run = train_twice(tmp_path / "run", Subclasses, lambda model, hook: fit(model, 2))
    assert run.steps("odd_output_0") == []
    np.testing.assert_array_equal(run.value("odd_output_1", 1), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(run.value("odd_output_2", 1), np.ones(5))


def test_functional_calls_and_per_sample_gradients(tmp_path: Path) -> None:
    """torch.func gives the model other tensors as parameters, and batches that cannot be read."""

    def train(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
        parameters = {name: value.detach() for name, value in model.named_parameters()}

        def loss_of(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(model, values, (x,)).pow(2).mean()

        x = torch.randn(5, 4)
        per_sample = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))(parameters, x)
        return [*(value.sum() for value in per_sample.values()), *fit(model, 2)]

    run = train_twice(tmp_path / "run", lambda: mlp(4, 8, 1), train)
    # Nothing of the functional call could be read, and its step holds nothing.
    assert run.trial.steps() == run.steps("gradient/Sequential_0.weight") == [1, 2]
