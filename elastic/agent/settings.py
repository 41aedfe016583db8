"""What an agent needs of the configuration, read from its plain form.

The agent does not import the validating models: it starts in a tenth of a second, which the
other workers of a growing world wait for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from elastic.agent.hang import Limits
from elastic.agent.policy import Budget, Cause
from elastic.agent.preemption import Clouds


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits, budgets and the pool of one host.

    Attributes:
        by_route: whether `elastic run` has chosen the launcher's interface by its routes, and nobody workers' own.
    """

    limits: Limits
    budgets: dict[Cause, Budget]
    drain_s: float
    standbys: int
    level: str
    gloo_timeout_s: int
    join_s: float
    by_route: bool
    clouds: Clouds

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Return the settings of a validated configuration in its plain form."""
        restart, standby = config["restart"], config["standby"]
        level = standby["level"]
        if level == "auto":
            level = "import" if Path("/dev/nvidia0").exists() else "step"
        return cls(
            limits=Limits(**config["hang"]),
            budgets={
                Cause.CRASH: Budget(**restart["crash"]),
                Cause.HANG: Budget(**restart["hang"]),
                Cause.REENTRY: Budget(**restart["reentry"]),
                Cause.USER_CODE: Budget(**restart["user_code"]),
                Cause.PREEMPTED: Budget(**restart["preempted"]),
            },
            drain_s=config["drain_s"],
            standbys=standby["size"] if level != "off" else 0,
            level=level,
            gloo_timeout_s=config["network"]["gloo_timeout_s"],
            join_s=config["network"]["join_s"],
            by_route=config["launcher"] == "horovodrun" and config["network"]["interfaces"] is None,
            clouds=Clouds(**config["preemption"]),
        )
