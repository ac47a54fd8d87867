"""The PyTorch hook: attaches to modules, losses and optimizers, and hands what is due to the engine."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from tensortap._fence import fenced
from tensortap._hook import BaseHook
from tensortap.exceptions import InvalidTypeError
from tensortap.pytorch.border import StepBorder
from tensortap.pytorch.modules import ModuleCallback, ModuleTable, is_real_call, require_module
from tensortap.pytorch.parameters import ParameterTable
from tensortap.pytorch.tensors import Item, RecordedTensors, iterate_tensors, make_item
from tensortap.pytorch.wrappers import entry_point


class Hook(BaseHook):
    """Records weights, biases, gradients, losses and module outputs of a training.

    A step begins at the forward pass of the first registered module and ends after the optimizer's step, or at the next
    forward pass when the script still records something after the optimizer's step.

    Parameters
    ----------
    out_dir
        Directory of the run. A run that is already there is refused unless ``resume=True``.
    export_tensorboard, tensorboard_dir
        Not supported yet: InvalidArgumentError when given.
    dry_run
        Attach and plan, but write nothing.
    reduction_config
        None keeps the raw values of everything saved (as smdebug does), beside the statistics. A ReductionConfig
        keeps raw values only with ``save_raw_tensor=True``. Statistics are always recorded.
    save_config
        When to save: a SaveConfig, a SaveConfigMode or a dict of modes. None saves every 500 steps.
    include_regex
        Regexes (Python's ``re.search``) of tensors to save, in collection ``default``.
    include_collections
        Names of collections to save. ``losses`` is always saved.
    save_all
        Save every tensor the hook sees.
    include_workers
        ``"one"``: only rank 0 writes; ``"all"``: every rank.
    resume
        Go on in the run that is in ``out_dir``.
    rules
        What to watch for while training: strings such as ``"VanishingGradient:threshold=1e-8,actions=stop_training"``,
        specifications from ``tensortap.rules``, or custom ``Rule`` classes.
    strict
        Raise the hook's own faults instead of logging one warning and switching the hook off.
    worker
        Name of this worker; None asks ``torch.distributed`` (``worker_<rank>``).
    backpressure
        When the writer falls behind: ``"block"`` waits, ``"drop"`` drops whole steps and counts them.
    queue_bytes
        Bytes that may wait for the writer.
    compute_threads
        Threads that help with statistics; None takes what the machine has, up to 3.

    Raises
    ------
    RunExistsError
        ``out_dir`` already holds data of this worker.
    StopTraining
        From ``optimizer.step()`` or the next forward pass, when a rule with the action ``stop_training`` fires.
    """

    framework = f"pytorch {torch.__version__}"
    default_collections: ClassVar[Mapping[str, tuple[Sequence[str], bool]]] = {
        "all": ((".*",), False),
        "default": ((), False),
        "weights": ((r"^(?!gradient).*weight",), False),
        "biases": ((r"^(?!gradient).*bias",), False),
        "gradients": ((r"^gradient",), False),
        "losses": ((r"[Ll]oss_(?!input).*output",), True),
    }
    always_included = ("losses",)

    def __init__(self, out_dir: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(out_dir, *args, **kwargs)
        self._driver: weakref.ref[torch.nn.Module] | None = None
        self._handles: list[RemovableHandle] = []
        self._optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, bool] = (
            weakref.WeakKeyDictionary()
        )
        self._optimizer_handles: list[RemovableHandle] = []
        self._optimizer_seen = False
        self._is_due = False
        self._is_quiet = False  # the open step is not due, and nothing was said in it
        self._border = StepBorder()
        self._gradients_recorded = False
        self._value_indices: dict[str, int] = {}
        self._recorded = RecordedTensors()
        self._plan_version = -1
        if self._session is not None:
            self._modules = ModuleTable(
                self._session, ModuleCallback(self._on_inputs), ModuleCallback(self._on_outputs)
            )
            self._parameters = ParameterTable(self._session)

    # ---------------------------------------------------------------- what scripts call

    def register_module(self, module: torch.nn.Module) -> None:
        """Attach to a module and everything in it.

        Raises
        ------
        InvalidTypeError
            Not a ``torch.nn.Module``.
        InvalidArgumentError
            Registered before.
        """
        require_module(module, "register_module")
        if self._session is None:
            return
        module = entry_point(module)
        name = self._modules.add_root(module, is_watched=True)
        self._parameters.add_root(module, name)
        self._handles.append(
            module.register_forward_pre_hook(
                ModuleCallback(self._on_root_forward), with_kwargs=True
            )
        )

    #: The name that patched frameworks use.
    register_hook = register_module

    def register_loss(self, loss_module: torch.nn.Module) -> None:
        """Record the output of a loss module, as ``<class name>_output_0``.

        Raises
        ------
        InvalidTypeError
            Not a ``torch.nn.Module``; for functions use :meth:`record_tensor_value`.
        """
        require_module(loss_module, "register_loss", "use record_tensor_value for a loss function")
        if self._session is not None:
            self._modules.add_root(loss_module)

    def record_tensor_value(self, tensor_name: str, tensor_value: torch.Tensor) -> None:
        """Record a value of the current step as ``<tensor_name>_output_<i>``, i counting the calls of the step.

        It is kept when a collection that is being saved matches that name and is due: a name with
        ``loss`` in it belongs to ``losses``.

        Parameters
        ----------
        tensor_name
            Name without the ``_output_<i>``.
        tensor_value
            Any shape.

        Raises
        ------
        InvalidTypeError
            ``tensor_value`` is not a tensor.
        """
        if not isinstance(tensor_value, torch.Tensor):
            raise InvalidTypeError(
                f"record_tensor_value({tensor_name!r}) takes a torch.Tensor, not {type(tensor_value).__name__}; "
                "for plain numbers use save_scalar"
            )
        self._record_value(tensor_name, tensor_value)

    def save_tensor(
        self,
        tensor_name: str,
        tensor_value: Any,
        collections_to_write: str | Iterable[str] = "default",
    ) -> None:
        """Keep the raw value of a tensor at the current step, whatever the configuration says.

        Parameters
        ----------
        tensor_name
            Name in the run, used as it is.
        tensor_value
            A tensor, or anything ``torch.as_tensor`` takes.
        collections_to_write
            Collections that the tensor joins.
        """
        collections = (
            [collections_to_write]
            if isinstance(collections_to_write, str)
            else list(collections_to_write)
        )
        self._save_tensor(tensor_name, torch.as_tensor(tensor_value), collections)

    # ---------------------------------------------------------------- called by PyTorch

    @fenced
    def _on_root_forward(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if not is_real_call():
            return
        driver = self._driver() if self._driver is not None else None
        if driver is None:
            self._driver = weakref.ref(module)
            driver = module
        if module is driver or not self._engine.in_step:
            self._begin_step()
        if self._is_due:
            self._record_inputs(module, args, kwargs)

    @fenced
    def _on_inputs(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if is_real_call():
            self._record_inputs(module, args, kwargs)

    @fenced
    def _on_outputs(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        session = self._engine
        if not is_real_call() or not session.in_step or not self._is_due:
            return
        entry = self._modules.find(module)
        if entry is not None:
            self._record((entry.take_output_id(session), t) for t in iterate_tensors(output))

    @fenced
    def _before_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not self._is_ours(optimizer):
            return
        # LBFGS calls for many forward and backward passes within its one step: autograd has to tell.
        if not self._optimizer_seen and not isinstance(optimizer, torch.optim.LBFGS):
            self._optimizer_seen = True
            self._parameters.stop_watching_accumulation()
        self._border.see_more()  # when it is the second optimizer of the step
        session = self._engine
        if not session.in_step or not self._is_due:
            return
        only = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        keep_alive: list[torch.Tensor] = []
        self._record_items(self._parameters.gradient_items(keep_alive, only=only))
        self._gradients_recorded = True

    @fenced
    def _after_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not self._is_ours(optimizer) or not self._engine.in_step:
            return
        self._border.optimizer_stepped = True
        if self._border.ends_at_optimizer:
            self._finish_step()
            self._raise_if_stopped()

    @fenced
    def _on_accumulated(self, parameter: torch.Tensor, gradient_id: int) -> None:
        session = self._engine
        gradient = parameter.grad
        if gradient is None or not session.in_step or not session.is_due(gradient_id):
            return
        self._record([(gradient_id, gradient)])

    # ---------------------------------------------------------------- steps

    def _begin_step(self) -> None:
        session = self._engine
        # After a quiet step one call will do: what runs once in milliseconds finds cold caches.
        if not self._is_quiet:
            self._border.begin_step()
            self._finish_step()
            self._raise_if_stopped()
        self._is_due = session.begin_step()
        if not self._is_due:
            if not self._is_quiet:
                self._disarm()
                self._is_quiet = True
            return
        self._is_quiet = False
        self._gradients_recorded = False
        if self._plan_version != session.plan_version:
            self._plan_version = session.plan_version
            self._modules.forget_ids()
            self._parameters.forget_ids()
        self._value_indices.clear()
        self._recorded.clear()
        self._modules.begin_step()
        self._arm()
        self._parameters.scan()
        keep_alive: list[torch.Tensor] = []
        self._record_items(self._parameters.weight_items(keep_alive))
        if not self._optimizer_seen:
            self._parameters.watch_accumulation(self._on_accumulated)

    def _arm(self) -> None:
        """Attach to what a step that is due has to see; a step that is not costs one call."""
        self._modules.arm()
        if not self._optimizer_handles:
            before = ModuleCallback(self._before_optimizer)
            after = ModuleCallback(self._after_optimizer)
            self._optimizer_handles.append(register_optimizer_step_pre_hook(before))
            self._optimizer_handles.append(register_optimizer_step_post_hook(after))

    def _disarm(self) -> None:
        self._modules.disarm()
        self._parameters.stop_watching_accumulation()
        for handle in self._optimizer_handles:
            handle.remove()
        self._optimizer_handles.clear()

    def _finish_step(self) -> None:
        session = self._engine
        if session.in_step:
            # Gradient accumulation: a backward pass ran, but no optimizer followed in this step.
            if self._is_due and self._optimizer_seen and not self._gradients_recorded:
                keep_alive: list[torch.Tensor] = []
                self._record_items(self._parameters.gradient_items(keep_alive, only_changed=True))
            session.end_step()

    @fenced
    def _record_value(self, name: str, value: torch.Tensor) -> None:
        session = self._engine
        self._before_late_record()
        index = self._value_indices.get(name, 0)
        self._value_indices[name] = index + 1
        full_name = f"{name}_output_{index}"
        if not session.in_step or not self._is_due or not session.is_included(full_name):
            return
        self._record([(session.intern(full_name), value)])

    @fenced
    def _save_tensor(self, name: str, value: torch.Tensor, collections: list[str]) -> None:
        self._before_late_record()
        keep_alive: list[torch.Tensor] = []
        item = make_item(self._engine.intern(name, collections), value, keep_alive)
        if item is not None:
            self._engine.record_raw(*item)

    def _record(self, tensors: Iterable[tuple[int | None, torch.Tensor]]) -> None:
        """Record those of (id, tensor) that are due, in one call."""
        items: list[Item] = []
        keep_alive: list[torch.Tensor] = []
        for tensor_id, tensor in tensors:
            if tensor_id is None or not self._engine.is_due(tensor_id):
                continue
            source = self._recorded.find(tensor)
            if source is not None and self._engine.record_same(tensor_id, source):
                continue
            item = make_item(tensor_id, tensor, keep_alive)
            if item is not None:
                items.append(item)
                self._recorded.add(tensor, tensor_id)
        self._record_items(items)

    def _record_items(self, items: list[Item]) -> None:
        if items:
            self._engine.record_batch(items)

    def _record_inputs(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        session = self._engine
        if not session.in_step or not self._is_due:
            return
        entry = self._modules.find(module)
        if entry is not None:
            inputs = (args, kwargs) if kwargs else args
            self._record((entry.take_input_id(session), t) for t in iterate_tensors(inputs))

    def _before_mode_change(self) -> None:
        # The open step belongs to the old mode; a rule's stop waits for the next forward pass.
        self._finish_step()

    def _before_late_record(self) -> None:
        self._is_quiet = False
        if self._border.optimizer_stepped and not self._engine.in_step:
            self._warn_once(
                "late",
                "something was recorded after the optimizer's step, when the step was over: it counts to the "
                "next step; from now on steps end at the next forward pass",
            )
        self._border.see_more()

    def _is_ours(self, optimizer: torch.optim.Optimizer) -> bool:
        known = self._optimizers.get(optimizer)
        if known is None or not known:
            known = self._optimizers[optimizer] = self._parameters.owns_any_of(optimizer)
        return known

    def _worker_identity(self) -> tuple[str, bool]:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank()
            return f"worker_{rank}", rank == 0
        return "worker_0", True

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._session is not None:
            self._disarm()
            self._modules.detach()
