"""When collections are saved and what of them: `SaveConfigMode`, `SaveConfig`, `ReductionConfig`.

Constructors and dictionaries are those of `smdebug`; they accept numbers and booleans as text too, as
configuration files have them.
"""

from __future__ import annotations

import json
import logging
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensortap import _core
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError
from tensortap.modes import ModeKeys, str_to_mode_keys

_logger = logging.getLogger("tensortap")
_OPTIONS = ("save_interval", "save_steps", "start_step", "end_step")


def _to_int(name: str, value: object) -> int:
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]  # NumPy's integers too
        except TypeError:
            pass
        try:
            number = float(value)  # type: ignore[arg-type]
            if number == int(number):
                return int(number)
        except (TypeError, ValueError, OverflowError):
            pass
    raise InvalidArgumentError(f"{name} must be a whole number, not {value!r}")


def to_bool(name: str, value: object) -> bool:
    """Take True, False and the same as text ("true", "0"); InvalidArgumentError otherwise."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "1", "yes"):
        return True
    if text in ("false", "0", "no"):
        return False
    raise InvalidArgumentError(f"{name} must be True or False, not {value!r}")


class _Observable:
    """Tells others when an attribute changes: a configuration that a collection already has."""

    def _on_change(self, listener: Callable[[], None]) -> None:
        self.__dict__.setdefault("_listeners", []).append(listener)

    def _changed(self) -> None:
        for listener in self.__dict__.get("_listeners", ()):
            listener()


class SaveConfigMode(_core.SaveConfigMode, _Observable):
    """When one mode is saved: at `save_steps`, and every `save_interval` within [start, end).

    Parameters
    ----------
    save_interval : int, optional
        Every that many steps of the mode, counted from step 0 (not from `start_step`). Default 500.
    start_step, end_step : int, optional
        From `start_step` (default 0) up to, but not including, `end_step` (default: open).
    save_steps : list of int, optional
        These steps as well, wherever they are.

    Raises
    ------
    InvalidArgumentError
        A value that is no whole number, is negative, or an interval of 0. Also on assignment.
    """

    def __init__(
        self,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: list[int] | None = None,
    ) -> None:
        if save_steps is not None and (
            not isinstance(save_steps, (list, tuple))
            or any(isinstance(s, bool) or not isinstance(s, int) for s in save_steps)
        ):
            raise InvalidArgumentError(f"save_steps must be a list of int, not {save_steps!r}")
        super().__init__(
            500 if save_interval is None else _to_int("save_interval", save_interval),
            0 if start_step is None else _to_int("start_step", start_step),
            None if end_step is None else _to_int("end_step", end_step),
            list(save_steps or []),
        )

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("save_interval", "start_step") or (name == "end_step" and value is not None):
            value = _to_int(name, value)
        super().__setattr__(name, value)
        self._changed()

    def to_json_dict(self) -> dict[str, Any]:
        """Give the four options by name."""
        return {name: getattr(self, name) for name in _OPTIONS}

    @classmethod
    def from_dict(
        cls, params: Mapping[str, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> SaveConfigMode | None:
        """Make one of a dictionary; `default_values` fills what is missing. None gives None."""
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise InvalidTypeError(f"the options of a mode must be a dict, not {params!r}")
        merged = {**(default_values or {}), **params}
        unknown = sorted(set(merged) - set(_OPTIONS))
        if unknown:
            raise InvalidArgumentError(
                f"unknown save option '{unknown[0]}' (valid: {', '.join(_OPTIONS)})"
            )
        return cls(**merged)

    def __repr__(self) -> str:
        return f"SaveConfigMode({', '.join(f'{k}={v!r}' for k, v in self.to_json_dict().items())})"

    __hash__ = None  # type: ignore[assignment]  # it can change


class SaveConfig(_core.SaveConfig, _Observable):
    """When a collection is saved, mode by mode.

    Parameters
    ----------
    mode_save_configs : dict of ModeKeys to SaveConfigMode or None, optional
        One for each mode; absent ones take what the hook has. Keys may be names ("TRAIN").
    save_interval, start_step, end_step, save_steps : optional
        Without `mode_save_configs`: the same for all modes, as `SaveConfigMode` takes them. Readable
        and assignable later (``config.end_step = 0`` stops saving); for all modes at once.
    """

    def __init__(
        self,
        mode_save_configs: Mapping[Any, SaveConfigMode | None] | None = None,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: list[int] | None = None,
    ) -> None:
        super().__init__()
        self.mode_save_configs: dict[ModeKeys, SaveConfigMode | None] = {}
        if mode_save_configs is None:
            for mode in ModeKeys:
                self.set_save_config(
                    mode, SaveConfigMode(save_interval, start_step, end_step, save_steps)
                )
            return
        if not isinstance(mode_save_configs, Mapping):
            raise InvalidArgumentError(
                f"mode_save_configs must be a dict of modes, not {mode_save_configs!r}"
            )
        given = {_to_mode(key): value for key, value in mode_save_configs.items()}
        for mode in ModeKeys:
            self.set_save_config(mode, given.get(mode))

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        """Give the settings of a mode; InvalidArgumentError when it takes the hook's."""
        config = self.mode_save_configs[_to_mode(mode)]
        if config is None:
            raise InvalidArgumentError(f"mode {mode.name} has no settings of its own")
        return config

    def set_save_config(self, mode: ModeKeys, config: SaveConfigMode | None) -> None:
        """Replace the settings of a mode."""
        mode = _to_mode(mode)
        if config is not None and not isinstance(config, SaveConfigMode):
            raise InvalidArgumentError(
                f"mode {mode.name} takes a SaveConfigMode or None, not {config!r}"
            )
        self.mode_save_configs[mode] = config
        if config is not None:
            config._on_change(lambda: self._push(mode))
        self._push(mode)

    def _push(self, mode: ModeKeys) -> None:
        self.set(mode, self.mode_save_configs[mode])
        self._changed()

    def should_save_step(self, mode: ModeKeys, step: int) -> bool:
        """Tell whether step `step` of the mode is due."""
        return self.get_save_config(mode).should_save_step(step)

    def merge_default_save_config(self, other: SaveConfig) -> None:
        """Fill the modes without settings from `other`."""
        for mode, config in self.mode_save_configs.items():
            if config is None:
                fill = other.mode_save_configs[mode]
                self.set_save_config(mode, SaveConfigMode() if fill is None else fill)

    @classmethod
    def from_core(cls, core: _core.SaveConfig) -> SaveConfig:
        """Take the engine's form."""
        modes: dict[ModeKeys, SaveConfigMode | None] = {}
        for mode in ModeKeys:
            c = core.get(mode)
            if c is not None:
                modes[mode] = SaveConfigMode(
                    c.save_interval, c.start_step, c.end_step, c.save_steps
                )
        return cls(modes)

    def to_json_dict(self) -> dict[str, Any]:
        """Give mode name -> options or None."""
        return {
            mode.name: config.to_json_dict() if config is not None else None
            for mode, config in self.mode_save_configs.items()
        }

    def to_json(self) -> str:
        """Give `to_json_dict` as text."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(
        cls,
        params: Mapping[Any, Any] | None,
        default_values: Mapping[str, Any] | None = None,
    ) -> SaveConfig | None:
        """Make one of mode -> options (a dict or SaveConfigMode), or of the options themselves."""
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise InvalidTypeError(f"a save configuration must be a dict, not {params!r}")
        if params and all(key in _OPTIONS for key in params):
            return cls.from_save_config_mode(SaveConfigMode.from_dict(params, default_values))
        modes = {
            _to_mode(key): value
            if isinstance(value, SaveConfigMode)
            else SaveConfigMode.from_dict(value, default_values)
            for key, value in params.items()
        }
        if default_values:
            for mode in ModeKeys:
                modes.setdefault(mode, SaveConfigMode.from_dict({}, default_values))
        return cls(modes)

    @classmethod
    def from_json(cls, text: str) -> SaveConfig | None:
        """Make one of what `to_json` gave."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_save_config_mode(cls, config: SaveConfigMode | None) -> SaveConfig:
        """Make one with the same settings for all modes."""
        return cls(dict.fromkeys(ModeKeys, config))

    @classmethod
    def parse(cls, value: object) -> SaveConfig | None:
        """Take None, a SaveConfig, a SaveConfigMode or a dict; InvalidTypeError otherwise."""
        if value is None or isinstance(value, SaveConfig):
            return value
        if isinstance(value, SaveConfigMode):
            return cls.from_save_config_mode(value)
        if isinstance(value, Mapping):
            return cls.from_dict(value)
        raise InvalidTypeError(
            f"save_config takes a SaveConfig, a SaveConfigMode or a dict, not {value!r}"
        )

    def __getattr__(self, name: str) -> Any:
        # Only the four options of the modes come here: everything else is found before.
        if name not in _OPTIONS or "mode_save_configs" not in self.__dict__:
            raise AttributeError(f"SaveConfig has no attribute '{name}'")
        values = [getattr(c, name) for c in self.mode_save_configs.values() if c is not None]
        if not values or any(value != values[0] for value in values):
            raise AttributeError(f"{name} differs between the modes: use get_save_config(mode)")
        return values[0]

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _OPTIONS:
            super().__setattr__(name, value)
            return
        for mode in ModeKeys:
            if self.mode_save_configs[mode] is None:
                self.set_save_config(mode, SaveConfigMode())
            setattr(self.mode_save_configs[mode], name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SaveConfig):
            return NotImplemented
        return self.mode_save_configs == other.mode_save_configs

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return f"SaveConfig({self.to_json_dict()})"


