"""Collections that are recorded only when somebody names them: they cost as much as the weights, or more."""

from __future__ import annotations

from tensortap._hook import BaseHook

# Recorded when a collection is included by its name or a regex of the user's has the word: a regex that smdebug's users
# wrote for weights must not bring three more tensors each.
_EXTRAS = {
    "optimizer_variables": "optimizer/",
    "gradients_before_clipping": "gradient_before_clipping",
    "update_ratios": "update_ratio",
}


def asked_extras(hook: BaseHook) -> set[str]:
    """Names of the extra collections that a hook is asked for."""
    included = hook.include_collections
    own = [name for name in included if name not in hook.default_collections]
    patterns = [
        pattern for name in ("default", *own) for pattern in hook.get_collection(name).include_regex
    ]
    return {
        name
        for name, word in _EXTRAS.items()
        if name in included or any(word in pattern for pattern in patterns)
    }
