"""exp of a float32 in a dozen multiplications, so that a loop over it is compiled to vector instructions."""

import numpy as np

from tinyvit.kernels.fast.compiled import as_bits, as_float, inline

F = np.float32

# ln 2 in two parts: the first has so few bits that its product with a whole number below 256 is exact.
LN2_HIGH, LN2_LOW = F(0.693359375), F(np.log(2) - 0.693359375)
LOG2_E = F(1 / np.log(2))
ROUND = F(1.5 * 2**23)  # adding it rounds to a whole number, which the last bits then hold
# (exp(r) − 1 − r) / r² for |r| ≤ ln(2)/2, lowest power first: the least largest relative error of exp, 3e-9.
Q0, Q1, Q2, Q3, Q4 = map(F, (0.49999993447, 0.16666520626, 0.04166838816, 0.00836871745, 0.00138145930))
# exp is infinity in a float32 above the largest, and 0 below −104. At the smallest both factors of 2ⁿ are 0: their
# product is exact, where one that underflows takes many times as long. It is taken for every key that −∞ masks.
SMALLEST, LARGEST = F(-176.0), F(89.0)
ONE = F(1.0)
DIGITS, BIAS, HALF = np.int32(23), np.int32(127), np.int32(1)


@inline()
def exp(x):
    """exp(x) = 2ⁿ exp(r) with n = round(x / ln 2) and r = x − n ln 2, right to 2 units in the last place."""
    bounded = min(max(x, SMALLEST), LARGEST)
    shifted = bounded * LOG2_E + ROUND
    whole = shifted - ROUND
    r = bounded - whole * LN2_HIGH - whole * LN2_LOW
    q = (((Q4 * r + Q3) * r + Q2) * r + Q1) * r + Q0
    n = np.int32(as_bits(shifted) - as_bits(ROUND))
    # 2ⁿ in two factors, as it may be too large or too small for one.
    half = np.int32(n >> HALF)
    low = as_float(np.int32(np.int32(half + BIAS) << DIGITS))
    high = as_float(np.int32(np.int32(n - half + BIAS) << DIGITS))
    y = (q * r * r + r + ONE) * low * high
    return y if x == x else x