class ReductionConfig(_core.ReductionConfig, _Observable):
    """What is kept of a tensor besides its statistics, which are always recorded.

    Parameters
    ----------
    reductions, abs_reductions : list of str, optional
        Of min, max, mean, std, variance, sum, of the elements and of their magnitudes. Kept for
        reading back; a trial gives every statistic whatever stands here. prod and median are accepted
        and computed by the trial, from raw values.
    norms, abs_norms : list of str, optional
        Of l1, l2.
    save_raw_tensor : bool, optional
        Keep the values themselves.
    save_shape : bool, optional
        Accepted; the shape is always recorded.

    Raises
    ------
    InvalidArgumentError
        An unknown name (the message lists the valid ones), a flag that is no boolean.
    """

    def __init__(
        self,
        reductions: Iterable[str] | None = None,
        abs_reductions: Iterable[str] | None = None,
        norms: Iterable[str] | None = None,
        abs_norms: Iterable[str] | None = None,
        save_raw_tensor: bool | str = False,
        save_shape: bool | str = False,
    ) -> None:
        super().__init__(
            to_bool("save_raw_tensor", save_raw_tensor), to_bool("save_shape", save_shape)
        )
        self.reductions = _names(reductions)
        self.abs_reductions = _names(abs_reductions)
        self.norms = _names(norms)
        self.abs_norms = _names(abs_norms)
        self.tokens = _check_tokens(self._tokens())

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("save_raw_tensor", "save_shape"):
            value = to_bool(name, value)
        super().__setattr__(name, value)
        self._changed()

    def _tokens(self) -> list[str]:
        return [
            *self.reductions,
            *(_with_suffix(n) for n in self.norms),
            *(f"abs_{n}" for n in self.abs_reductions),
            *(f"abs_{_with_suffix(n)}" for n in self.abs_norms),
        ]

    @classmethod
    def from_core(cls, core: _core.ReductionConfig) -> ReductionConfig:
        """Take the engine's form."""
        return cls._from_tokens(core.tokens, core.save_raw_tensor, core.save_shape)

    @classmethod
    def _from_tokens(
        cls, tokens: Iterable[str], save_raw_tensor: bool | str, save_shape: bool | str
    ) -> ReductionConfig:
        lists: dict[tuple[bool, bool], list[str]] = {}
        for token in tokens:
            is_abs = token.startswith("abs_")
            name = token.removeprefix("abs_")
            is_norm = name.removesuffix("_norm") in ("l1", "l2")
            lists.setdefault((is_norm, is_abs), []).append(name.removesuffix("_norm"))
        return cls(
            lists.get((False, False)),
            lists.get((False, True)),
            lists.get((True, False)),
            lists.get((True, True)),
            save_raw_tensor,
            save_shape,
        )

    def to_json_dict(self) -> dict[str, Any]:
        """Give save_raw_tensor, reductions (comma-separated) and save_shape."""
        return {
            "save_raw_tensor": self.save_raw_tensor,
            "reductions": ",".join(self._tokens()),
            "save_shape": self.save_shape,
        }

    def to_json(self) -> str:
        """Give `to_json_dict` as text."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any] | None) -> ReductionConfig | None:
        """Make one of what `to_json_dict` gives; None gives None."""
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise InvalidTypeError(f"a reduction configuration must be a dict, not {params!r}")
        valid = ("save_raw_tensor", "reductions", "save_shape")
        unknown = sorted(set(params) - set(valid))
        if unknown:
            raise InvalidArgumentError(
                f"unknown reduction option '{unknown[0]}' (valid: {', '.join(valid)})"
            )
        tokens = params.get("reductions") or ""
        if isinstance(tokens, str):
            tokens = [token.strip() for token in tokens.split(",") if token.strip()]
        return cls._from_tokens(
            tokens, params.get("save_raw_tensor", False), params.get("save_shape", False)
        )

    @classmethod
    def from_json(cls, text: str) -> ReductionConfig | None:
        """Make one of what `to_json` gave."""
        return cls.from_dict(json.loads(text))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReductionConfig):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return f"ReductionConfig({self.to_json_dict()})"


def _to_mode(key: object) -> ModeKeys:
    if isinstance(key, ModeKeys):
        return key
    if isinstance(key, str):
        try:
            return str_to_mode_keys(key)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
    raise InvalidArgumentError(f"a mode must be one of ModeKeys, not {key!r}")


def _names(names: Iterable[str] | None) -> list[str]:
    if names is None:
        return []
    if isinstance(names, str):
        return [name.strip() for name in names.split(",") if name.strip()]
    return list(names)


def _with_suffix(norm: str) -> str:
    return norm if norm.endswith("_norm") else f"{norm}_norm"


def _check_tokens(tokens: list[str]) -> list[str]:
    """Give the tokens that the engine records; InvalidArgumentError for an unknown one."""
    later = [token for token in tokens if token.removeprefix("abs_") in ("prod", "median")]
    if later:
        _logger.debug("%s: not recorded, a trial computes it from raw values", ", ".join(later))
    return _core.ReductionConfig.parse_reductions(
        ",".join(token for token in tokens if token not in later)
    )
