"""What may happen when a rule fires: ``rules=[rules.VanishingGradient(actions=[actions.StopTraining()])]``.

An action is text that the engine reads: a name (``"stop_training"``), a name with parameters
(``"email(to=ops@example.org,server=smtp://mx:25)"``), or JSON, SageMaker's included. The functions here make it, and
check it at once. docs/actions.md tells more.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tensortap import _core
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError, TensortapError

_logger = logging.getLogger("tensortap")
_DESCRIPTORS: dict[str, dict[str, Any]] = {d["name"]: d for d in _core.action_descriptors()}
_function_numbers = itertools.count(1)

Function = Callable[[_core.Finding], object]


class Action(str):
    """An action as the engine reads it: JSON text, with its parameters.

    Attributes
    ----------
    function : callable or None
        What `SaveCheckpoint` calls.
    """

    function: Function | None = None

    def serialize(self) -> str:
        """Give the JSON text (SageMaker's ``action_json``)."""
        return str(self)

    def __repr__(self) -> str:
        # Parameters may be secret.
        return f"<{_core.check_action(self)[1]}>"


class ActionList(list[str]):
    """Several actions, as SageMaker's ``ActionList(StopTraining(), Email(...))``.

    Raises
    ------
    InvalidTypeError
        Something that is no action.
    """

    def __init__(self, *actions: str) -> None:
        for action in actions:
            if not isinstance(action, str):
                raise InvalidTypeError(
                    f"ActionList takes actions, not {type(action).__name__}: {', '.join(names())}"
                )
        super().__init__(actions)

    def serialize(self) -> str:
        """Give the JSON text: a list."""
        return f"[{', '.join(a if a.startswith('{') else json.dumps({'name': a}) for a in self)}]"


def StopTraining(training_job_prefix: str | None = None, **parameters: Any) -> Action:
    """End the training at the border of the step in which the rule fires.

    Parameters
    ----------
    training_job_prefix : str, optional
        SageMaker's; kept with the rule's status and without effect, since the training at hand is meant.
    **parameters
        As ``describe("stop_training")`` lists them: cooldown.

    Raises
    ------
    InvalidArgumentError
        A prefix with other characters than letters, digits and ``-``.
    """
    if training_job_prefix is not None and not re.fullmatch(
        "[A-Za-z0-9-]+", str(training_job_prefix)
    ):
        raise InvalidArgumentError(
            f"training_job_prefix takes letters, digits and '-', not {training_job_prefix!r}"
        )
    return make("stop_training", training_job_prefix=training_job_prefix, **parameters)


def Email(to: str | Sequence[str], **parameters: Any) -> Action:
    """Send a mail over SMTP.

    Parameters
    ----------
    to : str or list of str
        Addresses.
    **parameters
        As ``describe("email")`` lists them: server, user, password_env, tls, ...

    Raises
    ------
    InvalidArgumentError, NotFoundError
        What is no address; no server; a password that is not where it should be.
    """
    return make("email", to=to, **parameters)


def SMS(phone_number: str, **parameters: Any) -> Action:
    """Send a text message through Amazon SNS; ``phone_number`` with a plus sign and the country code.

    Raises
    ------
    InvalidArgumentError, NotFoundError
        What is no number; no AWS credentials.
    """
    return make("sms", phone=phone_number, **parameters)


def Webhook(url: str | None = None, **parameters: Any) -> Action:
    """Post the finding as JSON.

    Parameters
    ----------
    url : str, optional
        Where to; ``url_env`` or ``url_file`` keep it out of the script.
    **parameters
        As ``describe("webhook")`` lists them: shape ("plain", "slack", "discord", "teams"), timeout, retries, ...

    Raises
    ------
    InvalidArgumentError, NotFoundError
        No address, or one that is not where it should be.
    """
    return make("webhook", url=url, **parameters)


def Command(argv: Sequence[str], **parameters: Any) -> Action:
    """Run a program, given as a list of words, with the finding on its standard input; no shell reads it."""
    words = [argv] if isinstance(argv, str) else [str(word) for word in argv]
    return make("command", argv=words, **parameters)


def SaveCheckpoint(function: Function, **parameters: Any) -> Action:
    """Call a function of the script's at the step border, on the training thread, before a stop is obeyed.

    Parameters
    ----------
    function : callable
        Takes the `Finding`. When it raises, that is recorded and the training goes on.
    """
    if not callable(function):
        raise InvalidTypeError(f"SaveCheckpoint takes a function, not {function!r}")
    name = getattr(function, "__qualname__", type(function).__name__)
    action = make("save_checkpoint", function=f"{name}#{next(_function_numbers)}", **parameters)
    action.function = function
    return action


def CaptureMore(
    steps: int = 10, collections: Iterable[str] = (), raw: bool = False, **parameters: Any
) -> Action:
    """Record in full detail for the next ``steps`` steps.

    Parameters
    ----------
    steps : int
        How many, from the step after the finding on.
    collections : list of str, optional
        Which collections, saved until now or not; none: those that are being saved.
    raw : bool
        Whether raw values are kept too.
    """
    chosen = [collections] if isinstance(collections, str) else list(collections)
    return make("capture_more", steps=steps, collections=chosen or None, raw=raw, **parameters)


def make(name: str, **parameters: Any) -> Action:
    """Make and check any action.

    Raises
    ------
    NotFoundError
        No such action, or a secret that is not where it should be.
    InvalidArgumentError
        An unknown parameter or a value that does not fit; the message lists the valid ones.
    """
    given = {key: value for key, value in parameters.items() if value is not None}
    action = Action(json.dumps({"name": name, **given}))
    _core.check_action(action)
    return action


def names() -> list[str]:
    """List the actions there are."""
    return list(_DESCRIPTORS)


def describe(name: str) -> str:
    """Give the documentation of an action, with its parameters."""
    descriptor = _DESCRIPTORS[name]
    lines = [descriptor["summary"], "", descriptor["doc"], "", "Parameters", "----------"]
    for parameter in descriptor["parameters"]:
        default = f", default {parameter['default']}" if parameter["default"] else ", optional"
        lines += [f"{parameter['name']} : {parameter['type']}{default}", f"    {parameter['doc']}"]
    return "\n".join(lines)


def parse_actions(
    value: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]] | None,
) -> list[str]:
    """Take actions in any form: text, what the functions of this module make, JSON, dicts, lists of those.

    Of smdebug's `action_str` (JSON text), what cannot work here is logged and left out, as smdebug does: an unknown
    name, mail without a server. Everything else is checked when the rule is added to a session.
    """
    if value is None:
        return []
    if isinstance(value, Action):
        return [value]
    if isinstance(value, Mapping):
        return [make(**value)]
    if not isinstance(value, str):
        if not isinstance(value, Iterable):
            raise InvalidTypeError(
                f"an action is text, what a function of tensortap.actions makes, or a dict; not {value!r}"
            )
        return [action for entry in value for action in parse_actions(entry)]
    actions = _core.split_actions(value)
    if not value.lstrip().startswith(("{", "[")):
        return actions
    return [action for action in actions if _is_possible(action)]


def _is_possible(action: str) -> bool:
    try:
        _core.check_action(action)
    except TensortapError as error:
        _logger.warning("an action is left out: %s", error)
        return False
    return True


def __getattr__(name: str) -> str:
    if name in _DESCRIPTORS:
        return name
    raise AttributeError(f"no action is called '{name}': {', '.join(_DESCRIPTORS)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_DESCRIPTORS])
