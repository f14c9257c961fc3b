"""Loops compiled by numba: the element-wise parts of Att2in2, the GRU, the LSTM and the output layer's gradient.

PyTorch computes the matrix products between them. pipeline/models/att2in.py computes Att2in2 in plain PyTorch.
`rows` holds the index of a call's first caption and the index after its last caption. All captions of one image belong
to one call, so calls may run in parallel. The compiler vectorises only loops over few arrays, so some functions compute
one row in several loops. Constants have the arrays' precision; a Python number would promote single precision to
double. `grad_x` is the gradient of `x`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import numpy as np

from pipeline.runtime.compiled import compile_loop, exp, tanh

BOUND = 43  # bound of attention's keys and queries: exp(2 · 43) is below the largest number of single precision


@compile_loop
def compute_exponentials(x, values):
    """Write exp(2x) of `x` (A,), clipped to ±BOUND, to `values`."""
    bound = x.dtype.type(BOUND)
    for a in range(len(x)):
        clipped = bound if x[a] > bound else (-bound if x[a] < -bound else x[a])
        values[a] = exp(clipped + clipped)


@compile_loop
def attention_forward(rows, keys, regions, mask, weight, query, images, alpha, attended):
    """Compute additive attention of `query` (n, A) to `regions` (B, R, H): weights `alpha` (n, R), `attended` (n, H).

    `keys` (B, R, A) are from `compute_exponentials`, since tanh(k + q) is 1 - 2 / (1 + exp(2k) exp(2q)). The
    constant Σ weight does not change the softmax.
    """
    zero, one = weight.dtype.type(0), weight.dtype.type(1)
    exp_query = np.empty(query.shape[1], query.dtype)
    for n in range(rows[0], rows[1]):
        image = images[n]
        compute_exponentials(query[n], exp_query)
        max_score = weight.dtype.type(-np.inf)
        for r in range(keys.shape[1]):
            weighted_sum = zero
            for a in range(keys.shape[2]):
                weighted_sum += weight[a] / (one + keys[image, r, a] * exp_query[a])
            score = -(weighted_sum + weighted_sum)
            alpha[n, r] = score
            if mask[image, r] and not score <= max_score:
                max_score = score
        total = zero
        for r in range(keys.shape[1]):
            alpha[n, r] = exp(alpha[n, r] - max_score) if mask[image, r] else zero
            total += alpha[n, r]
        attended[n] = zero
        for r in range(keys.shape[1]):
            alpha[n, r] /= total
            weight_r = alpha[n, r]
            for h in range(regions.shape[2]):
                attended[n, h] += weight_r * regions[image, r, h]


@compile_loop
def attention_backward(rows, keys, regions, weight, query, images, alpha, d, grad_query, grad_keys, grad_weight):
    """Compute gradients of attention from `d` (n, H), the gradient of the attended regions.

    `keys` are from `compute_exponentials`, but `grad_keys` (B, R, A) is the gradient of the keys themselves, without
    the factor `weight`. Gradients are added to `grad_keys` and `grad_weight` (A,), and written to `grad_query` (n, A).
    The gradients of a caption's scores sum to 0, so the constant of tanh has no part in `grad_weight`.
    """
    zero, one = weight.dtype.type(0), weight.dtype.type(1)
    scores, exp_query = np.empty(keys.shape[1], query.dtype), np.empty(query.shape[1], query.dtype)
    for n in range(rows[0], rows[1]):
        image = images[n]
        compute_exponentials(query[n], exp_query)
        mean = zero
        for r in range(keys.shape[1]):
            grad_alpha = zero
            for h in range(regions.shape[2]):
                grad_alpha += regions[image, r, h] * d[n, h]
            scores[r] = grad_alpha
            mean += grad_alpha * alpha[n, r]
        grad_query[n] = zero
        for r in range(keys.shape[1]):
            grad_score = alpha[n, r] * (scores[r] - mean)
            double_grad = grad_score + grad_score
            for a in range(keys.shape[2]):
                ratio = one / (one + keys[image, r, a] * exp_query[a])
                slope = (double_grad + double_grad) * (ratio - ratio * ratio)
                grad_weight[a] -= double_grad * ratio
                grad_query[n, a] += slope
                grad_keys[image, r, a] += slope
        for a in range(keys.shape[2]):
            grad_query[n, a] *= weight[a]


@compile_loop
def lstm_forward(rows, gates, attended, c, new_c, h):
    """Compute an LSTM step from `gates` (n, 5H) and cells `c` (n, H); gates are input, forget, output, two candidates.

    The attended regions add `attended` (n, 2H) to the candidates. `gates` is overwritten with the activated gates, the
    larger candidate, and whether it is the first (1: first; 0: second; ½: equal or NaN). New cells are written to
    `new_c`, and hidden states to `h`.
    """
    size = c.shape[1]
    half = gates.dtype.type(0.5)
    for n in range(rows[0], rows[1]):
        input_gate, forget_gate, output_gate = gates[n, :size], gates[n, size : 2 * size], gates[n, 2 * size : 3 * size]
        first, second = gates[n, 3 * size : 4 * size], gates[n, 4 * size :]
        attended_first, attended_second = attended[n, :size], attended[n, size:]
        for j in range(3 * size):
            gates[n, j] = half + half * tanh(half * gates[n, j])
        for j in range(size):
            a, b = first[j] + attended_first[j], second[j] + attended_second[j]
            first[j] = a if a > b or a != a else b  # NaN is kept, as in torch.maximum
            second[j] = half + half if a > b else (half - half if b > a else half)
        for j in range(size):
            new_c[n, j] = forget_gate[j] * c[n, j] + input_gate[j] * first[j]
        for j in range(size):
            h[n, j] = output_gate[j] * tanh(new_c[n, j])


@compile_loop
def lstm_backward(rows, gates, c, new_c, grad_h, grad_new_c, grad_gates, grad_c):
    """Compute the gradients `grad_gates` (n, 5H) and `grad_c` (n, H) of `lstm_forward` from its outputs' gradients."""
    size, one = c.shape[1], c.dtype.type(1)
    for n in range(rows[0], rows[1]):
        for j in range(size):
            input_gate, forget_gate, output_gate = gates[n, j], gates[n, size + j], gates[n, 2 * size + j]
            candidate, is_first = gates[n, 3 * size + j], gates[n, 4 * size + j]
            tanh_c = tanh(new_c[n, j])
            grad_cell = grad_new_c[n, j] + grad_h[n, j] * output_gate * (one - tanh_c * tanh_c)
            grad_gates[n, j] = grad_cell * candidate * input_gate * (one - input_gate)
            grad_gates[n, size + j] = grad_cell * c[n, j] * forget_gate * (one - forget_gate)
            grad_gates[n, 2 * size + j] = grad_h[n, j] * tanh_c * output_gate * (one - output_gate)
            grad_gates[n, 3 * size + j] = grad_cell * input_gate * is_first
            grad_gates[n, 4 * size + j] = grad_cell * input_gate * (one - is_first)
            grad_c[n, j] = grad_cell * forget_gate


