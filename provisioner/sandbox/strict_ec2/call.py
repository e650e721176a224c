"""One call: who asks, what for, and the moto backend of that account and region."""

from dataclasses import dataclass
from typing import Any

from provisioner.sandbox.strict_ec2.params import Params
from provisioner.sandbox.strict_ec2.world import World


@dataclass(frozen=True, slots=True)
class Call:
    """What a rule needs to answer."""

    world: World
    backend: Any  # moto's EC2Backend
    params: Params

    @property
    def scope(self) -> tuple[str, str]:
        """Account and region."""
        return str(self.backend.account_id), str(self.backend.region_name)
