"""How metrics are rounded where they are printed, and what is said of them then."""

METRIC_DECIMALS = 4


def is_met(ours: float, published: float, spread: float, decimals: int = METRIC_DECIMALS) -> bool:
    """Whether ours, as it is printed, lies within the spread of the published number.

    >>> is_met(0.94304, 0.9424, 0.0006), is_met(0.94306, 0.9424, 0.0006)
    (True, False)
    """
    return round(abs(round(ours, decimals) - published), decimals + 2) <= spread
