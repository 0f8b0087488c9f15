"""Scales of axes: limits, ticks and their texts, computed once, for pictures and for the page."""

import math
from collections import namedtuple

from matplotlib import ticker

from lib.base.command import ScriptError
from lib.logs import np

PLAIN = (1e-3, 1e5)  # numbers between these are written without a power of ten
# {a logarithmic axis of fewer decades than this: the digits that have a tick in each decade}
TICK_DIGITS = {0.7: range(1, 10), 1.2: (1, 2, 3, 5, 7), 2.5: (1, 2, 5), math.inf: (1,)}
FAR = 100  # a value of a diverged run is drawn up to so many times the others' largest, and down to so many below

# The limits of an axis, its kind ("linear" or "log"), and [(place, text)] of its ticks.
Scale = namedtuple("Scale", "low high kind ticks")


def tick_text(value, plain=PLAIN):
    """A tick's text: plain within a range, else a power of ten in Unicode, so that an SVG shows it in any font."""
    if value == 0 or plain[0] <= abs(value) < plain[1]:
        return f"{value:g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    mantissa = mantissa.replace(".0", "")
    return f"{mantissa[:-1]}{power}" if mantissa in ("1", "-1") else f"{mantissa}×{power}"


def scale_between(low, high, kind="linear"):
    """The Scale with these limits."""
    plain = PLAIN
    if not low < high or kind == "log" and low <= 0:
        raise ScriptError(f"--ylim: got {low:g},{high:g}; expected LOW,HIGH with LOW < HIGH"
                          + " and, on a logarithmic axis, 0 < LOW" * (kind == "log"))
    if kind == "log":
        decades = math.log10(high / low)
        digits = next(digits for most_decades, digits in TICK_DIGITS.items() if decades < most_decades)
        places = ticker.LogLocator(subs=digits, numticks=20 if len(digits) > 1 else 8).tick_values(low, high)
        if not (low > PLAIN[0] and high < PLAIN[1]):  # all ticks are plain, or all are powers of ten
            plain = (math.inf, math.inf)
    else:
        places = ticker.MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
    rounding = 0 if kind == "log" else 1e-9 * (high - low)
    return Scale(low, high, kind, [(float(place), tick_text(float(f"{place:.12g}"), plain)) for place in places
                                   if low - rounding <= place <= high + rounding])


def scale_of(values, log=None, limits=None):
    """The Scale for a list of arrays; None if nothing is finite. `log`: whether it is logarithmic; None: if values,
    none of them negative, span more than a factor of 10. `limits`: (low, high) to use instead of those that hold all
    values."""
    values = np.concatenate([np.ravel(array) for array in values])
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    if not values.size:
        return None
    least, high = values.min(), values.max()
    if least == high == 0:
        return scale_between(0, 1)
    kind = "linear"
    if positive.size and least >= 0 and (log or log is None and high > 10 * positive.min()):
        kind = "log"
    if limits:
        return scale_between(*limits, kind)
    if kind == "log":
        low = positive.min()
        pad = max((high / low) ** 0.07, 2 / math.sqrt(high / low), 1.05)
        return scale_between(max(low / pad, 1e-320), min(high * pad, 1e307), kind)
    return scale_between(1.12 * min(least, 0), 1.12 * max(high, 0), kind)


def near(values, others):
    """Those of a diverged run's values (an array) that an axis has to hold: the ones at most FAR times as large as the
    largest of the others (list of arrays), and at least 1 / FAR of the smallest; all if there are no others."""
    sizes = np.abs(np.concatenate([np.ravel(array) for array in [[], *others]]))
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    if not sizes.size:
        return values
    return values[(np.abs(values) <= FAR * sizes.max()) & (np.abs(values) >= sizes.min() / FAR)]
