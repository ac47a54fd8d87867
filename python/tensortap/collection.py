"""Collections: named groups of tensors, by regular expression or by name."""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tensortap import _core
from tensortap._names import check_name
from tensortap.config import ReductionConfig, SaveConfig, to_bool
from tensortap.exceptions import InvalidTypeError, NotFoundError


def _set(collection: Collection, name: str, value: object) -> None:
    """Assign to the engine's side of an attribute that `Collection` overrides."""
    getattr(_core.Collection, name).__set__(collection, value)


class CollectionKeys:
    """Names of the collections that hooks know."""

    DEFAULT = "default"
    ALL = "all"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    BIASES = "biases"
    LAYERS = "layers"
    SM_METRICS = "sm_metrics"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    TENSORFLOW_SUMMARIES = "tensorflow_summaries"
    METRICS = "metrics"
    HYPERPARAMETERS = "hyperparameters"
    PREDICTIONS = "predictions"
    LABELS = "labels"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREES = "trees"


def flatten(values: object) -> list[str]:
    """Take a string or (nested) lists of strings; InvalidTypeError for anything else."""
    if isinstance(values, str):
        return [values]
    if isinstance(values, (list, tuple, set, frozenset)):
        return [text for value in values for text in flatten(value)]
    raise InvalidTypeError(f"expected a string or a list of strings, not {values!r}")


class _WaitingModule(NamedTuple):
    """A module whose tensors a collection wants, before the hook has given it a name."""

    reference: weakref.ref[Any]
    inputs: bool
    outputs: bool


class Collection(_core.Collection):
    """A named group of tensors with its own save and reduction settings.

    It may be changed at any time; once it belongs to a hook, changes reach the next step.

    Parameters
    ----------
    name : str
    include_regex : list of str, optional
        Tensors whose name one of them matches anywhere (``re.search``) belong to it.
    tensor_names : list or set of str, optional
        These too.
    reduction_config : ReductionConfig, optional
        None: the hook's.
    save_config : SaveConfig or dict of ModeKeys to SaveConfigMode, optional
        None: the hook's.
    save_histogram : bool, optional

    Raises
    ------
    InvalidArgumentError
        A regular expression that does not compile, or an empty name.
    InvalidTypeError
        An argument of another type.
    """

    def __init__(
        self,
        name: str,
        include_regex: str | Iterable[str] | None = None,
        tensor_names: Iterable[str] | None = None,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | Mapping[Any, Any] | None = None,
        save_histogram: bool | str = True,
    ) -> None:
        super().__init__(check_name("Collection", name))
        self._save_config: SaveConfig | None = None
        self._reduction_config: ReductionConfig | None = None
        self._waiting_modules: list[_WaitingModule] = []
        if include_regex is not None:
            self.include(include_regex)
        if tensor_names is not None:
            self.tensor_names = tensor_names
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = save_histogram

    @classmethod
    def from_core(cls, core: _core.Collection) -> Collection:
        """Speak for a collection of the engine's; nothing of it changes."""
        collection = cls.__new__(cls)
        _core.Collection.__init__(collection, core)
        collection._save_config = None
        collection._reduction_config = None
        collection._waiting_modules = []
        if core.save_config is not None:
            collection._adopt(SaveConfig.from_core(core.save_config))
        if core.reduction_config is not None:
            collection._reduction_config = ReductionConfig.from_core(core.reduction_config)
            collection._reduction_config._on_change(collection._push_reduction_config)
        return collection

    def include(self, regex: str | Iterable[str]) -> None:
        """Add regular expressions: one, or (nested) lists of them."""
        super().include(flatten(regex))

    def add_module_tensors(self, module: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Add what goes into a module, or what comes out of it.

        Parameters
        ----------
        module
            A module of a model that the hook has or will have registered: it is known by then.
        inputs, outputs
            Which of its tensors.

        Raises
        ------
        InvalidTypeError
            It cannot be a module.
        """
        try:
            reference = weakref.ref(module)
        except TypeError:
            raise InvalidTypeError(
                f"add_module_tensors takes a module, not {type(module).__name__}"
            ) from None
        self._waiting_modules.append(_WaitingModule(reference, inputs, outputs))
        self._name_modules(self._name_of)

    #: How a hook calls a module; None for a module it does not know. Set when a hook takes the collection over.
    _name_of: Callable[[Any], str | None] | None = None

    def _name_modules(self, name_of: Callable[[Any], str | None] | None) -> None:
        """Turn modules that were added into regexes, as far as they have names by now."""
        self._name_of = name_of
        if name_of is None:
            return
        waiting, self._waiting_modules = self._waiting_modules, []
        for entry in waiting:
            module = entry.reference()
            name = name_of(module) if module is not None else None
            if name is None:
                self._waiting_modules.append(entry)
                continue
            kinds = [kind for kind in ("input", "output") if getattr(entry, f"{kind}s")]
            self.include([f"^{re.escape(name)}_{kind}_" for kind in kinds])

    @property
    def include_regex(self) -> list[str]:
        """The regular expressions (a copy; assign, or use `include`)."""
        return super().include_regex

    @include_regex.setter
    def include_regex(self, patterns: str | Iterable[str] | None) -> None:
        _set(self, "include_regex", flatten([] if patterns is None else patterns))

    @property
    def tensor_names(self) -> set[str]:
        """The names (a copy; assign, or use `add_tensor_name`)."""
        return super().tensor_names

    @tensor_names.setter
    def tensor_names(self, names: str | Iterable[str] | None) -> None:
        _set(self, "tensor_names", set(flatten([] if names is None else names)))

    def has_tensor_name(self, name: str) -> bool:
        """Tell whether the tensor was added by name."""
        return name in self.tensor_names

    @property
    def save_config(self) -> SaveConfig | None:
        """When it is saved; None: as the hook says. Changing the object changes the collection."""
        return self._save_config

    @save_config.setter  # type: ignore[override]  # narrower than the engine's
    def save_config(self, value: SaveConfig | Mapping[Any, Any] | None) -> None:
        self._adopt(SaveConfig.parse(value))
        self._push_save_config()

    def _adopt(self, config: SaveConfig | None) -> None:
        self._save_config = config
        if config is not None:
            config._on_change(self._push_save_config)

    def _push_save_config(self) -> None:
        _set(self, "save_config", self._save_config)

    @property  # type: ignore[override]  # narrower than the engine's
    def reduction_config(self) -> ReductionConfig | None:
        """What is kept; None: as the hook says."""
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, value: ReductionConfig | None) -> None:
        if value is not None and not isinstance(value, ReductionConfig):
            raise InvalidTypeError(f"reduction_config takes a ReductionConfig, not {value!r}")
        self._reduction_config = value
        if value is not None:
            value._on_change(self._push_reduction_config)
        self._push_reduction_config()

    def _push_reduction_config(self) -> None:
        _set(self, "reduction_config", self._reduction_config)

    @property
    def save_histogram(self) -> bool:
        """Whether histograms are kept."""
        return super().save_histogram

    @save_histogram.setter
    def save_histogram(self, value: bool | str) -> None:
        _set(self, "save_histogram", to_bool("save_histogram", value))

    def to_json_dict(self) -> dict[str, Any]:
        """Give the arguments of the constructor by name."""
        return {
            "name": self.name,
            "include_regex": self.include_regex,
            "tensor_names": sorted(self.tensor_names),
            "reduction_config": self.reduction_config and self.reduction_config.to_json_dict(),
            "save_config": self.save_config and self.save_config.to_json_dict(),
            "save_histogram": self.save_histogram,
        }

    def to_json(self) -> str:
        """Give `to_json_dict` as text."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> Collection:
        """Make one of what `to_json_dict` gives."""
        return cls(
            params["name"],
            params.get("include_regex"),
            params.get("tensor_names"),
            ReductionConfig.from_dict(params.get("reduction_config")),
            SaveConfig.from_dict(params.get("save_config")),
            params.get("save_histogram", True),
        )

    @classmethod
    def from_json(cls, text: str) -> Collection:
        """Make one of what `to_json` gave."""
        return cls.from_dict(json.loads(text))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collection):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Collection({self.to_json_dict()})"


