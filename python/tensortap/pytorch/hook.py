"""The PyTorch hook: attaches to modules, losses and optimizers, and hands what is due to the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from tensortap._fence import fenced
from tensortap._names import check_name
from tensortap.collection import flatten
from tensortap.coverage import Coverage
from tensortap.exceptions import InvalidTypeError
from tensortap.pytorch.capture import StepCapture
from tensortap.pytorch.coverage import fill_modules, fill_parameters
from tensortap.pytorch.modules import require_module

# The regex of smdebug, which means parameters, spared what it did not know.
_IS_PARAMETER = r"^(?!gradient|optimizer/|update_ratio/)"


class Hook(StepCapture):
    """Records weights, biases, gradients, losses and module outputs of a training.

    A step begins at the forward pass of the first registered module and ends after the optimizer's step, or at the next
    forward pass when the script still records something after the optimizer's step.

    Parameters
    ----------
    out_dir
        Directory of the run. A run that is already there is refused unless ``resume=True``.
    export_tensorboard, tensorboard_dir
        Accepted with a warning: TensorBoard events are not written while training, but the run can be exported later.
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
    system_metrics, system_interval
        Record what the machine does (docs/system-metrics.md), and the seconds between two samples (0.1 to 60).

    Raises
    ------
    InvalidArgumentError
        An argument of a wrong type or value.
    RunExistsError
        ``out_dir`` already holds data of this worker.
    StopTraining
        From ``optimizer.step()`` or the next forward pass, when a rule with the action ``stop_training`` fires.
    """

    framework = f"pytorch {torch.__version__}"
    default_collections: ClassVar[Mapping[str, tuple[Sequence[str], bool]]] = {
        "all": ((".*",), False),
        "default": ((), False),
        "weights": ((rf"{_IS_PARAMETER}.*weight",), False),
        "biases": ((rf"{_IS_PARAMETER}.*bias",), False),
        "gradients": ((r"^gradient(?!_norm/|_before_clipping/)",), False),
        "losses": ((r"[Ll]oss_(?!input).*output",), True),
        "optimizer_variables": ((r"^optimizer/",), False),
        "learning_rates": ((r"^learning_rate/",), False),
        "timings": ((r"^(step|data)_time$",), False),
        "gradient_norms": ((r"^gradient_norm/",), False),
        "gradients_before_clipping": ((r"^gradient_before_clipping/",), False),
        "update_ratios": ((r"^update_ratio/",), False),
        "loss_scaling": ((r"^(loss_scale|skipped_step)$",), False),
        # Filled by what modules are, whatever they are called.
        "model_inputs": ((), False),
        "relu_input": ((), False),
        "relu_output": ((), False),
        "tanh_input": ((), False),
        "sigmoid_input": ((), False),
        "attention_output": ((), False),
        "embedding_input": ((), False),
        "normalization_output": ((), False),
    }
    # Besides the losses a few numbers a step, which cost nothing to speak of.
    always_included = ("losses", "learning_rates", "timings", "gradient_norms", "loss_scaling")

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
        if self._still_records("register_module"):
            self._attach(module)

    #: The name that patched frameworks use.
    register_hook = register_module

    def register_loss(self, loss_module: torch.nn.Module) -> None:
        """Record the output of a loss module, as ``<class name>_output_0``.

        Raises
        ------
        InvalidTypeError
            Not a ``torch.nn.Module``; for functions use :meth:`record_tensor_value`.
        InvalidArgumentError
            Registered before, or part of a registered model: it is seen with it.
        """
        require_module(loss_module, "register_loss", "use record_tensor_value for a loss function")
        if self._still_records("register_loss"):
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
            ``tensor_value`` is not a tensor, or ``tensor_name`` not a string.
        InvalidArgumentError
            ``tensor_name`` is empty or not UTF-8.
        """
        check_name("record_tensor_value", tensor_name)
        if not isinstance(tensor_value, torch.Tensor):
            raise InvalidTypeError(
                f"record_tensor_value({tensor_name!r}) takes a torch.Tensor, not {type(tensor_value).__name__}; "
                "for plain numbers use save_scalar"
            )
        if self._still_records("record_tensor_value"):
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

        Raises
        ------
        InvalidTypeError
            ``tensor_value`` cannot become a tensor, or a name is no string.
        InvalidArgumentError
            A name is empty or not UTF-8.
        """
        check_name("save_tensor", tensor_name)
        collections = [check_name("save_tensor", name) for name in flatten(collections_to_write)]
        try:
            tensor = torch.as_tensor(tensor_value)
        except Exception as error:  # whatever an object's own conversion does
            raise InvalidTypeError(
                f"save_tensor({tensor_name!r}) takes what torch.as_tensor takes: {error}"
            ) from error
        if self._still_records("save_tensor"):
            self._save_tensor(tensor_name, tensor, collections)

    def coverage(self) -> Coverage:
        """Tell what the hook saw of the training, and what it could not see.

        Returns
        -------
        Coverage
            Print it, or take its ``to_dict()``. The run has it in ``coverage/<worker>.json``, ``summary()`` in text.
        """
        coverage = super().coverage()
        if self._session is not None:
            fill_modules(coverage, self._modules, self._parameters, self._roots.compiled)
            fill_parameters(coverage, self._parameters)
            coverage.aliases = {**self._modules.aliases(), **self._parameters.aliases()}
            coverage.unreadable = self._recording.unreadable_names()
            coverage.skipped_optimizer_steps = self._scaling.skipped_steps()
        return coverage

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything recorded is visible to readers, first for what a GPU still computes.

        Parameters
        ----------
        timeout
            Seconds to wait for the writer at most.

        Returns
        -------
        bool
            False on timeout.
        """
        self._settle()
        return super().flush(timeout)

    @fenced
    def _settle(self) -> None:
        self._recording.settle()

    @fenced
    def _record_value(self, name: str, value: torch.Tensor) -> None:
        self._before_late_record()
        if self._engine.in_step and self._is_due:
            self._recording.record_named(name, value)

    @fenced
    def _save_tensor(self, name: str, value: torch.Tensor, collections: list[str]) -> None:
        self._before_late_record()
        self._recording.record_raw(self._engine.intern(name, collections), value)
