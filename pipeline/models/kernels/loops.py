"""Loops over numbers that numba compiles: what a step of Att2in2 does between its products, in one pass each.

What they compute stands in plain torch in models/att2in.py. `rows` are the first and the one behind the last caption
that a call works on; rows of one image lie in one call, so that calls may run in parallel. A loop of few arrays
becomes vector instructions, one of many does not: what is computed of one row is several loops. Numbers are of the
arrays' precision: a whole number or 0.5 between single ones would make them double.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from pipeline.runtime.compiled import compiled, exp, tanh


@compiled
def attend(rows, keys, regions, mask, weight, query, images, shares, attended):
    """Additive attention: `shares` (n, R) and `attended` (n, H) of `query` (n, A), to regions (B, R, H) of `images`."""
    zero = weight.dtype.type(0)
    for n in range(rows[0], rows[1]):
        image = images[n]
        top = weight.dtype.type(-np.inf)
        for r in range(keys.shape[1]):
            score = zero
            for a in range(keys.shape[2]):
                score += tanh(keys[image, r, a] + query[n, a]) * weight[a]
            shares[n, r] = score
            if mask[image, r] and not score <= top:
                top = score
        total = zero
        for r in range(keys.shape[1]):
            shares[n, r] = exp(shares[n, r] - top) if mask[image, r] else zero
            total += shares[n, r]
        attended[n] = zero
        for r in range(keys.shape[1]):
            shares[n, r] /= total
            share = shares[n, r]
            for h in range(regions.shape[2]):
                attended[n, h] += share * regions[image, r, h]


@compiled
def attend_back(rows, keys, regions, weight, query, images, shares, d, of_query, of_keys, of_weight):
    """From `d` (n, H), the gradient of what was attended to: that of the query (n, A); those of the keys, without the
    factor `weight`, and of the weight are added to `of_keys` (B, R, A) and `of_weight` (A,)."""
    zero, one = weight.dtype.type(0), weight.dtype.type(1)
    scores = np.empty(keys.shape[1], query.dtype)
    for n in range(rows[0], rows[1]):
        image = images[n]
        mean = zero
        for r in range(keys.shape[1]):
            of_share = zero
            for h in range(regions.shape[2]):
                of_share += regions[image, r, h] * d[n, h]
            scores[r] = of_share
            mean += of_share * shares[n, r]
        of_query[n] = zero
        for r in range(keys.shape[1]):
            of_score = shares[n, r] * (scores[r] - mean)
            for a in range(keys.shape[2]):
                active = tanh(keys[image, r, a] + query[n, a])
                slope = of_score * (one - active * active)
                of_weight[a] += of_score * active
                of_query[n, a] += slope
                of_keys[image, r, a] += slope
        for a in range(keys.shape[2]):
            of_query[n, a] *= weight[a]


@compiled
def remember(rows, gates, chosen, c, after, h):
    """The LSTM's step from `gates` (n, 5H), in, forget, out and two candidates, and cells `c` (n, H).

    `gates` become what they open, the larger candidate and which that was (1: the first; 0; ½: both); new cells are
    written to `after`, hidden states to `h`. Of the candidates, what was attended to adds `chosen` (n, 2H).
    """
    size = c.shape[1]
    half = gates.dtype.type(0.5)
    for n in range(rows[0], rows[1]):
        enter, forget, leave = gates[n, :size], gates[n, size : 2 * size], gates[n, 2 * size : 3 * size]
        first, second = gates[n, 3 * size : 4 * size], gates[n, 4 * size :]
        to_first, to_second = chosen[n, :size], chosen[n, size:]
        for j in range(3 * size):
            gates[n, j] = half + half * tanh(half * gates[n, j])
        for j in range(size):
            a, b = first[j] + to_first[j], second[j] + to_second[j]
            first[j] = a if a > b else b
            second[j] = half + half if a > b else (half - half if b > a else half)
        for j in range(size):
            after[n, j] = forget[j] * c[n, j] + enter[j] * first[j]
        for j in range(size):
            h[n, j] = leave[j] * tanh(after[n, j])


@compiled
def remember_back(rows, gates, c, after, of_h, of_after, of_gates, of_c):
    """From gradients of `remember`'s hidden states and cells: those of what came in (n, 5H) and of the cells before."""
    size, one = c.shape[1], c.dtype.type(1)
    for n in range(rows[0], rows[1]):
        for j in range(size):
            enter, forget, leave = gates[n, j], gates[n, size + j], gates[n, 2 * size + j]
            candidate, which = gates[n, 3 * size + j], gates[n, 4 * size + j]
            active = tanh(after[n, j])
            of_cell = of_after[n, j] + of_h[n, j] * leave * (one - active * active)
            of_gates[n, j] = of_cell * candidate * enter * (one - enter)
            of_gates[n, size + j] = of_cell * c[n, j] * forget * (one - forget)
            of_gates[n, 2 * size + j] = of_h[n, j] * active * leave * (one - leave)
            of_gates[n, 3 * size + j] = of_cell * enter * which
            of_gates[n, 4 * size + j] = of_cell * enter * (one - which)
            of_c[n, j] = of_cell * forget


@compiled
def renew(gates, x, before, new, after):
    """A GRU's step from the state's part of its `gates` (n, 3H), reset, update and candidate, and the input's, `x`.

    `gates` become the reset and update gate, the candidate's part is left; `new` (n, H) is the candidate.
    """
    size = before.shape[1]
    half = gates.dtype.type(0.5)
    for n in range(len(gates)):
        reset, update, state = gates[n, :size], gates[n, size : 2 * size], gates[n, 2 * size :]
        word = x[n, 2 * size :]
        for j in range(2 * size):
            gates[n, j] = half + half * tanh(half * (gates[n, j] + x[n, j]))
        for j in range(size):
            new[n, j] = tanh(word[j] + reset[j] * state[j])
        for j in range(size):
            after[n, j] = new[n, j] + update[j] * (before[n, j] - new[n, j])


@compiled
def renew_back(gates, before, new, d, of_gates, of_x):
    """From the gradient `d` (n, H) of `renew`'s states: of the state's part of the gates and of the input's (n, 3H).

    `d` becomes what goes to the state before without passing a gate's weights.
    """
    size, one = before.shape[1], before.dtype.type(1)
    for n in range(len(gates)):
        reset, update, state = gates[n, :size], gates[n, size : 2 * size], gates[n, 2 * size :]
        of_reset, of_update, of_new = of_x[n, :size], of_x[n, size : 2 * size], of_x[n, 2 * size :]
        for j in range(size):
            of_new[j] = d[n, j] * (one - update[j]) * (one - new[n, j] * new[n, j])
        for j in range(size):
            of_reset[j] = of_new[j] * state[j] * reset[j] * (one - reset[j])
        for j in range(size):
            of_update[j] = d[n, j] * (before[n, j] - new[n, j]) * update[j] * (one - update[j])
        for j in range(2 * size):
            of_gates[n, j] = of_x[n, j]
        for j in range(size):
            of_gates[n, 2 * size + j] = of_new[j] * reset[j]
            d[n, j] *= update[j]


@compiled
def slope(logits, index, total, d, found, of_bias):
    """Gradients of `logits` (n, V) whose words `index` have log-probabilities with gradients `d`, after `log_total`."""
    for n in range(len(logits)):
        for v in range(logits.shape[1]):
            found[n, v] = -d[n] * exp(logits[n, v] - total[n])
        found[n, index[n]] += d[n]
        for v in range(logits.shape[1]):
            of_bias[v] += found[n, v]
