"""Loops compiled by numba: the element-wise parts of Att2in2, the GRU, the LSTM and the output layer's gradient.

The matrix products between them are torch's. models/att2in.py has the computation of Att2in2 in plain torch.
`rows` holds the index of a call's first caption and the index after its last caption. All captions of one image belong
to one call, so calls may run in parallel. The compiler vectorises only loops over few arrays, so one row is computed in
several loops. Constants have the arrays' precision; a Python number would promote single precision to double. `grad_x`
is the gradient of `x`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import numpy as np

from pipeline.runtime.compiled import compile_loop, exp, tanh

BOUND = 43  # bound of attention's keys and queries: exp(2 · 43) is below the largest number of single precision


@compile_loop
def exponentials(x, values):
    """Write exp(2x) of `x` (A,), clipped to ±BOUND, to `values`."""
    most = x.dtype.type(BOUND)
    for a in range(len(x)):
        clipped = most if x[a] > most else (-most if x[a] < -most else x[a])
        values[a] = exp(clipped + clipped)


@compile_loop
def attention_forward(rows, keys, regions, mask, weight, query, images, shares, attended):
    """Compute additive attention of `query` (n, A) to `regions` (B, R, H): `shares` (n, R) and `attended` (n, H).

    `keys` (B, R, A) are `exponentials`: tanh(k + q) is 1 - 2 / (1 + exp(2k) exp(2q)), and a softmax ignores the
    constant Σ weight.
    """
    zero, one = weight.dtype.type(0), weight.dtype.type(1)
    active = np.empty(query.shape[1], query.dtype)
    for n in range(rows[0], rows[1]):
        image = images[n]
        exponentials(query[n], active)
        top = weight.dtype.type(-np.inf)
        for r in range(keys.shape[1]):
            below = zero
            for a in range(keys.shape[2]):
                below += weight[a] / (one + keys[image, r, a] * active[a])
            score = -(below + below)
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


@compile_loop
def attention_backward(rows, keys, regions, weight, query, images, shares, d, grad_query, grad_keys, grad_weight):
    """Compute gradients of attention from `d` (n, H), the gradient of the attended regions.

    `keys` are `exponentials`, but `grad_keys` (B, R, A) is the gradient of the keys themselves, without the factor
    `weight`. Gradients are added to `grad_keys` and `grad_weight` (A,), and written to `grad_query` (n, A). The
    gradients of a caption's scores sum to 0, so the constant of tanh has no part in `grad_weight`.
    """
    zero, one = weight.dtype.type(0), weight.dtype.type(1)
    scores, active = np.empty(keys.shape[1], query.dtype), np.empty(query.shape[1], query.dtype)
    for n in range(rows[0], rows[1]):
        image = images[n]
        exponentials(query[n], active)
        mean = zero
        for r in range(keys.shape[1]):
            grad_share = zero
            for h in range(regions.shape[2]):
                grad_share += regions[image, r, h] * d[n, h]
            scores[r] = grad_share
            mean += grad_share * shares[n, r]
        grad_query[n] = zero
        for r in range(keys.shape[1]):
            grad_score = shares[n, r] * (scores[r] - mean)
            twice = grad_score + grad_score
            for a in range(keys.shape[2]):
                part = one / (one + keys[image, r, a] * active[a])
                slope = (twice + twice) * (part - part * part)
                grad_weight[a] -= twice * part
                grad_query[n, a] += slope
                grad_keys[image, r, a] += slope
        for a in range(keys.shape[2]):
            grad_query[n, a] *= weight[a]


@compile_loop
def lstm_forward(rows, gates, chosen, c, after, h):
    """Compute an LSTM step from `gates` (n, 5H) and cells `c` (n, H); gates are in, forget, out and two candidates.

    The attended regions add `chosen` (n, 2H) to the candidates. `gates` is overwritten with the activated gates, the
    larger candidate, and its index (1: the first; 0: the second; ½: equal or NaN). New cells are written to `after`,
    and hidden states to `h`.
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
            first[j] = a if a > b or a != a else b  # NaN is kept, as in torch.maximum
            second[j] = half + half if a > b else (half - half if b > a else half)
        for j in range(size):
            after[n, j] = forget[j] * c[n, j] + enter[j] * first[j]
        for j in range(size):
            h[n, j] = leave[j] * tanh(after[n, j])


@compile_loop
def lstm_backward(rows, gates, c, after, grad_h, grad_after, grad_gates, grad_c):
    """Compute the gradients `grad_gates` (n, 5H) and `grad_c` (n, H) of `lstm_forward` from those of its outputs."""
    size, one = c.shape[1], c.dtype.type(1)
    for n in range(rows[0], rows[1]):
        for j in range(size):
            enter, forget, leave = gates[n, j], gates[n, size + j], gates[n, 2 * size + j]
            candidate, which = gates[n, 3 * size + j], gates[n, 4 * size + j]
            active = tanh(after[n, j])
            grad_cell = grad_after[n, j] + grad_h[n, j] * leave * (one - active * active)
            grad_gates[n, j] = grad_cell * candidate * enter * (one - enter)
            grad_gates[n, size + j] = grad_cell * c[n, j] * forget * (one - forget)
            grad_gates[n, 2 * size + j] = grad_h[n, j] * active * leave * (one - leave)
            grad_gates[n, 3 * size + j] = grad_cell * enter * which
            grad_gates[n, 4 * size + j] = grad_cell * enter * (one - which)
            grad_c[n, j] = grad_cell * forget


