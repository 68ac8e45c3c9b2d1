"""The checked options of isolated calls: policy, number of GPUs and timeout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfgpu_magic import units
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.policy import NOTHING, Policy


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for each call.

    Attributes:
        policy: the policy for its TensorFlow, in addition to the policy of this process.
        gpus: how many GPUs it gets; None is one, if there is one, and 0 hides them all.
        timeout: seconds that it may take.
        frameworks: whether the policy is for TensorFlow, or for all frameworks.
    """

    policy: Policy = NOTHING
    gpus: int | None = None
    timeout: float | None = None
    frameworks: Literal["tensorflow", "all"] = "tensorflow"

    @property
    def for_all(self) -> Policy:
        """What is asked of every framework."""
        return self.policy if self.frameworks == "all" else NOTHING


def read(policy: str | Policy | None, gpus: int | None, timeout: float | str | None) -> Options:
    """Check what is asked, as far as that can be done without a look at the GPUs.

    Raises:
        PolicyError: the policy, the number of GPUs or the time is not valid.
    """
    asked = parser.parse(policy) if isinstance(policy, str) else policy or NOTHING
    if gpus is not None and (not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 0):
        raise PolicyError(f"gpus={gpus!r} is no number of GPUs. Write how many each call gets: 1, or 0 to hide them.")
    if asked.choice is not None and asked.choice.picks:
        raise PolicyError(
            f"`{asked.choice}` is not for isolated calls: each gets the GPUs with most memory left, as many as gpus= "
            "says."
        )
    return Options(asked, gpus, None if timeout is None else units.seconds(timeout))
