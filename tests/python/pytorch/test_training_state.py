"""What else a training holds: learning rates, optimizer state, times, clipping, loss scaling, a model's own losses."""

from __future__ import annotations

import copy
import dataclasses
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad, clip_grad_norm_, clip_grad_value_
from trainings import mlp

import tensortap.pytorch as smd
from tensortap.trial import Trial


def open_hook(path: Path, **arguments: Any) -> smd.Hook:
    arguments.setdefault("save_config", smd.SaveConfig(save_interval=1))
    arguments.setdefault("reduction_config", smd.ReductionConfig(save_raw_tensor=True))
    return smd.Hook(path / "run", strict=True, **arguments)


def read(path: Path) -> Trial:
    return smd.create_trial(path / "run")


def scalars(trial: Trial, name: str) -> dict[int, float]:
    return {step: float(value) for step, value in trial.tensor(name).values().items()}


def batch() -> torch.Tensor:
    return torch.randn(8, 4)


# ---------------------------------------------------------------- optimizers


def test_learning_rates_are_those_the_step_used(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    first = torch.optim.Adam(
        [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].weight, "lr": 0.01}]
    )
    second = torch.optim.Adam([model[2].bias], lr=torch.tensor(0.5))
    schedule = torch.optim.lr_scheduler.StepLR(first, step_size=1, gamma=0.5)
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        for _ in range(3):
            model(batch()).sum().backward()
            first.step()
            second.step()
            schedule.step()
    trial = read(tmp_path)
    assert scalars(trial, "learning_rate/Adam/0") == pytest.approx({0: 0.1, 1: 0.05, 2: 0.025})
    assert scalars(trial, "learning_rate/Adam/1") == pytest.approx({0: 0.01, 1: 0.005, 2: 0.0025})
    assert scalars(trial, "learning_rate/Adam_1/0") == {0: 0.5, 1: 0.5, 2: 0.5}
    assert len(trial.tensor_names(collection="learning_rates")) == 3


