"""What is kept of a tensor besides its statistics: `ReductionConfig`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from tensortap import _core
from tensortap.config.base import Observable, to_bool
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError

_logger = logging.getLogger("tensortap")


class ReductionConfig(_core.ReductionConfig, Observable):
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

    def __repr__(self) -> str:
        return f"ReductionConfig({self.to_json_dict()})"


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
