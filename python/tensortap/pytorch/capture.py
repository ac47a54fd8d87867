"""What a hook does when PyTorch calls it: where steps begin and end, and what is recorded in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from tensortap._hook import BaseHook
from tensortap._launchers import launched_rank
from tensortap.pytorch.border import StepBorder
from tensortap.pytorch.callbacks import ModuleCallback, is_real_call
from tensortap.pytorch.clipping import ClippingWatch
from tensortap.pytorch.clock import StepClock
from tensortap.pytorch.closures import OptimizerCallback, StepArguments, follow_closure
from tensortap.pytorch.extras import asked_extras
from tensortap.pytorch.graphs import called_by_torch
from tensortap.pytorch.modules import ModuleTable
from tensortap.pytorch.optimizers import OptimizerTable, unscaled_gradients
from tensortap.pytorch.parameters import Named, ParameterTable
from tensortap.pytorch.recording import Recording
from tensortap.pytorch.roots import RootTable, take_off_when_dead
from tensortap.pytorch.scaling import ScalingWatch
from tensortap.pytorch.scripting import ScriptingWatch
from tensortap.pytorch.tensors import returned_losses, tensors_in
from tensortap.pytorch.wrappers import entry_point


class StepCapture(BaseHook):
    """The part of the hook that scripts do not call."""

    def __init__(self, out_dir: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(out_dir, *args, **kwargs)
        self._optimizer_handles: list[RemovableHandle] = []
        self._optimizer_seen = False
        self._is_due = False
        self._gradients_recorded = False
        self._overflowed = False  # a fused optimizer was told to leave out the step under way
        self._clipping_ours = False
        self._norm: torch.Tensor | None = None  # of the gradients before clipping, not yet recorded
        self._plan_version = -1
        if self._session is not None:
            self._make_tables()

    def _make_tables(self) -> None:
        session = self._engine
        self._roots = RootTable(session)
        self._border = StepBorder()
        self._clock = StepClock()
        self._recording = Recording(session)
        before, after = ModuleCallback(self._on_inputs), ModuleCallback(self._on_outputs)
        self._modules = ModuleTable(session, before, after)
        self._scripting = ScriptingWatch(self._roots, self._modules)
        self._parameters = ParameterTable(session)
        self._optimizers = OptimizerTable(self._recording, self._parameters)
        self._scaling = ScalingWatch(self._on_scale, self._on_scaler_step)
        self._clipping = ClippingWatch(self._before_clipping, self._on_norm)
        take_off_when_dead(self, self._roots, self._modules, self._optimizer_handles)

    def _attach(self, module: torch.nn.Module) -> None:
        """Put the hook onto a model."""
        module = entry_point(module)
        name = self._modules.add_root(module, is_model=True)
        self._parameters.add_root(module, name)
        self._collections.name_modules(self._modules.name_of)
        self._roots.add(module, self._on_root_forward)
        self._arm_optimizers()
        self._scripting.open()
        self._scaling.open()
        self._clipping.open()

    def _detach(self) -> None:
        if self._session is not None:
            self._restore_hooks()
            self._roots.remove_hooks()
            self._disarm()
            self._modules.detach()
            self._scripting.close()
            self._scaling.close()
            self._clipping.close()
            self._recording.settle()

    # ---------------------------------------------------------------- modules

    @called_by_torch
    def _on_root_forward(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if not is_real_call():
            return
        if not self._border.is_led:
            if self._roots.driver is None:
                self._roots.make_driver(module)
            if module is self._roots.driver or not self._engine.in_step:
                self._begin_step()
        if self._is_due:
            self._modules.note_call(module)
            self._record_inputs(module, args, kwargs)

    @called_by_torch
    def _on_inputs(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if is_real_call():
            self._record_inputs(module, args, kwargs)

    def _record_inputs(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        session = self._engine
        if not session.in_step or not self._is_due:
            return
        entry = self._modules.find(module)
        if entry is not None:
            inputs = (args, kwargs) if kwargs else args
            self._recording.record_shared(
                (entry.take_input_id(session), tensor) for tensor in tensors_in(inputs)
            )

    @called_by_torch
    def _on_outputs(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        session = self._engine
        if not is_real_call() or not session.in_step or not self._is_due:
            return
        entry = self._modules.find(module)
        if entry is None:
            return
        self._recording.record_shared(
            (entry.take_output_id(session), tensor) for tensor in tensors_in(output)
        )
        if entry.is_root:
            for key, loss in returned_losses(output):
                self._recording.record_named(f"{entry.name}_{key}", loss)
            if not torch.is_grad_enabled():
                self._clock.end_step()  # no backward pass will follow

    # ---------------------------------------------------------------- gradients and optimizers

    @called_by_torch
    def _on_accumulated(self, parameter: torch.Tensor, gradient_id: int) -> None:
        gradient = parameter.grad
        # Scaled gradients are looked at when the scaler has had its say.
        if gradient is not None and self._engine.in_step and not self._scaling.is_in_use:
            self._recording.record([(gradient_id, gradient)])
            self._parameters.note_gradient(gradient_id)

    @called_by_torch
    def _before_optimizer(
        self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any
    ) -> StepArguments | None:
        if not self._optimizers.is_ours(optimizer):
            return None
        self._take_compiled_calls()
        if self._roots.is_blind():
            self._begin_blind_step()
        if not self._engine.in_step:
            self._restore_hooks()
        if not self._optimizer_seen:
            self._optimizer_seen = True
            self._parameters.stop_watching_accumulation()
        with_closure = follow_closure(args, kwargs, lambda: self._before_update(optimizer))
        if with_closure is None:
            self._before_update(optimizer)
        return with_closure

    @called_by_torch
    def _before_update(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._is_due:
            return
        self._border.see_more()  # when it is the second optimizer of the step
        if not self._engine.in_step:
            if not self._border.is_led:
                self._warn_once(
                    "outside",
                    "an optimizer's step came when the step of the run was over (after set_mode, or after another "
                    "optimizer's step): what belongs to it is not recorded",
                )
            return
        # A fused optimizer finds out by itself, on the device, that it is to leave out this step.
        found_inf = getattr(optimizer, "found_inf", None)
        self._overflowed = isinstance(found_inf, torch.Tensor) and bool(found_inf.item())
        if self._overflowed:
            return
        entries = self._parameters.entries_of(optimizer)
        self._parameters.note_gradients()
        self._recording.record(unscaled_gradients(optimizer, entries))
        self._gradients_recorded = True
        self._record_norm()
        self._optimizers.record_learning_rates(optimizer)
        self._optimizers.remember_weights(entries)

    @called_by_torch
    def _after_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not self._optimizers.is_ours(optimizer):
            return
        self._clock.end_step()
        if not self._is_due or not self._engine.in_step or self._overflowed:
            return
        self._recording.record(self._optimizers.state(optimizer))
        self._optimizers.record_update_ratios()
        self._border.optimizer_stepped = True
        if self._border.ends_at_optimizer:
            self._finish_step()
            self._raise_if_stopped()

    @called_by_torch
    def _before_clipping(self, parameters: list[torch.Tensor]) -> None:
        only = {id(parameter) for parameter in parameters}
        entries = [entry for entry in self._parameters.entries if id(entry.parameter) in only]
        self._clipping_ours = bool(entries) and self._is_due and self._engine.in_step
        if not self._clipping_ours or not any(entry.ids.before_clipping for entry in entries):
            return
        if not self._scaling.is_in_use or not self._scaling.has_overflow():
            self._recording.record(
                (entry.ids.before_clipping, entry.parameter.grad)
                for entry in entries
                if entry.parameter.grad is not None
            )

    @called_by_torch
    def _on_norm(self, norm: torch.Tensor) -> None:
        # Recorded with the optimizer's step: a scaler may leave that out because the norm is infinite.
        if self._clipping_ours:
            self._norm = norm.detach()

    @called_by_torch
    def _on_scale(self, scaler: torch.amp.GradScaler) -> None:
        if self._is_due and self._engine.in_step:
            self._recording.record_number("loss_scale", float(scaler.get_scale()))

    @called_by_torch
    def _on_scaler_step(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
    ) -> None:
        if not self._optimizers.is_ours(optimizer):
            return
        is_due = self._is_due and self._engine.in_step
        if not self._scaling.has_skipped(scaler, optimizer, is_due=is_due):
            return
        self._clock.end_step()
        if is_due:
            self._recording.record_number("skipped_step", 1.0)
            self._gradients_recorded = True  # what is there is no gradient of this model
            self._norm = None

    def _record_norm(self) -> None:
        if self._norm is not None:
            norm_id = self._recording.id_of("gradient_norm/before_clipping")
            self._recording.record([(norm_id, self._norm)])
            self._norm = None

    def _record_accumulated(self) -> None:
        """Record the gradients of a backward pass that no optimizer's step has followed."""
        gradients = self._parameters.changed_gradients()
        if self._scaling.is_in_use:
            gradients = self._without_scale(gradients)
        self._recording.record(gradients)

    def _without_scale(self, gradients: Iterator[Named]) -> Iterator[Named]:
        for gradient_id, gradient in gradients:
            if gradient_id is not None and self._engine.is_due(gradient_id):
                plain = self._scaling.unscaled(gradient)
                if plain is not None:
                    yield gradient_id, plain

    # ---------------------------------------------------------------- steps

    def _begin_step(self) -> None:
        session = self._engine
        self._border.begin_step()
        self._finish_step()
        self._raise_if_stopped()
        self._clock.begin_step()
        self._is_due = session.begin_step()
        if not self._is_due:
            self._begin_idle_step()
            return
        self._gradients_recorded = self._overflowed = self._clipping_ours = False
        self._norm = None
        if self._plan_version != session.plan_version:
            self._plan_version = session.plan_version
            self._forget_ids()
        self._look_after_run()
        self._recording.begin_step()
        self._scaling.begin_step()
        self._modules.begin_step()
        self._modules.arm()
        self._modules.watch_shy_modules()
        self._arm_optimizers()
        self._parameters.scan()
        self._recording.record(self._parameters.weights())
        self._recording.record_number("step_time", self._clock.step_time)
        self._recording.record_number("data_time", self._clock.data_time)
        if not self._optimizer_seen:
            self._parameters.watch_accumulation(self._on_accumulated)

    def _forget_ids(self) -> None:
        """Decide anew what is wanted: collections changed."""
        extras = asked_extras(self)
        self._modules.forget_ids()
        self._parameters.forget_ids(extras)
        self._optimizers.forget_ids(extras)
        self._recording.forget_ids()

    def _begin_idle_step(self) -> None:
        """Take the hooks off what does not matter now. The step before one that is due is timed."""
        self._modules.disarm()
        self._parameters.stop_watching_accumulation()
        if self._engine.is_next_step_due:
            self._arm_optimizers()
        else:
            if self._roots.is_driven:
                self._disarm_optimizers()
            self._clock.lose_track()

    def _take_compiled_calls(self) -> None:
        self._roots.take_compiled_calls()
        if self._roots.compiled:
            self._tell_what_is_lost("the model is compiled, and compiled code runs no hooks")

    def _begin_blind_step(self) -> None:
        self._tell_what_is_lost(
            "no forward pass of the model was seen (scripted, compiled before the hook was attached, or called as "
            "model.forward): steps begin at the optimizer's step"
        )
        if not self._engine.gate().pass_step(True):
            self._begin_step()

    def _restore_hooks(self) -> None:
        if self._roots.restore_hooks():
            self._modules.disarm()  # theirs may be gone, too
            self._warn_once(
                "restored",
                "somebody has taken Tensortap's hooks off the model (or all that it had): until they were put back "
                "at an optimizer's step, or close(), nothing was recorded",
            )

    def _tell_what_is_lost(self, why: str) -> None:
        names = self._modules.wanted_within()
        if names:
            listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            why += f"; inputs and outputs of {len(names)} modules are not recorded: {listed}"
            self._warn_once("blind", f"{why}. Weights and gradients are.")

    def _finish_step(self) -> None:
        session = self._engine
        if not session.in_step:
            return
        if self._is_due:
            self._parameters.note_gradients()
            if not self._gradients_recorded and (self._optimizer_seen or self._scaling.is_in_use):
                self._record_accumulated()
            self._record_norm()
        self._recording.end_step()

    def _arm_optimizers(self) -> None:
        if not self._optimizer_handles:
            before = OptimizerCallback(self._before_optimizer)
            after = OptimizerCallback(self._after_optimizer)
            self._optimizer_handles.append(register_optimizer_step_pre_hook(before))
            self._optimizer_handles.append(register_optimizer_step_post_hook(after))

    def _disarm_optimizers(self) -> None:
        for handle in self._optimizer_handles:
            handle.remove()
        self._optimizer_handles.clear()

    def _disarm(self) -> None:
        self._modules.disarm()
        self._parameters.stop_watching_accumulation()
        self._disarm_optimizers()

    def _let_lead(self) -> None:
        """Leave it to a training library to say where steps begin and end."""
        self._border.let_lead()
        self._roots.let_lead()

    def _before_mode_change(self) -> None:
        self._take_compiled_calls()
        # The open step belongs to the old mode; a rule's stop waits for the next forward pass.
        self._finish_step()

    def _before_late_record(self) -> None:
        self._take_compiled_calls()
        if self._border.optimizer_stepped and not self._engine.in_step:
            self._warn_once(
                "late",
                "something was recorded after the optimizer's step, when the step was over: it counts to the "
                "next step; from now on steps end at the next forward pass",
            )
        self._border.see_more()

    def _worker_identity(self) -> tuple[str, bool]:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank()
        else:
            rank = launched_rank()
        return f"worker_{rank}", rank == 0
