"""When collections are saved and what of them: `SaveConfigMode`, `SaveConfig`, `ReductionConfig`.

Constructors and dictionaries are those of `smdebug`; they accept numbers and booleans as text too, as
configuration files have them.
"""

from __future__ import annotations

from tensortap.config.base import to_bool
from tensortap.config.reduction import ReductionConfig
from tensortap.config.save import SaveConfig, SaveConfigMode

__all__ = ["ReductionConfig", "SaveConfig", "SaveConfigMode", "to_bool"]