@compile_loop
def text_lstm_forward(gates, c, new_c, h):
    """Compute a step of torch's LSTM from `gates` (n, 4H), input, forget, candidate and output, and cells `c` (n, H).

    `gates` is overwritten with the activated gates. New cells are written to `new_c`, and hidden states to `h`.
    """
    size = c.shape[1]
    half = gates.dtype.type(0.5)
    for n in range(len(gates)):
        input_gate, forget_gate = gates[n, :size], gates[n, size : 2 * size]
        candidate, output_gate = gates[n, 2 * size : 3 * size], gates[n, 3 * size :]
        for j in range(2 * size):
            gates[n, j] = half + half * tanh(half * gates[n, j])
        for j in range(size):
            candidate[j] = tanh(candidate[j])
        for j in range(size):
            output_gate[j] = half + half * tanh(half * output_gate[j])
        for j in range(size):
            new_c[n, j] = forget_gate[j] * c[n, j] + input_gate[j] * candidate[j]
        for j in range(size):
            h[n, j] = output_gate[j] * tanh(new_c[n, j])


@compile_loop
def text_lstm_backward(gates, c, new_c, grad_h, grad_c, grad_gates):
    """Compute the gradients `grad_gates` (n, 4H) of `text_lstm_forward` from `grad_h` and `grad_c` of its outputs.

    `grad_c` (n, H) is overwritten with the gradient of the earlier cells `c`.
    """
    size, one = c.shape[1], c.dtype.type(1)
    for n in range(len(gates)):
        for j in range(size):
            input_gate, forget_gate = gates[n, j], gates[n, size + j]
            candidate, output_gate = gates[n, 2 * size + j], gates[n, 3 * size + j]
            tanh_c = tanh(new_c[n, j])
            grad_cell = grad_c[n, j] + grad_h[n, j] * output_gate * (one - tanh_c * tanh_c)
            grad_gates[n, j] = grad_cell * candidate * input_gate * (one - input_gate)
            grad_gates[n, size + j] = grad_cell * c[n, j] * forget_gate * (one - forget_gate)
            grad_gates[n, 2 * size + j] = grad_cell * input_gate * (one - candidate * candidate)
            grad_gates[n, 3 * size + j] = grad_h[n, j] * tanh_c * output_gate * (one - output_gate)
            grad_c[n, j] = grad_cell * forget_gate