def test_optimizer_state_is_what_the_step_left(tmp_path: Path) -> None:
    model = mlp(4, 3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    expected = []
    with open_hook(tmp_path, include_collections=["optimizer_variables"]) as hook:
        hook.register_module(model)
        for _ in range(3):
            optimizer.zero_grad()
            model(batch()).pow(2).sum().backward()
            optimizer.step()
            expected.append(optimizer.state[model[0].weight]["exp_avg_sq"].clone())
    trial = read(tmp_path)
    names = trial.tensor_names(collection="optimizer_variables")
    assert len(names) == 4 * 2
    assert trial.tensor_names(collection="weights") == []
    tensor = trial.tensor("optimizer/Sequential_0.weight/exp_avg_sq")
    for step, value in enumerate(expected):
        np.testing.assert_array_equal(tensor.value(step), value)


def test_optimizer_state_comes_when_it_is_asked_for(tmp_path: Path) -> None:
    settings = {
        "asked": {"include_collections": ["optimizer_variables"]},
        "all": {"save_all": True},
        "default": {},
    }
    for name, arguments in settings.items():
        model = mlp(4, 3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with open_hook(tmp_path / name, **arguments) as hook:
            hook.register_module(model)
            model(batch()).sum().backward()
            optimizer.step()
    assert "optimizer/Sequential_2.bias/momentum_buffer" in read(tmp_path / "asked").tensor_names()
    everything = read(tmp_path / "all").tensor_names()
    extras = ("optimizer/", "update_ratio", "gradient_before")
    assert not [name for name in everything if name.startswith(extras)]
    assert read(tmp_path / "default").tensor_names() == ["learning_rate/SGD/0"]


def test_update_ratio_is_the_update_over_the_weight_before_it(tmp_path: Path) -> None:
    model = mlp(4, 3, 1)
    with torch.no_grad():
        model[2].bias.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = {}
    with open_hook(tmp_path, include_collections=["update_ratios"], save_all=True) as hook:
        hook.register_module(model)
        for step in range(3):
            optimizer.zero_grad()
            model(batch()).pow(2).sum().backward()
            before = model[0].weight.detach().double()
            optimizer.step()
            update = model[0].weight.detach().double() - before
            expected[step] = (update.norm() / before.norm()).item()
    trial = read(tmp_path)
    assert scalars(trial, "update_ratio/Sequential_0.weight") == pytest.approx(expected, rel=1e-5)
    # At step 0 the bias is zero: a ratio to nothing is none.
    assert trial.tensor("update_ratio/Sequential_2.bias").steps() == [1, 2]


def test_a_regex_for_weights_brings_no_extras_unless_it_names_them(tmp_path: Path) -> None:
    expected = {
        "_0.weight": ["Sequential_0.weight", "gradient/Sequential_0.weight"],
        "optimizer/.*0.weight": ["optimizer/Sequential_0.weight/momentum_buffer"],
        "update_ratio/.*0.weight": ["update_ratio/Sequential_0.weight"],
    }
    for number, (regex, names) in enumerate(expected.items()):
        model = mlp(4, 3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with open_hook(tmp_path / str(number), include_regex=regex) as hook:
            hook.register_module(model)
            model(batch()).sum().backward()
            optimizer.step()
        assert read(tmp_path / str(number)).tensor_names(collection="default") == names


# ---------------------------------------------------------------- times


@pytest.mark.parametrize("interval", [1, 5])
def test_times_of_the_step_before_and_of_the_wait_for_data(tmp_path: Path, interval: int) -> None:
    import time

    model = mlp(4, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with open_hook(tmp_path, save_config=smd.SaveConfig(save_interval=interval)) as hook:
        hook.register_module(model)
        for _ in range(11):
            model(batch()).sum().backward()
            time.sleep(0.004)
            optimizer.step()
            time.sleep(0.02)
    trial = read(tmp_path)
    expected_steps = list(range(interval, 11, interval))
    for name, least in {"step_time": 0.024, "data_time": 0.02}.items():
        times = scalars(trial, name)
        assert list(times) == expected_steps
        assert all(least <= value < least + 0.1 for value in times.values())
    ratios = [scalars(trial, "step_time")[s] - scalars(trial, "data_time")[s] for s in times]
    assert all(value >= 0.004 for value in ratios)


def test_steps_that_nobody_timed_leave_no_time(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    modes = {
        smd.modes.TRAIN: smd.SaveConfigMode(save_interval=100),
        smd.modes.EVAL: smd.SaveConfigMode(save_interval=1),
    }
    with open_hook(tmp_path, save_config=smd.SaveConfig(modes)) as hook:
        hook.register_module(model)
        hook.set_mode(smd.modes.TRAIN)
        for _ in range(10):
            model(batch())
        hook.set_mode(smd.modes.EVAL)
        with torch.no_grad():
            for _ in range(3):
                model(batch())
    trial = read(tmp_path)
    # The first EVAL step follows steps that were let pass.
    assert trial.tensor("step_time").steps(mode=smd.modes.EVAL) == [1, 2]
    assert trial.tensor("data_time").steps(mode=smd.modes.EVAL) == [1, 2]


# ---------------------------------------------------------------- clipping


def test_the_norm_before_clipping_through_a_name_imported_before(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    other = mlp(4, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms, before, after = {}, [], []
    include = ["gradients", "gradients_before_clipping"]
    with open_hook(tmp_path, include_collections=include) as hook:
        hook.register_module(model)
        for step in range(3):
            optimizer.zero_grad()
            model(batch()).pow(2).sum().mul(100).backward()
            before.append(model[0].weight.grad.clone())
            norms[step] = float(clip_grad_norm_(model.parameters(), 1.0))
            other(batch()).sum().backward()
            clip_grad_norm_(other.parameters(), 1.0)  # not registered
            after.append(model[0].weight.grad.clone())
            optimizer.step()
    trial = read(tmp_path)
    assert scalars(trial, "gradient_norm/before_clipping") == pytest.approx(norms)
    assert trial.tensor_names(collection="gradient_norms") == ["gradient_norm/before_clipping"]
    gradients = trial.tensor_names(collection="gradients")
    assert len(gradients) == 4
    assert all(name.startswith("gradient/") for name in gradients)
    for step in range(3):
        name = "Sequential_0.weight"
        unclipped = trial.tensor(f"gradient_before_clipping/{name}").value(step)
        np.testing.assert_array_equal(unclipped, before[step])
        np.testing.assert_array_equal(trial.tensor(f"gradient/{name}").value(step), after[step])


def test_clipping_by_value_and_in_two_calls(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with open_hook(tmp_path, include_collections=["gradients_before_clipping"]) as hook:
        hook.register_module(model)
        model(batch()).pow(2).sum().mul(100).backward()
        before = model[2].weight.grad.clone()
        clip_grad_value_(model.parameters(), 0.01)  # a generator: looked at, not used up
        assert model[2].weight.grad.abs().max() <= 0.01
        gradients = [p.grad for p in model.parameters()]
        norm = torch.nn.utils.get_total_norm(gradients)
        torch.nn.utils.clip_grads_with_norm_(list(model.parameters()), 1.0, norm)
        optimizer.step()
    trial = read(tmp_path)
    name = "gradient_before_clipping/Sequential_2.weight"
    assert np.abs(trial.tensor(name).value(0)).max() <= 0.01  # of the last call
    assert before.abs().max() > 0.01
    assert scalars(trial, "gradient_norm/before_clipping")[0] == pytest.approx(float(norm))


def contents_of_torch() -> list[Any]:
    functions = [clip_grad_norm_, clip_grad_value_, clip_grad._clip_grads_with_norm_]
    cells = [cell.cell_contents for function in functions for cell in function.__closure__]
    return [*cells, torch.amp.GradScaler.step, torch.amp.GradScaler.scale]


def test_torch_is_as_before_when_the_last_hook_has_closed(tmp_path: Path) -> None:
    gc.collect()  # hooks of other tests that nobody closed
    before = contents_of_torch()
    hooks = [open_hook(tmp_path / str(i)) for i in range(2)]
    models = [mlp(4, 8, 1) for _ in hooks]
    for hook, model in zip(hooks, models, strict=True):
        hook.register_module(model)
        model(batch())
    assert contents_of_torch() != before
    hooks[0].close()
    models[1](batch()).sum().backward()
    clip_grad_norm_(models[1].parameters(), 0.1)
    hooks[1].close()
    assert contents_of_torch() == before
    assert read(tmp_path / "1").tensor("gradient_norm/before_clipping").steps() == [1]


def test_clipping_with_errors_and_options_is_torchs(tmp_path: Path) -> None:
    model = mlp(4, 1)
    with open_hook(tmp_path) as hook:
        hook.register_module(model)
        model(batch()).sum().backward()
        twin = copy.deepcopy(model)
        for parameter, own in zip(twin.parameters(), model.parameters(), strict=True):
            parameter.grad = own.grad.clone()
        assert clip_grad_norm_(model.parameters(), max_norm=0.1, norm_type=1.0) > 0
        clip_grad_norm_(twin.parameters(), max_norm=0.1, norm_type=1.0)
        assert torch.equal(model[0].weight.grad, twin[0].weight.grad)
        clip_grad_norm_(model[0].weight, 0.1)
        with pytest.warns(UserWarning, match="empty generator"):
            clip_grad_norm_((p for p in []), 1.0)
        model[0].weight.grad.fill_(float("nan"))
        with pytest.raises(RuntimeError, match="non-finite"):
            clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)


# ---------------------------------------------------------------- loss scaling


class Half(nn.Module):
    """Overflows when asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        return self.layer(x).sum() * factor


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_steps_that_a_scaler_skips_are_marked_and_no_nan(
    tmp_path: Path, fused: bool, clip: bool
) -> None:
    model = Half()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    include = ["gradients", "gradients_before_clipping", "update_ratios", "optimizer_variables"]
    skipped = {0, 3}  # the first, too, when no optimizer has been seen yet
    gradients, scales = {}, {}
    with open_hook(tmp_path, include_collections=include) as hook:
        hook.register_module(model)
        for step in range(6):
            optimizer.zero_grad()
            loss = model(batch(), float("inf") if step in skipped else 1.0)
            scales[step] = scaler.get_scale()
            scaler.scale(loss).backward()
            gradients[step] = model.layer.weight.grad / scaler.get_scale()
            if clip:
                scaler.unscale_(optimizer)
                clip_grad_norm_(model.parameters(), 1e9)
            scaler.step(optimizer)
            scaler.update()
        assert hook.fault_count == 0
    trial = read(tmp_path)
    good = [step for step in range(6) if step not in skipped]
    assert scalars(trial, "skipped_step") == {0: 1.0, 3: 1.0}
    assert scalars(trial, "loss_scale") == scales
    assert scales[1] == 512.0
    gradient = trial.tensor("gradient/Half_layer.weight")
    assert gradient.steps() == good
    for step in good:
        np.testing.assert_allclose(gradient.value(step), gradients[step], rtol=1e-6)
    assert trial.tensor("update_ratio/Half_layer.weight").steps() == good
    assert trial.tensor("optimizer/Half_layer.weight/exp_avg").steps() == good
    if clip:
        assert trial.tensor("gradient_norm/before_clipping").steps() == good
        assert trial.tensor("gradient_before_clipping/Half_layer.weight").steps() == good
    for name in trial.tensor_names():
        for step in trial.tensor(name).steps():
            statistics = trial.tensor(name).statistics(step)
            assert statistics.nan_count == 0, (name, step)


def test_micro_batches_under_a_scaler_show_gradients_without_the_scale(tmp_path: Path) -> None:
    model = Half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    expected = {}
    with open_hook(tmp_path, include_collections=["gradients"]) as hook:
        hook.register_module(model)
        for step in range(6):
            scaler.scale(model(batch(), 1.0)).backward()
            expected[step] = model.layer.weight.grad / scaler.get_scale()
            if step % 2:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    gradient = read(tmp_path).tensor("gradient/Half_layer.weight")
    assert gradient.steps() == list(range(6))
    for step, value in expected.items():
        np.testing.assert_allclose(gradient.value(step), value, rtol=1e-6)


def test_a_scaler_that_is_off_and_one_of_another_model_change_nothing(tmp_path: Path) -> None:
    model, other = Half(), Half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    foreign = torch.optim.SGD(other.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with open_hook(tmp_path, include_collections=["gradients"]) as hook:
        hook.register_module(model)
        for _ in range(2):
            scaler.scale(model(batch(), 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
    trial = read(tmp_path)
    assert trial.tensor("gradient/Half_layer.weight").steps() == [0, 1]
    assert trial.tensor_names(collection="loss_scaling") == []
    with open_hook(tmp_path / "other", include_collections=["gradients"]) as hook:
        hook.register_module(model)
        hot = torch.amp.GradScaler("cpu", init_scale=256.0)
        model(batch(), 1.0)
        hot.scale(other(batch(), float("inf"))).backward()
        hot.step(foreign)
    assert "skipped_step" not in read(tmp_path / "other").tensor_names()


# ---------------------------------------------------------------- the model's own losses, and its inputs


@dataclasses.dataclass
class Answer:
    loss: torch.Tensor | None
    logits: torch.Tensor


class Talker(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        logits = self.layer(x)
        loss = (logits - labels).pow(2).mean() if labels is not None else None
        if self.form == "dict":
            return {"loss": loss, "loss_box": loss * 2, "logits": logits}
        return Answer(loss, logits)


@pytest.mark.parametrize("form", ["object", "dict"])
def test_losses_that_the_model_returns(tmp_path: Path, form: str) -> None:
    model = Talker(form)
    expected = {}
    with open_hook(tmp_path, include_collections=["model_inputs"]) as hook:
        hook.register_module(model)
        for step in range(2):
            output = model(batch(), labels=torch.ones(8, 1))
            loss = output["loss"] if form == "dict" else output.loss
            expected[step] = loss.item()
    trial = read(tmp_path)
    assert scalars(trial, "Talker_loss_output_0") == pytest.approx(expected)
    losses = ["Talker_loss_output_0"]
    if form == "dict":
        losses.append("Talker_loss_box_output_0")
    assert trial.tensor_names(collection="losses") == sorted(losses)
    assert trial.tensor_names(collection="model_inputs") == ["Talker_input_0", "Talker_input_1"]
    assert trial.tensor("Talker_input_1").shape(0) == (8, 1)


# ---------------------------------------------------------------- collections by class


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(x)


class Zoo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.mine = Attention()
        self.theirs = nn.MultiheadAttention(4, 2, batch_first=True)
        self.act = nn.LeakyReLU()
        self.squash = nn.Tanh()
        self.gate = nn.Sigmoid()
        self.norm = nn.LayerNorm(4)
        self.batch = nn.BatchNorm1d(4)
        self.plain = nn.GELU()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.mine(self.words(tokens))
        x, _ = self.theirs(x, x, x)
        for _ in range(7):
            x = self.act(x)
        x = self.norm(self.plain(self.gate(self.squash(x))))
        return self.batch(x.flatten(0, 1)).sum()


@pytest.mark.parametrize(
    ("collection", "names"),
    [
        ("relu_output", [f"act_output_{i}" for i in range(7)]),
        ("relu_input", [f"act_input_{i}" for i in range(7)]),
        ("tanh_input", ["squash_input_0"]),
        ("sigmoid_input", ["gate_input_0"]),
        ("attention_output", ["mine_output_0", "theirs_output_0", "theirs_output_1"]),
        ("embedding_input", ["words_input_0"]),
        ("normalization_output", ["batch_output_0", "norm_output_0"]),
    ],
)
def test_collections_filled_by_module_class(
    tmp_path: Path, collection: str, names: list[str]
) -> None:
    model = Zoo()
    with open_hook(tmp_path, include_collections=[collection]) as hook:
        hook.register_module(model)
        for _ in range(2):
            model(torch.randint(10, (2, 3))).backward()
    trial = read(tmp_path)
    assert trial.tensor_names(collection=collection) == names
    assert set(trial.tensor_names()) == {*names, "step_time"}
    assert trial.tensor(names[-1]).steps() == [0, 1]


def test_save_all_fills_the_collections_by_class_too(tmp_path: Path) -> None:
    model = Zoo()
    with open_hook(tmp_path, save_all=True) as hook:
        hook.register_module(model)
        model(torch.randint(10, (2, 3))).backward()
    trial = read(tmp_path)
    assert len(trial.tensor_names(collection="relu_output")) == 7
    assert trial.tensor_names(collection="embedding_input") == ["words_input_0"]
    np.testing.assert_array_equal(
        trial.tensor("words_input_0").value(0), trial.tensor("Zoo_input_0").value(0)
    )
