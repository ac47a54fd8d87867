"""When a collection is saved: `SaveConfigMode` for one mode, `SaveConfig` for all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tensortap import _core
from tensortap.config.base import Observable, to_int
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError
from tensortap.modes import ModeKeys, str_to_mode_keys

_OPTIONS = ("save_interval", "save_steps", "start_step", "end_step")


class SaveConfigMode(_core.SaveConfigMode, Observable):
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
            500 if save_interval is None else to_int("save_interval", save_interval),
            0 if start_step is None else to_int("start_step", start_step),
            None if end_step is None else to_int("end_step", end_step),
            list(save_steps or []),
        )

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("save_interval", "start_step") or (name == "end_step" and value is not None):
            value = to_int(name, value)
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


class SaveConfig(_core.SaveConfig, Observable):
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

    def __repr__(self) -> str:
        return f"SaveConfig({self.to_json_dict()})"


def _to_mode(key: object) -> ModeKeys:
    if isinstance(key, ModeKeys):
        return key
    if isinstance(key, str):
        try:
            return str_to_mode_keys(key)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
    raise InvalidArgumentError(f"a mode must be one of ModeKeys, not {key!r}")