@compile_loop
def gru_forward(gates, x, h, candidate, new_h):
    """Compute a GRU step from the state's part `gates` (n, 3H), reset, update and candidate, and the input's part `x`.

    `gates` is overwritten with the activated reset and update gates; its candidate part is kept. The candidate state
    is written to `candidate` (n, H), and the new state to `new_h`.
    """
    size = h.shape[1]
    half = gates.dtype.type(0.5)
    for n in range(len(gates)):
        reset, update, state_part = gates[n, :size], gates[n, size : 2 * size], gates[n, 2 * size :]
        input_part = x[n, 2 * size :]
        for j in range(2 * size):
            gates[n, j] = half + half * tanh(half * (gates[n, j] + x[n, j]))
        for j in range(size):
            candidate[n, j] = tanh(input_part[j] + reset[j] * state_part[j])
        for j in range(size):
            new_h[n, j] = candidate[n, j] + update[j] * (h[n, j] - candidate[n, j])


@compile_loop
def gru_backward(gates, h, candidate, d, grad_gates, grad_x):
    """Compute `grad_gates` and `grad_x` (n, 3H) of `gru_forward` from `d` (n, H), the gradient of its new states.

    `d` is overwritten with the direct part of the previous state's gradient, without the part through the weights.
    """
    size, one = h.shape[1], h.dtype.type(1)
    for n in range(len(gates)):
        reset, update, state_part = gates[n, :size], gates[n, size : 2 * size], gates[n, 2 * size :]
        grad_reset, grad_update, grad_candidate = grad_x[n, :size], grad_x[n, size : 2 * size], grad_x[n, 2 * size :]
        for j in range(size):
            grad_candidate[j] = d[n, j] * (one - update[j]) * (one - candidate[n, j] * candidate[n, j])
        for j in range(size):
            grad_reset[j] = grad_candidate[j] * state_part[j] * reset[j] * (one - reset[j])
        for j in range(size):
            grad_update[j] = d[n, j] * (h[n, j] - candidate[n, j]) * update[j] * (one - update[j])
        for j in range(2 * size):
            grad_gates[n, j] = grad_x[n, j]
        for j in range(size):
            grad_gates[n, 2 * size + j] = grad_candidate[j] * reset[j]
            d[n, j] *= update[j]


@compile_loop
def log_prob_backward(logits, index, total, d, grad_logits, grad_bias):
    """Compute the gradients `grad_logits` (n, V) of `logits` from `d` (n,), the gradient of log-probabilities.

    `index` (n,) are the tokens, and `total` (n,) is the log-sum-exp of each row. The sum over rows is
    added to `grad_bias` (V,).
    """
    for n in range(len(logits)):
        for v in range(logits.shape[1]):
            grad_logits[n, v] = -d[n] * exp(logits[n, v] - total[n])
        grad_logits[n, index[n]] += d[n]
        for v in range(logits.shape[1]):
            grad_bias[v] += grad_logits[n, v]
