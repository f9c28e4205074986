"""Numbers as the cells of a table print them."""

import math


def interval_text(mean: float, low: float, high: float, *, scale: float = 100.0) -> str:
    """A mean with its interval, as `26.5 [14.6, 43.1]`: without interval where `low` is NaN, `–` where `mean` is."""
    if math.isnan(mean):
        return "–"
    interval = "" if math.isnan(low) else f" [{scale * low:.1f}, {scale * high:.1f}]"
    return f"{scale * mean:.1f}{interval}"
