"""Which engine carries the packets, by its name."""

from hushrec.choices import EngineName
from hushrec.deploy.engines import Engine
from hushrec.errors import MissingExtraError, how_to_install

_EXTRAS: dict[EngineName, str] = {"nvflare": "deploy", "flower": "flower"}


def engine_named(name: EngineName) -> Engine:
    """The engine, if its extra is installed. Only the one that is asked for is imported."""
    try:
        if name == "flower":
            from hushrec.deploy.flower_engine import FlowerEngine

            return FlowerEngine()
        from hushrec.deploy.nvflare_engine import NVFlareEngine

        return NVFlareEngine()
    except ImportError as error:
        raise MissingExtraError(
            f"the engine {name} is not installed ({error.name} is missing); use: {how_to_install(_EXTRAS[name])}"
        ) from None