@compile_loop
def text_lstm_forward(gates, c, after, h):
    """Compute a step of torch's LSTM from `gates` (n, 4H), in, forget, candidate and out, and cells `c` (n, H).

    `gates` is overwritten with the activated gates. New cells are written to `after`, and hidden states to `h`.
    """
    size = c.shape[1]
    half = gates.dtype.type(0.5)
    for n in range(len(gates)):
        enter, forget = gates[n, :size], gates[n, size : 2 * size]
        candidate, leave = gates[n, 2 * size : 3 * size], gates[n, 3 * size :]
        for j in range(2 * size):
            gates[n, j] = half + half * tanh(half * gates[n, j])
        for j in range(size):
            candidate[j] = tanh(candidate[j])
        for j in range(size):
            leave[j] = half + half * tanh(half * leave[j])
        for j in range(size):
            after[n, j] = forget[j] * c[n, j] + enter[j] * candidate[j]
        for j in range(size):
            h[n, j] = leave[j] * tanh(after[n, j])


@compile_loop
def text_lstm_backward(gates, c, after, grad_h, grad_c, grad_gates):
    """Compute the gradients `grad_gates` (n, 4H) of `text_lstm_forward` from `grad_h` and `grad_c` of its outputs.

    `grad_c` (n, H) is overwritten with the gradient of the earlier cells `c`.
    """
    size, one = c.shape[1], c.dtype.type(1)
    for n in range(len(gates)):
        for j in range(size):
            enter, forget = gates[n, j], gates[n, size + j]
            candidate, leave = gates[n, 2 * size + j], gates[n, 3 * size + j]
            active = tanh(after[n, j])
            grad_cell = grad_c[n, j] + grad_h[n, j] * leave * (one - active * active)
            grad_gates[n, j] = grad_cell * candidate * enter * (one - enter)
            grad_gates[n, size + j] = grad_cell * c[n, j] * forget * (one - forget)
            grad_gates[n, 2 * size + j] = grad_cell * enter * (one - candidate * candidate)
            grad_gates[n, 3 * size + j] = grad_h[n, j] * active * leave * (one - leave)
            grad_c[n, j] = grad_cell * forget


@compile_loop
def gru_forward(gates, x, before, new, after):
    """Compute a GRU step from the state's part `gates` (n, 3H), reset, update and candidate, and the input's part `x`.

    `gates` is overwritten with the activated reset and update gates; its candidate part is kept. The candidate is
    written to `new` (n, H), and the new state to `after`.
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


@compile_loop
def gru_backward(gates, before, new, d, grad_gates, grad_x):
    """Compute the gradients `grad_gates` and `grad_x` (n, 3H) of `gru_forward` from `d` (n, H), that of its states.

    `d` is overwritten with the direct part of the previous state's gradient, without the part through the weights.
    """
    size, one = before.shape[1], before.dtype.type(1)
    for n in range(len(gates)):
        reset, update, state = gates[n, :size], gates[n, size : 2 * size], gates[n, 2 * size :]
        grad_reset, grad_update, grad_new = grad_x[n, :size], grad_x[n, size : 2 * size], grad_x[n, 2 * size :]
        for j in range(size):
            grad_new[j] = d[n, j] * (one - update[j]) * (one - new[n, j] * new[n, j])
        for j in range(size):
            grad_reset[j] = grad_new[j] * state[j] * reset[j] * (one - reset[j])
        for j in range(size):
            grad_update[j] = d[n, j] * (before[n, j] - new[n, j]) * update[j] * (one - update[j])
        for j in range(2 * size):
            grad_gates[n, j] = grad_x[n, j]
        for j in range(size):
            grad_gates[n, 2 * size + j] = grad_new[j] * reset[j]
            d[n, j] *= update[j]


@compile_loop
def log_prob_backward(logits, index, total, d, grad_logits, grad_bias):
    """Compute the gradients `grad_logits` (n, V) of `logits` from those of the tokens' log-probabilities, `d` (n,).

    `total` (n,) is the log-sum-exp of each row. The sum over rows is added to `grad_bias` (V,).
    """
    for n in range(len(logits)):
        for v in range(logits.shape[1]):
            grad_logits[n, v] = -d[n] * exp(logits[n, v] - total[n])
        grad_logits[n, index[n]] += d[n]
        for v in range(logits.shape[1]):
            grad_bias[v] += grad_logits[n, v]
