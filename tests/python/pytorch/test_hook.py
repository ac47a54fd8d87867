"""What the PyTorch hook records in ordinary training loops, and under which names."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from trainings import NET_PARAMETERS, Net, image_batches, mlp, train_mlp

import tensortap
import tensortap.pytorch as smd
from tensortap.exceptions import InvalidArgumentError, RunExistsError
from tensortap.rules import Rule, invoke_rule


def every_step(**reduction: bool) -> dict[str, object]:
    return {
        "save_config": smd.SaveConfig(save_interval=1),
        "reduction_config": smd.ReductionConfig(**reduction),
    }


def test_smdebug_script_gives_smdebug_names_and_values(tmp_path: Path) -> None:
    out_dir = str(tmp_path / "run")
    net = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    hook = smd.Hook(
        out_dir=out_dir,
        save_config=smd.SaveConfig(save_interval=10),
        include_collections=["gradients", "biases"],
    )
    hook.register_module(net)
    hook.register_loss(criterion)
    biases, losses = {}, {}
    for step, (images, labels) in enumerate(image_batches(21)):
        biases[step] = net.conv1.bias.detach().clone().numpy()
        optimizer.zero_grad()
        outputs = net(images)
        loss = criterion(outputs, labels)
        hook.record_tensor_value(tensor_name="loss", tensor_value=loss)
        losses[step] = loss.item()
        loss.backward()
        optimizer.step()
    hook.close()

    trial = smd.create_trial(path=out_dir)
    expected = ["CrossEntropyLoss_output_0", "loss_output_0"]
    expected += ["data_time", "learning_rate/SGD/0", "step_time"]
    expected += [f"Net_{name}" for name in NET_PARAMETERS if name.endswith("bias")]
    expected += [f"gradient/Net_{name}" for name in NET_PARAMETERS]
    assert trial.tensor_names() == sorted(expected)
    assert trial.steps() == [0, 10, 20]
    values = trial.tensor("Net_conv1.bias").values()
    assert list(values) == [0, 10, 20]
    for step, value in values.items():
        np.testing.assert_array_equal(value, biases[step])
    recorded = trial.tensor("loss_output_0").values()
    assert {step: float(value) for step, value in recorded.items()} == {
        step: losses[step] for step in (0, 10, 20)
    }


class CustomGradientRule(Rule):
    def __init__(self, base_trial, threshold=10.0):
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        for tname in self.base_trial.tensor_names(collection="gradients"):
            t = self.base_trial.tensor(tname)
            abs_mean = t.reduction_value(step, "mean", abs=True)
            if abs_mean > self.threshold:
                return True
        return False


def test_custom_rule_of_smdebug_users_runs_over_a_recorded_run(tmp_path: Path) -> None:
    model = mlp(8, 16, 1)
    with smd.Hook(tmp_path / "run", include_collections=["gradients"], **every_step()) as hook:
        hook.register_module(model)
        train_mlp(model, 5)
    trial = smd.create_trial(path=str(tmp_path / "run"))
    quiet = CustomGradientRule(trial, threshold=1e6)
    invoke_rule(quiet, start_step=0, end_step=None)
    loud = CustomGradientRule(trial, threshold="1e-12")
    with pytest.raises(tensortap.exceptions.RuleEvaluationConditionMet) as fired:
        invoke_rule(loud, start_step=2, end_step=None, raise_eval_cond=True)
    assert fired.value.step == 2


def test_gradients_and_weights_are_those_of_the_step(tmp_path: Path) -> None:
    model = mlp(4, 3, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    hook = smd.Hook(
        tmp_path / "run",
        include_collections=["weights", "gradients"],
        **every_step(save_raw_tensor=True),
    )
    hook.register_module(model)
    weights, gradients = [], []
    for _ in range(4):
        weights.append(model[0].weight.detach().clone())
        optimizer.zero_grad()
        model(torch.randn(5, 4)).pow(2).mean().backward()
        gradients.append(model[0].weight.grad.clone())
        optimizer.step()
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    for step in range(4):
        np.testing.assert_array_equal(
            trial.tensor("Sequential_0.weight").value(step), weights[step]
        )
        np.testing.assert_array_equal(
            trial.tensor("gradient/Sequential_0.weight").value(step), gradients[step]
        )
        row = trial.tensor("gradient/Sequential_0.weight").statistics(step)
        assert row.abs_mean == pytest.approx(
            gradients[step].double().abs().mean().item(), rel=1e-12
        )


@pytest.mark.parametrize(
    "loop", ["zero_first", "zero_after_step", "set_to_zeros", "zero_inside", "by_hand"]
)
def test_gradients_do_not_depend_on_where_the_loop_zeroes_them(tmp_path: Path, loop: str) -> None:
    torch.manual_seed(0)
    model = mlp(4, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    expected = []
    hook = smd.Hook(tmp_path / loop, include_collections=["gradients"], **every_step())
    hook.register_module(model)
    for _ in range(4):
        if loop == "zero_first":
            optimizer.zero_grad()
        loss = model(torch.randn(5, 4)).pow(2).mean()
        if loop == "zero_inside":
            model.zero_grad()
        loss.backward()
        expected.append(model[0].weight.grad.double().abs().mean().item())
        if loop == "by_hand":
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.01 * parameter.grad
                    parameter.grad.zero_()
            continue
        optimizer.step()
        if loop in ("zero_after_step", "set_to_zeros"):
            optimizer.zero_grad(set_to_none=loop == "zero_after_step")
    hook.close()
    _, values = (
        tensortap.create_trial(tmp_path / loop)
        .tensor("gradient/Sequential_0.weight")
        .column("abs_mean")
    )
    assert values == pytest.approx(expected, rel=1e-12)


def test_accumulated_micro_batches_record_each_backward(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook = smd.Hook(tmp_path / "run", include_collections=["gradients"], **every_step())
    hook.register_module(model)
    expected = []
    for step in range(6):
        model(torch.randn(5, 4)).pow(2).mean().backward()
        expected.append(model[2].weight.grad.double().abs().mean().item())
        if step % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()
    hook.close()
    steps, values = (
        tensortap.create_trial(tmp_path / "run")
        .tensor("gradient/Sequential_2.weight")
        .column("abs_mean")
    )
    assert list(steps) == list(range(6))
    assert values == pytest.approx(expected, rel=1e-12)


def test_evaluation_steps_carry_no_stale_gradients(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.MSELoss()
    hook = smd.Hook(tmp_path / "run", include_collections=["gradients"], **every_step())
    hook.register_module(model)
    hook.register_loss(criterion)
    for _ in range(2):
        hook.set_mode(smd.modes.TRAIN)
        for _ in range(3):
            criterion(model(torch.randn(5, 4)), torch.ones(5, 1)).backward()
            optimizer.step()
        hook.set_mode(smd.modes.EVAL)
        with torch.no_grad():
            for _ in range(2):
                criterion(model(torch.randn(5, 4)), torch.ones(5, 1))
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.steps(mode=smd.modes.TRAIN) == list(range(6))
    assert trial.steps(mode=smd.modes.EVAL) == list(range(4))
    gradient = trial.tensor("gradient/Sequential_0.weight")
    assert gradient.steps(mode=smd.modes.TRAIN) == list(range(6))
    assert gradient.steps(mode=smd.modes.EVAL) == []
    assert trial.tensor("MSELoss_output_0").steps(mode=smd.modes.EVAL) == list(range(4))


def test_intervals_count_within_each_mode(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    hook = smd.Hook(
        tmp_path / "run",
        include_collections=["weights"],
        save_config=smd.SaveConfig(save_interval=10),
        reduction_config=smd.ReductionConfig(),
    )
    hook.register_module(model)
    for _ in range(2):
        hook.set_mode(smd.modes.TRAIN)
        for _ in range(35):
            model(torch.randn(2, 4))
        hook.set_mode(smd.modes.EVAL)
        for _ in range(7):
            model(torch.randn(2, 4))
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.steps(mode=smd.modes.TRAIN) == [0, 10, 20, 30, 40, 50, 60]
    assert trial.steps(mode=smd.modes.EVAL) == [0, 10]


def test_save_all_records_inputs_and_outputs_of_every_module(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2))
    hook = smd.Hook(tmp_path / "run", save_all=True, **every_step(save_raw_tensor=True))
    hook.register_module(model)
    inputs = torch.randn(3, 4)
    with torch.no_grad():
        expected = model[0](inputs).clone()
        hidden = model(inputs)
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    names = {
        f"{module}_{kind}_0"
        for module in ("Sequential", "0", "1", "2")
        for kind in ("input", "output")
    }
    assert names <= set(trial.tensor_names())
    assert "Sequential_0.weight" in trial.tensor_names()
    # The in-place ReLU overwrites its input after the hook has seen it.
    np.testing.assert_array_equal(trial.tensor("0_output_0").value(0), expected)
    assert trial.tensor("0_output_0").value(0).min() < 0
    np.testing.assert_array_equal(trial.tensor("Sequential_output_0").value(0), hidden)
    # One tensor under two names, until the in-place ReLU writes to it.
    np.testing.assert_array_equal(trial.tensor("1_input_0").value(0), expected)
    np.testing.assert_array_equal(trial.tensor("2_input_0").value(0), expected.clamp(min=0))


def test_module_called_twice_counts_on(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"once": self.shared(x), "again": self.shared(self.shared(x))}

    model = Twice()
    with smd.Hook(tmp_path / "run", include_regex=["shared_output"], **every_step()) as hook:
        hook.register_module(model)
        for _ in range(2):
            model(torch.randn(2, 4))
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.tensor_names(regex="shared") == [f"shared_output_{i}" for i in range(3)]
    assert trial.tensor("shared_output_2").steps() == [0, 1]


def test_a_module_tensor_collection_of_ones_own(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    hook = smd.Hook(tmp_path / "run", include_collections=["hidden"], **every_step())
    hook.get_collection("hidden").include("^0_output")
    hook.register_module(model)
    model(torch.randn(2, 4))
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.tensor_names(collection="hidden") == ["0_output_0"]
    assert trial.tensor_names() == ["0_output_0"]


def test_frozen_parameters_have_weights_and_no_gradients(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    model[0].requires_grad_(False)
    hook = smd.Hook(tmp_path / "run", include_collections=["weights", "gradients"], **every_step())
    hook.register_module(model)
    train_mlp(model, 3)
    model[0].requires_grad_(True)
    train_mlp(model, 2)
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.tensor("Sequential_0.weight").steps() == [0, 1, 2, 3, 4]
    assert trial.tensor("gradient/Sequential_2.weight").steps() == [0, 1, 2, 3, 4]
    assert trial.tensor("gradient/Sequential_0.weight").steps() == [3, 4]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_weights_of_any_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    model = nn.Linear(4, 3).to(dtype)
    with smd.Hook(
        tmp_path / "run", include_collections=["weights"], **every_step(save_raw_tensor=True)
    ) as hook:
        hook.register_module(model)
        model(torch.ones(2, 4, dtype=dtype))
    tensor = tensortap.create_trial(tmp_path / "run").tensor("Linear_weight")
    expected = model.weight.detach().to(torch.complex128).abs().numpy()
    assert tensor.statistics(0).l2 == pytest.approx(np.linalg.norm(expected), rel=1e-9)
    np.testing.assert_allclose(np.abs(tensor.value(0).astype(complex)), expected, rtol=1e-6)


def test_sparse_gradients_count_stored_rows_once(tmp_path: Path) -> None:
    embedding = nn.Embedding(10, 3, sparse=True)
    model = nn.Sequential(embedding, nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with smd.Hook(tmp_path / "run", include_collections=["gradients"], **every_step()) as hook:
        hook.register_module(model)
        model(torch.tensor([1, 1, 4])).sum().backward()
        norm = embedding.weight.grad.to_dense().norm().item()
        optimizer.step()
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.tensor("gradient/Sequential_0.weight").statistics(0).l2 == pytest.approx(
        norm, rel=1e-6
    )
    assert trial.tensor("gradient/Sequential_1.weight").steps() == [0]


def test_scalars_stay_with_their_step_and_mode(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    hook = smd.Hook(
        tmp_path / "run",
        save_config=smd.SaveConfig(save_interval=4),
        reduction_config=smd.ReductionConfig(),
    )
    hook.register_module(model)
    hook.save_scalar("before", 0.5)
    for step in range(6):
        hook.set_mode(smd.modes.TRAIN if step < 4 else smd.modes.EVAL)
        model(torch.randn(2, 4))
        hook.save_scalar("lr", torch.tensor(0.1 * step))
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    rates = trial.tensor("scalar/lr")
    assert rates.steps() == list(range(6))
    assert rates.steps(mode=smd.modes.EVAL) == [0, 1]
    assert float(rates.value(5)) == pytest.approx(0.5, rel=1e-6)
    assert trial.tensor("scalar/before").steps() == [0]
    with pytest.raises(TypeError, match="one number"):
        hook.save_scalar("vector", torch.ones(2))


def test_save_tensor_keeps_what_no_collection_wants(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    hook = smd.Hook(tmp_path / "run", save_config=smd.SaveConfig(save_interval=100))
    hook.register_module(model)
    for step in range(3):
        images = torch.full((2, 4), float(step))
        model(images)
        hook.save_tensor("images", images, collections_to_write="inputs")
    hook.close()
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.tensor("images").steps() == [0, 1, 2]
    np.testing.assert_array_equal(trial.tensor("images").value(2), np.full((2, 4), 2.0))
    assert trial.tensor_names(collection="inputs") == ["images"]


def test_resume_keeps_what_was_there(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = mlp(4, 8, 1)
    with smd.Hook(run, include_collections=["weights"], **every_step()) as hook:
        hook.register_module(model)
        train_mlp(model, 3)
    with pytest.raises(RunExistsError, match="resume=True"):
        smd.Hook(run)
    with smd.Hook(run, include_collections=["weights"], resume=True, **every_step()) as hook:
        hook.register_module(model)
        train_mlp(model, 2)
    trial = tensortap.create_trial(run)
    assert trial.steps() == [0, 1, 2, 3, 4]
    assert [trial._core.step_info(step).session for step in (2, 3)] == [0, 1]


def test_the_hook_leaves_nothing_on_the_model_and_copies_stay_quiet(tmp_path: Path) -> None:
    model = mlp(4, 8, 1)
    before = {key: dict(vars(module)) for key, module in model.named_modules()}
    hook = smd.Hook(tmp_path / "run", save_all=True, **every_step())
    hook.register_module(model)
    model(torch.randn(2, 4))
    twin = copy.deepcopy(model)
    revived = pickle.loads(pickle.dumps(model))
    twin(torch.randn(2, 4))
    revived(torch.randn(2, 4))
    assert hook.step == 0
    hook.close()
    for key, module in model.named_modules():
        assert vars(module).keys() == before[key].keys()
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_wrong_arguments_get_one_clear_line(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    with pytest.raises(InvalidArgumentError, match=r"torch\.nn\.Module"):
        hook.register_module("model")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="record_tensor_value"):
        hook.register_loss(torch.nn.functional.mse_loss)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="save_scalar"):
        hook.record_tensor_value("loss", 0.5)  # type: ignore[arg-type]
    model = mlp(4, 1)
    hook.register_module(model)
    with pytest.raises(InvalidArgumentError, match="already"):
        hook.register_module(model)
    with pytest.raises(InvalidArgumentError, match="modes"):
        hook.set_mode("train")  # type: ignore[arg-type]
    hook.close()
    with pytest.raises(InvalidArgumentError, match="no parameter"):
        tensortap.watch(model, torch.optim.SGD(mlp(2, 1).parameters()), out_dir=tmp_path / "other")


def test_environment_variable_switches_everything_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTAP_DISABLE", "1")
    model = mlp(4, 8, 1)
    hook = tensortap.watch(model, out_dir=tmp_path / "run", rules=["VanishingGradient"])
    train_mlp(model, 2)
    hook.save_scalar("x", 1.0)
    hook.close()
    assert not (tmp_path / "run").exists()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