class CollectionManager:
    """The collections of a session, as objects that stay the same from call to call.

    Parameters
    ----------
    owner : _core.Session or _core.CollectionSet
    """

    def __init__(self, owner: _core.Session | _core.CollectionSet) -> None:
        self._set = owner.collections if isinstance(owner, _core.Session) else owner
        self._known: dict[str, Collection] = {}
        self._name_of: Callable[[Any], str | None] | None = None

    def name_modules(self, name_of: Callable[[Any], str | None]) -> None:
        """Give modules that collections were told of the names that the hook has for them.

        Parameters
        ----------
        name_of
            Name of a module, None for one that the hook does not know (yet).
        """
        self._name_of = name_of
        for collection in self._known.values():
            collection._name_modules(name_of)

    @property
    def collections(self) -> dict[str, Collection]:
        """All of them by name."""
        return self.get_collections()

    def get_collections(self) -> dict[str, Collection]:
        """All of them by name."""
        return {name: self.get(name) for name in self._set.names()}

    def get(self, name: str, create: bool = True) -> Collection:
        """Give one; an unknown one is made empty, or NotFoundError with ``create=False``."""
        known = self._known.get(check_name("get_collection", name))
        if known is not None:
            return known
        core = self._set.get_or_create(name) if create else self._set.find(name)
        if core is None:
            raise NotFoundError(f"no collection is called '{name}': {', '.join(self._set.names())}")
        collection = self._known.setdefault(name, Collection.from_core(core))
        collection._name_of = self._name_of
        return collection

    def add(self, collection: str | Collection) -> None:
        """Add one, replacing a same-named one; a name adds an empty collection."""
        if isinstance(collection, str):
            collection = Collection(collection)
        if not isinstance(collection, Collection):
            raise InvalidTypeError(f"expected a Collection or a name, not {collection!r}")
        self._set.add(collection)
        self._known[collection.name] = collection
        collection._name_modules(self._name_of)

    def create_collection(self, name: str) -> None:
        """Add an empty one when there is none of that name."""
        self.get(name)
