"""Systems with secure sums keep the contract, survive losses, and end with the bits of plain sums."""

from dataclasses import replace
from typing import Any, ClassVar

from hushrec.protocol import AnySystem
from hushrec.registry import system_named
from hushrec.testing import SystemContract


class SecureContract(SystemContract):
    """The contract of a system with secure sums."""

    masks: ClassVar[str] = "real"
    without: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _chosen(cls) -> AnySystem:
        system = system_named(cls.system)
        small = {**system.about.small, **cls.without, "secure_sums": True, "secure_masks": cls.masks}
        variants = ({"secure_sums": False}, {"secure_masks": "real"}, {"secure_masks": "counted"})
        return replace(system, about=replace(system.about, small=small, variants=variants))


class TestSecureFedRec(SecureContract):
    system = "fedrec"


class TestCountedFedRec(SecureContract):
    system, masks = "fedrec", "counted"
