"""Hook configuration from a JSON file, in the shape that SageMaker writes (``debughookconfig.json``).

The file is where an unchanged script learns what to record::

    {"LocalPath": "/tmp/run",
     "HookParameters": {"save_interval": "100", "train.save_interval": "10"},
     "CollectionConfigurations": [
       {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "50"}}]}

For one collection, mode and key the first of these counts: the collection's per-mode key, its plain key,
the hook's per-mode key, the hook's plain key, the default.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensortap.collection import Collection
from tensortap.config import ReductionConfig, SaveConfig, SaveConfigMode, to_bool
from tensortap.exceptions import InvalidArgumentError
from tensortap.modes import ModeKeys

#: Variables that name the file, the first that is set counts.
PATH_VARIABLES = ("TENSORTAP_CONFIG_FILE_PATH", "SMDEBUG_CONFIG_FILE_PATH")
DEFAULT_PATH = "/opt/ml/input/config/debughookconfig.json"
DEFAULT_OUT_DIR = "/opt/ml/output/tensors"

_SAVE_KEYS = ("save_interval", "start_step", "end_step", "save_steps")
_REDUCTION_KEYS = ("reductions", "save_raw_tensor", "save_shape")
_MODE_KEYS = tuple(f"{mode.name.lower()}.{key}" for mode in ModeKeys for key in _SAVE_KEYS)
_COLLECTION_KEYS = (
    "include_regex",
    "save_histogram",
    *_REDUCTION_KEYS,
    *_SAVE_KEYS,
    *_MODE_KEYS,
)
_HOOK_KEYS = (
    "save_all",
    "include_regex",
    "include_workers",
    "export_tensorboard",
    "tensorboard_dir",
    "dry_run",
    *_REDUCTION_KEYS,
    *_SAVE_KEYS,
    *_MODE_KEYS,
)


@dataclass
class HookConfiguration:
    """What a configuration file says, in the arguments of a hook."""

    arguments: dict[str, Any] = field(default_factory=dict)
    collections: list[Collection] = field(default_factory=list)


def find_config_path(path: str | os.PathLike[str] | None = None) -> str:
    """Path of the configuration file: the one given, the environment's, or SageMaker's."""
    if path is not None:
        return os.path.expanduser(os.fspath(path))
    for variable in PATH_VARIABLES:
        if os.environ.get(variable):
            return os.environ[variable]
    return DEFAULT_PATH


def read_config(path: str | os.PathLike[str] | None = None) -> HookConfiguration:
    """Read a configuration file.

    Parameters
    ----------
    path : str or path, optional
        None: what ``TENSORTAP_CONFIG_FILE_PATH`` or ``SMDEBUG_CONFIG_FILE_PATH`` names, else SageMaker's
        place.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    InvalidArgumentError
        It is not JSON, or a value in it is wrong; the message names the key, with the path last.
    """
    where = find_config_path(path)
    with open(where, encoding="utf-8") as file:
        text = file.read()
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(
            f"the hook configuration is not JSON (line {error.lineno}: {error.msg}): {where}"
        ) from error
    try:
        return _parse(document)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error}: {where}") from error


def _parse(document: object) -> HookConfiguration:
    if not isinstance(document, Mapping):
        raise InvalidArgumentError("the hook configuration must be an object")
    hook = _parameters(document.get("HookParameters"), "HookParameters", _HOOK_KEYS)
    configuration = HookConfiguration()
    arguments = configuration.arguments
    arguments["out_dir"] = document.get("LocalPath") or DEFAULT_OUT_DIR
    arguments["save_config"] = _save_config(hook)
    arguments["reduction_config"] = _reduction_config(hook)
    if "include_regex" in hook:
        arguments["include_regex"] = _list(hook["include_regex"])
    for key in ("save_all", "dry_run", "export_tensorboard"):
        if key in hook:
            arguments[key] = to_bool(key, hook[key])
    for key in ("include_workers", "tensorboard_dir"):
        if key in hook:
            arguments[key] = str(hook[key])
    entries = document.get("CollectionConfigurations") or []
    if not isinstance(entries, list):
        raise InvalidArgumentError("CollectionConfigurations must be a list")
    configuration.collections = [_collection(entry, hook) for entry in entries]
    arguments["include_collections"] = [c.name for c in configuration.collections]
    return configuration


def _collection(entry: object, hook: Mapping[str, Any]) -> Collection:
    if not isinstance(entry, Mapping) or not entry.get("CollectionName"):
        raise InvalidArgumentError(f"a collection configuration needs a CollectionName: {entry!r}")
    name = str(entry["CollectionName"])
    own = _parameters(
        entry.get("CollectionParameters"), f"CollectionParameters of {name}", _COLLECTION_KEYS
    )
    collection = Collection(name, include_regex=_list(own.get("include_regex", "")))
    collection.save_config = _save_config(own, hook)
    collection.reduction_config = _reduction_config(own)
    if "save_histogram" in own:
        collection.save_histogram = to_bool("save_histogram", own["save_histogram"])
    return collection


def _parameters(value: object, where: str, valid: tuple[str, ...]) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{where} must be an object")
    unknown = sorted(set(value) - set(valid))
    if unknown:
        plain = [key for key in valid if "." not in key]
        raise InvalidArgumentError(
            f"unknown parameter '{unknown[0]}' in {where} "
            f"(valid: {', '.join(plain)}; the save keys also as train., eval., predict., global.)"
        )
    return value


def _save_config(*levels: Mapping[str, Any]) -> SaveConfig:
    """Build one, the levels from the most to the least specific."""
    modes = {}
    for mode in ModeKeys:
        found: dict[str, Any] = {}
        for level in reversed(levels):
            for key in _SAVE_KEYS:
                for name in (key, f"{mode.name.lower()}.{key}"):
                    if name in level:
                        found[key] = level[name]
        if "save_steps" in found:
            found["save_steps"] = _steps(found["save_steps"])
        modes[mode] = SaveConfigMode(**found)
    return SaveConfig(modes)


def _reduction_config(parameters: Mapping[str, Any]) -> ReductionConfig | None:
    found = {key: parameters[key] for key in _REDUCTION_KEYS if key in parameters}
    return ReductionConfig.from_dict(found) if found else None


def _steps(value: object) -> list[int]:
    parts = value if isinstance(value, list) else str(value).split(",")
    try:
        return [int(part) for part in parts if str(part).strip()]
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"save_steps takes step numbers with commas between them, not {value!r}"
        ) from error


def _list(value: object) -> list[str]:
    """Split at commas outside brackets, so that ``a{1,3}`` stays whole; a JSON list is taken as it is."""
    if isinstance(value, list):
        return [str(part) for part in value]
    parts, depth, part = [], 0, ""
    for character in str(value):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth <= 0:
            parts.append(part)
            part = ""
        else:
            part += character
    return [text.strip() for text in [*parts, part] if text.strip()]
