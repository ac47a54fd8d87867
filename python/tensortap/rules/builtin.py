"""The built-in rules: `RuleSpec`, which names one with its parameters, and a constructor for each.

Everything that is said of a rule here (parameters, defaults, documentation) comes from the engine's own description.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensortap import _core
from tensortap.actions import parse_actions

_DESCRIPTORS: dict[str, dict[str, Any]] = {d["name"]: d for d in _core.rule_descriptors()}


@dataclass(frozen=True)
class RuleSpec:
    """A built-in rule with its parameters (as text) and the actions it triggers.

    Made by the constructors of this module, which check the parameters.
    """

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    actions: tuple[str, ...] = ()

    @classmethod
    def make(
        cls, name: str, actions: str | Iterable[str] | None = None, **parameters: Any
    ) -> RuleSpec:
        """Check and make one.

        Parameters
        ----------
        name : str
            In any spelling: VanishingGradient, vanishing_gradient.
        actions : list of str, optional
            Names of `tensortap.actions`.
        **parameters
            Numbers, booleans, text or lists. None leaves the default.

        Raises
        ------
        NotFoundError
            No such rule; the message lists what there is.
        InvalidArgumentError
            An unknown parameter or a value that does not fit; the message lists the valid ones.
        """
        given = {key: _to_text(value) for key, value in parameters.items() if value is not None}
        registered, _ = _core.validate_rule(name, given)
        return cls(registered, given, tuple(parse_actions(actions)))

    @classmethod
    def parse(cls, text: str) -> RuleSpec:
        """Take "NAME:key=value,key=value", where ``actions=`` names actions."""
        name, parameters = _core.parse_rule_spec(text)
        return cls.make(name, **parameters)

    def to_core(self) -> _core.RuleSpec:
        """Give the engine's form."""
        return self.name, dict(self.parameters), list(self.actions)

    def __str__(self) -> str:
        options = [f"{key}={value}" for key, value in self.parameters.items()]
        if self.actions:
            options.append(f"actions={','.join(self.actions)}")
        return f"{self.name}:{','.join(options)}" if options else self.name


def names() -> list[str]:
    """List the built-in rules."""
    return list(_DESCRIPTORS)


def describe(name: str) -> str:
    """Give the documentation of a built-in rule: what it detects, its parameters, what to do."""
    rule = _DESCRIPTORS[_core.rule_name(name)]
    lines = [rule["summary"], "", rule["doc"], "", rule["why"], "", "Likely causes:"]
    lines += [f"- {cause}" for cause in rule["causes"]]
    lines += ["", rule["next_step"], "", "Parameters", "----------"]
    for parameter in rule["parameters"]:
        default = f", default {parameter['default']}" if parameter["default"] else ", optional"
        if parameter["required"]:
            default = ""
        lines += [f"{parameter['name']} : {parameter['type']}{default}", f"    {parameter['doc']}"]
    lines += ["actions : list of str, optional", "    Names of `tensortap.actions`."]
    return "\n".join(lines)


def _to_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(_to_text(item) for item in value)
    return str(value)


def _make_constructor(name: str) -> Callable[..., RuleSpec]:
    def constructor(*, actions: str | Iterable[str] | None = None, **parameters: Any) -> RuleSpec:
        return RuleSpec.make(name, actions, **parameters)

    kind = inspect.Parameter.KEYWORD_ONLY
    signature = [
        inspect.Parameter(
            p["name"],
            kind,
            default=inspect.Parameter.empty if p["required"] else p["default"] or None,
        )
        for p in _DESCRIPTORS[name]["parameters"]
        if not p["name"].endswith("*")
    ]
    signature.append(inspect.Parameter("actions", kind, default=None))
    if any(p["name"].endswith("*") for p in _DESCRIPTORS[name]["parameters"]):
        # "StepOutlier_*": names that a signature cannot list.
        signature.append(inspect.Parameter("parameters", inspect.Parameter.VAR_KEYWORD))
    constructor.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    constructor.__name__ = constructor.__qualname__ = name
    constructor.__doc__ = describe(name)
    return constructor


#: The constructors by name, as `tensortap.rules` offers them.
constructors = {name: _make_constructor(name) for name in _DESCRIPTORS}
