"""Compiled: what stands behind the matrix of a head, GELU, norm, dropout and classifier, row by row and back again.

A row stays near the processor from the first loop to the last. Torch would write and read it for each of a dozen
operations, and its backward pass of GELU alone takes longer on some processors than a product of matrices.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from endtask.retrieval.compiled import compiled

# Sums may be taken in any order here, so that several numbers of a row are worked on at once. One loop to a function:
# the compiler sees through those best.
_quick = numba.njit(fastmath={"reassoc", "contract", "nsz", "arcp"}, error_model="numpy")
_f4, _i4 = np.float32, np.int32
_ZERO, _ONE = _f4(0), _f4(1)

# exp(-x^2 / 2) as a power of two: its whole part becomes the exponent's bits, the rest a Taylor series, off by 2e-7.
_TO_POWER, _LOWEST_POWER = _f4(-0.5 / math.log(2)), _f4(-126)
_EXPONENT_BIAS, _EXPONENT_UNIT = _f4(127), _f4(2**23)
_T1, _T2, _T3, _T4, _T5, _T6 = (_f4(math.log(2) ** k / math.factorial(k)) for k in range(1, 7))

# The normal distribution from its density, off by 8e-8 (Abramowitz and Stegun, 7.1.26, for x / sqrt(2) and halved).
_NEAR = _f4(0.3275911 / math.sqrt(2))
_A1, _A2, _A3, _A4, _A5 = (_f4(a / 2) for a in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429))
_DENSITY = _f4(1 / math.sqrt(2 * math.pi))


@compiled(
    "void(float32[:,:,::1], uint8[:,:,::1], int64[::1], float32, int64[:,::1], float32[:,:,::1], float32[:,::1],"
    " float32, float32[:,:,::1], float32[:,::1])"
)
def turn_into_gradients(  # type: ignore[no-untyped-def]
    hidden, kept, noise_of, scale, classes, readout, bias, epsilon, readout_gradient, bias_gradient
):
    """Replace what the dense layers say (R, U, hidden) by the gradients of each run's mean cross-entropy.

    Run r drops the numbers of a normed row that are 0 in `kept[noise_of[r]]` (U, hidden) and multiplies the others by
    `scale`. Its logits are the products with `readout[r]` (classes, hidden), the norm's weights being part of it, plus
    `bias[r]`; their gradients are added to the last two arguments. Rows whose class is negative ask nothing.
    """
    runs, rows, width = hidden.shape
    value, slope = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    dropped, back = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    shares = np.empty(bias.shape[1], dtype=np.float32)
    for run in range(runs):
        weight = _ONE / _f4(max(1, (classes[run] >= 0).sum()))
        for place in range(rows):
            row, right = hidden[run, place], classes[run, place]
            if right < 0:
                row[:] = _ZERO
                continue
            keep = kept[noise_of[run], place]
            mean = _activate(row, value, slope) / _f4(width)
            inverse = _ONE / np.sqrt(_center(value, mean) / _f4(width) + epsilon)
            _scale_and_drop(value, inverse, keep, scale, dropped)
            for number in range(shares.size):
                shares[number] = _dot(dropped, readout[run, number]) + bias[run, number]
            _turn_into_shares(shares, right, weight)
            back[:] = _ZERO
            for number in range(shares.size):
                bias_gradient[run, number] += shares[number]
                _add_products(shares[number], readout[run, number], back, dropped, readout_gradient[run, number])
            total, along = _back_through_dropout(back, keep, scale, value)
            _back_through_norm(back, value, slope, total / _f4(width), along / _f4(width), inverse, row)


@compiled("void(float32[:,:,::1], float32[:,:,::1], float32[:,::1], float32, float32[:,:,::1])")
def read_out(hidden, readout, bias, epsilon, logits):  # type: ignore[no-untyped-def]
    """Fill `logits` (R, U, classes) from what the dense layers say (R, U, hidden), without dropout."""
    runs, rows, width = hidden.shape
    value, slope = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    for run in range(runs):
        for place in range(rows):
            mean = _activate(hidden[run, place], value, slope) / _f4(width)
            inverse = _ONE / np.sqrt(_center(value, mean) / _f4(width) + epsilon)
            for number in range(bias.shape[1]):
                logits[run, place, number] = inverse * _dot(value, readout[run, number]) + bias[run, number]


@_quick
def _activate(row, value, slope):  # type: ignore[no-untyped-def]
    """x P(x), where P is the normal distribution, and its slope P(x) + x p(x); returns the sum of the values."""
    total = _ZERO
    for place in range(row.size):
        x = row[place]
        power = max(_TO_POWER * x * x, _LOWEST_POWER)
        whole = np.rint(power)
        rest = power - whole
        bell = (((((_T6 * rest + _T5) * rest + _T4) * rest + _T3) * rest + _T2) * rest + _T1) * rest + _ONE
        bell *= _i4((whole + _EXPONENT_BIAS) * _EXPONENT_UNIT).view(np.float32)
        near = _ONE / (_ONE + _NEAR * abs(x))
        tail = ((((_A5 * near + _A4) * near + _A3) * near + _A2) * near + _A1) * near * bell
        below = _ONE - tail if x >= _ZERO else tail
        active = x * below
        value[place] = active
        slope[place] = below + x * bell * _DENSITY
        total += active
    return total


@_quick
def _center(value, mean):  # type: ignore[no-untyped-def]
    """Take the mean away; returns the sum of squares."""
    squares = _ZERO
    for place in range(value.size):
        apart = value[place] - mean
        value[place] = apart
        squares += apart * apart
    return squares


@_quick
def _scale_and_drop(value, inverse, keep, scale, dropped):  # type: ignore[no-untyped-def]
    for place in range(value.size):
        normed = value[place] * inverse
        value[place] = normed
        dropped[place] = normed * (scale * _f4(keep[place]))


@_quick
def _dot(one, other):  # type: ignore[no-untyped-def]
    total = _ZERO
    for place in range(one.size):
        total += one[place] * other[place]
    return total


@numba.njit
def _turn_into_shares(logits, right, weight):  # type: ignore[no-untyped-def]
    """Logits of a row become the gradient of its cross-entropy by them, times its weight."""
    top = logits.max()
    total = _ZERO
    for number in range(logits.size):
        logits[number] = np.exp(logits[number] - top)
        total += logits[number]
    for number in range(logits.size):
        logits[number] *= weight / total
    logits[right] -= weight


@_quick
def _add_products(share, readout, back, dropped, readout_gradient):  # type: ignore[no-untyped-def]
    for place in range(back.size):
        back[place] += share * readout[place]
        readout_gradient[place] += share * dropped[place]


@_quick
def _back_through_dropout(back, keep, scale, value):  # type: ignore[no-untyped-def]
    """The gradient of a dropped row becomes that of the normed one; returns its sum and its product with that row."""
    total, along = _ZERO, _ZERO
    for place in range(back.size):
        here = back[place] * (scale * _f4(keep[place]))
        back[place] = here
        total += here
        along += here * value[place]
    return total, along


@_quick
def _back_through_norm(back, value, slope, mean, along, inverse, row):  # type: ignore[no-untyped-def]
    """Fill `row` with the gradient of what the dense layer said."""
    for place in range(back.size):
        row[place] = (back[place] - mean - value[place] * along) * (inverse * slope[place])
