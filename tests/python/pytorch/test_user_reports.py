"""How tools like this one broke trainings before, as their users reported: no report without a test.

`COVERED_BY` says which test stands for which entry of the project's list of user reports (sections A to F, I and J;
what concerns other frameworks, viewers or GPUs only is not in it). Reports that fit nowhere else are tested here.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import fit, open_hook, train_twice
from torch import nn
from trainings import mlp

import tensortap.pytorch as smd

HERE = Path(__file__).parent

COVERED_BY = {
    "A1 frozen parameters": [
        "test_parameters.py::test_gradients_appear_when_a_layer_is_unfrozen",
        "test_parameters.py::test_a_fully_frozen_model_trains_as_a_feature_extractor",
    ],
    "A2 a loss recorded twice": ["test_lifecycle.py::test_one_value_a_name_and_step"],
    "A3 inputs of losses among losses": ["test_calls.py::test_losses_hold_the_loss_only"],
    "A5 a sparse gradient hides the others": [
        "test_parameters.py::test_a_sparse_gradient_does_not_hide_the_dense_ones"
    ],
    "A6 saving a hooked model": [
        "test_lifecycle.py::test_state_dicts_do_not_know_of_the_hook",
        "test_compiled.py::test_a_hooked_model_can_be_scripted_traced_and_exported",
    ],
    "A7 race for the directory": [
        "test_safety.py::test_of_processes_that_start_at_once_one_gets_the_run",
        "test_safety.py::test_a_relative_directory_survives_a_change_of_directory",
    ],
    "A8 more steps than asked for": ["test_hook.py::test_intervals_count_within_each_mode"],
    "A9 mode ignored in queries": ["test_hook.py::test_evaluation_steps_carry_no_stale_gradients"],
    "A12 a rule without data": [
        "test_rules_while_training.py::test_a_rule_that_sees_nothing_says_so"
    ],
    "A13 DataParallel hides names": [
        "test_distributed.py::test_data_parallel_keeps_the_names_of_the_model"
    ],
    "A14 off switch and noise": [
        "test_lifecycle.py::test_switched_off_there_is_no_hook_no_thread_and_no_file",
        "test_lifecycle.py::test_an_ordinary_training_says_nothing",
        "test_user_reports.py::test_a_bad_configuration_file_gets_one_clear_line",
    ],
    "B1 view of a sparse gradient": [
        "test_parameters.py::test_a_sparse_gradient_does_not_hide_the_dense_ones"
    ],
    "B2 NaN or Inf gradients": [
        "test_parameters.py::test_gradients_that_are_not_finite_are_counted"
    ],
    "B3 bfloat16": ["test_precision.py::test_bfloat16_parameters_round_trip_to_the_bit"],
    "B4 int8 and quantized": [
        "test_parameters.py::"
        "test_integers_are_summarized_in_wide_arithmetic_and_quantized_values_dequantized"
    ],
    "B5 complex parameters": [
        "test_parameters.py::test_complex_parameters_have_statistics_of_their_magnitude"
    ],
    "B6 tensors of one element": [
        "test_parameters.py::test_scalars_single_elements_and_empty_parameters"
    ],
    "B7 DataParallel in any order": [
        "test_distributed.py::test_data_parallel_keeps_the_names_of_the_model"
    ],
    "B8 two models of one class": [
        "test_calls.py::test_models_of_one_class_get_names_of_their_own"
    ],
    "B9 attached again": [
        "test_lifecycle.py::test_attached_detached_and_attached_again_as_in_a_notebook",
        "test_lifecycle.py::test_a_second_hook_takes_over_where_the_first_was_forgotten",
    ],
    "B10 pickling": [
        "test_lifecycle.py::test_a_pickled_model_needs_no_tensortap",
        "test_lifecycle.py::test_a_copy_of_a_hooked_model_trains_unseen",
    ],
    "B11 TorchScript": [
        "test_compiled.py::test_a_scripted_model_has_weights_gradients_and_outputs",
        "test_compiled.py::test_a_hooked_model_can_be_scripted_traced_and_exported",
    ],
    "B12 compiled models": [
        "test_compiled.py::test_a_compiled_model_trains_the_same_and_has_its_gradients",
        "test_compiled.py::test_the_graph_is_not_compiled_again_and_again",
    ],
    "B13 gradient accumulation": [
        "test_calls.py::test_accumulated_gradients_are_those_the_optimizer_uses"
    ],
    "B14 hooks that change behaviour": [
        "test_calls.py::test_values_are_those_before_anybody_writes_over_them",
        "test_calls.py::test_every_tensor_in_a_result_has_its_place",
        "test_lifecycle.py::test_no_configuration_changes_the_training",
    ],
    "B15 memory grows": [
        "test_memory.py::test_ten_thousand_steps_leave_memory_as_it_is",
        "test_lifecycle.py::test_an_output_is_let_go_with_its_graph",
    ],
    "B16 steps get slower": ["test_lifecycle.py::test_steps_do_not_get_slower"],
    "B17 a slow writer": [
        "test_lifecycle.py::test_a_writer_that_falls_behind_drops_whole_steps_and_counts_them"
    ],
    "B18 generator and discriminator": [
        "test_calls.py::test_two_networks_have_the_gradients_of_their_own_optimizers"
    ],
    "B20 late steps": [
        "test_rules_while_training.py::test_what_is_recorded_after_the_optimizer_stays_in_its_step"
    ],
    "B21 a full disk": ["test_safety.py::test_a_full_disk_does_not_stop_the_training"],
    "B22 sharded models": [
        "test_distributed.py::test_fsdp_shards_are_recorded_by_the_rank_that_holds_them"
    ],
    "B23 a killed training": [
        "test_safety.py::test_sigkill_at_random_moments_loses_no_complete_step"
    ],
    "C1 in-place activations": [
        "test_calls.py::test_values_are_those_before_anybody_writes_over_them"
    ],
    "C2 identity of results": ["test_calls.py::test_a_module_gives_the_very_object_it_returned"],
    "C3 results of every shape": ["test_calls.py::test_every_tensor_in_a_result_has_its_place"],
    "C4 a module called again": [
        "test_calls.py::test_calls_of_one_module_are_counted_within_the_step",
        "test_calls.py::test_calls_of_a_module_within_itself_count_on_in_the_order_they_end",
    ],
    "C5 activations overwritten later": [
        "test_calls.py::test_values_are_those_before_anybody_writes_over_them"
    ],
    "C6 hooks after compilation": [
        "test_compiled.py::test_a_compiled_model_trains_the_same_and_has_its_gradients",
        "test_user_reports.py::test_what_compiled_code_hides_is_said_once",
    ],
    "C7 re-entry by checkpointing": ["test_calls.py::test_checkpointed_blocks_are_recorded_once"],
    "C8 double backward leaks": [
        "test_lifecycle.py::test_memory_stays_flat_over_double_backward_steps"
    ],
    "C9 gradients too late": [
        "test_hook.py::test_gradients_do_not_depend_on_where_the_loop_zeroes_them"
    ],
    "C10 capturing everything": [
        "test_lifecycle.py::test_capturing_everything_holds_no_activation"
    ],
    "D1 overflow steps": [
        "test_precision.py::test_skipped_steps_are_marked_and_raise_no_false_alarm",
        "test_user_reports.py::test_skips_alarm_when_they_persist_and_a_nan_when_it_is_used",
    ],
    "D2 scaled gradients": ["test_precision.py::test_gradients_do_not_carry_the_loss_scale"],
    "D3 float8": ["test_precision.py::test_float8_values_are_read"],
    "D4 sums in half precision": [
        "test_precision.py::test_a_norm_that_half_precision_could_not_hold"
    ],
    "E1 who writes": [
        "test_distributed.py::test_a_launcher_s_variables_tell_the_rank_without_a_process_group",
        "test_distributed.py::test_ddp_records_averaged_gradients_under_the_names_of_the_model",
    ],
    "E2 DDP before and after wrapping": [
        "test_distributed.py::test_ddp_records_averaged_gradients_under_the_names_of_the_model",
        "test_distributed.py::test_ddp_without_synchronization_has_the_rank_s_own_gradient",
    ],
    "E3 CUDA graph capture": ["test_device.py::test_steps_aside_while_a_graph_is_captured"],
    "E4 a copy that reads too early": ["test_device.py::test_what_is_read_is_what_was_there"],
    "E5 a full graph": ["test_compiled.py::test_a_full_graph_stays_whole"],
    "F2 killed": ["test_safety.py::test_sigkill_at_random_moments_loses_no_complete_step"],
    "F3 resumed": ["test_lifecycle.py::test_resumed_from_a_checkpoint_the_later_value_counts"],
    "F12 empty and all NaN": [
        "test_parameters.py::test_scalars_single_elements_and_empty_parameters",
        "test_parameters.py::test_gradients_that_are_not_finite_are_counted",
    ],
    "G7 several inputs and outputs": [
        "test_user_reports.py::test_several_inputs_outputs_and_losses_are_told_apart"
    ],
    "I1 what was not looked at": [
        "test_coverage.py::test_modules_that_were_not_called_and_why",
        "test_rules_while_training.py::test_a_rule_that_sees_nothing_says_so",
    ],
    "I3 granularity": ["test_calls.py::test_one_output_asked_for_is_one_module_hooked"],
    "J1 J2 attention and its fast path": [
        "test_calls.py::test_attention_and_the_fast_path_of_evaluation",
        "test_coverage.py::test_the_fast_path_of_transformer_layers_stays_in_use",
    ],
    "J3 forward called directly": [
        "test_calls.py::test_a_direct_forward_is_not_seen_and_harms_nothing",
        "test_coverage.py::test_modules_that_were_not_called_and_why",
        "test_coverage.py::test_a_model_that_is_never_called_as_a_module",
    ],
    "J4 an exception in forward": [
        "test_calls.py::test_an_exception_inside_forward_leaves_the_next_steps_right"
    ],
    "J5 hooks return nothing": ["test_calls.py::test_a_module_gives_the_very_object_it_returned"],
    "J6 a parameter replaced": [
        "test_parameters.py::test_layers_added_replaced_and_removed_while_training",
        "test_parameters.py::test_a_replaced_parameter_is_followed_without_an_optimizer",
        "test_parameters.py::test_a_model_may_change_its_dtype_between_steps",
    ],
    "J7 weight norm": [
        "test_parameters.py::test_weight_norm_shows_magnitude_direction_and_effective_weight"
    ],
    "J8 packed sequences": [
        "test_calls.py::test_packed_sequences_give_their_data_and_not_their_batch_sizes"
    ],
    "J9 expanded tensors": [
        "test_parameters.py::test_values_do_not_depend_on_how_the_memory_lies",
        "test_safety.py::test_a_tensor_that_cannot_be_read_is_left_out_and_the_rest_recorded",
    ],
    "J10 checkpointing": [
        "test_calls.py::test_checkpointed_blocks_are_recorded_once",
        "test_calls.py::test_a_checkpointed_model_steps_once_a_batch",
    ],
    "J11 autocast": ["test_precision.py::test_autocast_has_a_dtype_for_each_record"],
    "J12 lazy modules": [
        "test_parameters.py::test_lazy_modules_are_recorded_from_their_first_forward_on"
    ],
    "J13 tied weights": [
        "test_parameters.py::test_a_tied_weight_is_recorded_once_with_the_gradient_of_both_uses",
        "test_parameters.py::test_a_shared_module_keeps_its_first_name_and_counts_its_calls",
    ],
    "J14 several backward passes": [
        "test_calls.py::test_a_gradient_is_the_sum_of_all_backward_passes"
    ],
    "J15 exceptions of the hook": [
        "test_safety.py::test_a_fault_in_the_hook_leaves_the_training_alone_with_one_warning"
    ],
    "J16 reductions of integers": [
        "test_calls.py::test_integer_and_boolean_inputs_do_not_mind_reductions_made_for_floats"
    ],
}


def test_the_tests_that_stand_for_reports_are_there() -> None:
    for place in [place for places in COVERED_BY.values() for place in places]:
        file, name = place.split("::")
        assert re.search(rf"^def {name}\(", (HERE / file).read_text(), re.MULTILINE), place


def test_a_bad_configuration_file_gets_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "debughookconfig.json"
    path.write_text("")
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    with pytest.raises(ValueError, match=r"debughookconfig\.json") as refused:
        smd.Hook.create_from_json_file()
    assert "\n" not in str(refused.value)


def test_what_compiled_code_hides_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.compiler.reset()
    model = mlp(4, 8, 1)
    with open_hook(tmp_path / "run") as hook:
        hook.register_module(model)
        fit(torch.compile(model, backend="eager"), 4)
        coverage = hook.coverage()
    assert (coverage.compiled, coverage.never_called) == (["Sequential"], [])
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "compiled" in warning.message
    assert "3 modules" in warning.message


def test_weights_and_gradients_of_a_compiled_model_need_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.compiler.reset()
    model = mlp(4, 8, 1)
    with open_hook(tmp_path / "run", include_collections=["weights", "gradients"]) as hook:
        hook.register_module(model)
        fit(torch.compile(model, backend="eager"), 4)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_skips_alarm_when_they_persist_and_a_nan_when_it_is_used(tmp_path: Path) -> None:
    def train(poisoned: set[int], scaled: bool) -> list[str]:
        torch.manual_seed(2)
        model = mlp(4, 8, 1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, enabled=scaled)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        name = f"{len(poisoned)}-{scaled}"
        hook = open_hook(
            tmp_path / name,
            include_collections=["gradients"],
            rules=["ExplodingTensor", "LossScaleCollapse"],
        )
        with hook:
            hook.register_module(model)
            for step in range(16):
                optimizer.zero_grad()
                loss = model(torch.randn(5, 4)).pow(2).mean()
                scaler.scale(loss * float("inf") if step in poisoned else loss).backward()
                scaler.step(optimizer)
                scaler.update()
        return [finding.rule for finding in hook.findings()]

    assert train({0, 1, 7}, True) == []
    assert train(set(range(2, 10)), True) == ["LossScaleCollapse"]
    assert "ExplodingTensor" in train({3}, False)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.main = nn.Linear(8, 1)
        self.auxiliary = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.tanh(self.body(x) + shift)
        return {"main": self.main(hidden), "auxiliary": self.auxiliary(hidden)}


def test_several_inputs_outputs_and_losses_are_told_apart(tmp_path: Path) -> None:
    seen: list[tuple[float, float, float]] = []

    def train(made: list[nn.Module], hook: smd.Hook | None) -> list[torch.Tensor]:
        model, main_loss, auxiliary_loss = made
        optimizer = torch.optim.Adam(model.parameters())
        seen.clear()
        losses = []
        for _ in range(3):
            outputs = model(torch.randn(5, 4), torch.ones(1, 8))
            parts = (
                main_loss(outputs["main"], torch.ones(5, 1)),
                auxiliary_loss(outputs["auxiliary"], torch.tensor([0, 1, 2, 0, 1])),
            )
            loss = parts[0] + 0.3 * parts[1]
            if hook is not None:
                hook.record_tensor_value("total_loss", loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            seen.append((loss.item(), parts[0].item(), parts[1].item()))
        return losses

    def register(hook: smd.Hook, made: list[nn.Module]) -> None:
        hook.register_module(made[0])
        hook.register_loss(made[1])
        hook.register_loss(made[2])

    run = train_twice(
        tmp_path / "run",
        lambda: [TwoHeads(), nn.MSELoss(), nn.CrossEntropyLoss()],
        train,
        register=register,
    )
    names = ["total_loss_output_0", "MSELoss_output_0", "CrossEntropyLoss_output_0"]
    assert sorted(names) == run.trial.tensor_names(collection="losses")
    for step in range(3):
        np.testing.assert_allclose([run.value(name, step) for name in names], seen[step], rtol=1e-6)
    assert [run.value(f"TwoHeads_input_{i}", 1).shape for i in range(2)] == [(5, 4), (1, 8)]
    assert [run.value(f"TwoHeads_output_{i}", 1).shape for i in range(2)] == [(5, 1), (5, 3)]
