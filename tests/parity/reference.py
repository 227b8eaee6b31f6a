"""The papers' formulas in NumPy and float64: encoders, objectives, penalties, clipping, optimizers (FACTS §1, §2, §7).

It shares no code with the package and uses no PyTorch. Gradients are complex-step derivatives, exact to rounding: a
parameter w becomes w + 1e-30 i, and the imaginary part of the objective is 1e-30 times its derivative. All parameters
are perturbed at once: every array has a leading axis P with an entry for each scalar parameter. A choice (max, ReLU,
|x|) goes by the real part.

A text is a pair (ids, merges); merges[t] says how many subtrees close behind token t (shift-reduce).
"""

import numpy as np

STEP = 1e-30


def gradients(objective, parameters):
    """Derivative of an objective by each parameter; an objective maps perturbed parameters to [P]."""
    num = sum(value.size for value in parameters.values())
    perturbed, start = {}, 0
    for name, value in parameters.items():
        flat = np.repeat(value.reshape(1, -1), num, axis=0).astype(complex)
        flat[start : start + value.size] += 1j * STEP * np.eye(value.size)
        perturbed[name] = flat.reshape(num, *value.shape)
        start += value.size
    parts = np.split(objective(perturbed).imag / STEP, np.cumsum([value.size for value in parameters.values()])[:-1])
    shaped = zip(parameters.items(), parts, strict=True)
    return {name: part.reshape(value.shape) for (name, value), part in shaped}


def linear(weight, vector):
    return (weight @ vector[..., None])[..., 0]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu(x):
    return np.where(x.real > 0, x, 0)


def absolute(x):
    return np.where(x.real < 0, -x, x)


def log_softmax(x):
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


F = {"tanh": np.tanh, "relu": relu, "identity": lambda x: x}


# Encoders


def encode(kind, p, texts, **options):
    """Vectors [P, N, H] of texts."""
    return np.stack([ENCODERS[kind](p, [p["words"][:, word] for word in ids], ids, merges, options)
                     for ids, merges in texts], axis=1)  # fmt: skip


def average(vectors):
    return sum(vectors) / len(vectors)


def avg(p, words, ids, merges, options):
    return average(words)


def total(p, words, ids, merges, options):
    return sum(words)


def word(p, words, ids, merges, options):
    return words[0]


def scaled_avg(p, words, ids, merges, options):
    return average([p["scale"][:, word, None] * vector for word, vector in zip(ids, words, strict=True)])


def proj(p, words, ids, merges, options):
    return linear(p["weight"], average(words)) + p["bias"]


def dan(p, words, ids, merges, options):
    vector = average(words)
    for layer in range(options.get("layers", 1)):
        vector = F[options.get("activation", "tanh")](linear(p[f"weights.{layer}"], vector) + p[f"biases.{layer}"])
    return vector


def rnn(p, words, ids, merges, options):
    state = np.zeros_like(p["bias"])
    for word in words:
        summed = linear(p["input_weight"], word) + linear(p["state_weight"], state) + p["bias"]
        state = F[options.get("activation", "tanh")](summed)
    return state


def irnn(p, words, ids, merges, options):
    return rnn(p, words, ids, merges, {"activation": "identity"}) / len(words)


def lstm_states(p, words, options, side="f"):
    """h_t of an LSTM with peepholes (Gers 2003; Wieting 2016 eq. 5-10)."""

    def gate(name, word, state, cell):
        summed = linear(p[f"{side}.x{name}"], word) + linear(p[f"{side}.h{name}"], state) + p[f"{side}.b{name}"]
        return summed + (p[f"{side}.c{name}"] * cell if options.get("peepholes", True) and name != "c" else 0)

    state = cell = np.zeros_like(p[f"{side}.bi"])
    states = []
    for word in words:
        take, forget = (sigmoid(gate(name, word, state, cell)) for name in "if")
        new = np.tanh(gate("c", word, state, cell))
        cell = forget * cell + take * new
        output = sigmoid(gate("o", word, state, cell)) if options.get("output_gate", True) else 1
        state = output * np.tanh(cell)
        states.append(state)
    return states


def gran_vectors(form, p, words, options, side="f"):
    """a_t of a GRAN (Wieting 2017 eq. 1 and footnote 2)."""
    states, summed, vectors = lstm_states(p, words, options, side), np.zeros_like(words[0]), []

    def gate(number, word, state):
        read = linear(p[f"{side}.x{number}"], word) + linear(p[f"{side}.h{number}"], state) + p[f"{side}.b{number}"]
        return read + (linear(p[f"{side}.a{number}"], summed) if form == "gran4" else 0)

    for word, state in zip(words, states, strict=True):
        first = gate(1, word, state)
        if form == "gran":
            vectors.append(word * sigmoid(first))
        elif form == "gran2":
            vectors.append(state * sigmoid(first))
        elif form == "gran_nogate":
            vectors.append(F[options.get("activation", "tanh")](first))
        elif form == "gran5":
            vectors.append(word * sigmoid(first) + state * sigmoid(gate(2, word, state)))
        else:
            summed = summed * sigmoid(first) + word * sigmoid(gate(2, word, state))
            vectors.append(summed)
    return vectors


def combined(p, ahead, back, options):
    if options.get("combine", "sum") == "sum":
        return ahead + back
    return np.tanh(linear(p["combine_weight"], np.concatenate([ahead, back], axis=-1)) + p["combine_bias"])


def both_ways(p, vectors_of, words, options):
    ahead, back = vectors_of(words, "f"), vectors_of(words[::-1], "b")[::-1]
    return [combined(p, one, other, options) for one, other in zip(ahead, back, strict=True)]


def lstm(p, words, ids, merges, options):
    return lstm_states(p, words, options)[-1]


def lstm_avg(p, words, ids, merges, options):
    return average(lstm_states(p, words, options))


def bilstm(p, words, ids, merges, options):
    ahead, back = lstm_states(p, words, options)[-1], lstm_states(p, words[::-1], options, "b")[-1]
    return combined(p, ahead, back, options)


def bilstm_avg(p, words, ids, merges, options):
    return average(both_ways(p, lambda read, side: lstm_states(p, read, options, side), words, options))


def bigran(p, words, ids, merges, options):
    return average(both_ways(p, lambda read, side: gran_vectors("gran", p, read, options, side), words, options))


def gran(form):
    def vector(p, words, ids, merges, options):
        vectors = gran_vectors(form, p, words, options)
        if form in {"gran3", "gran4"}:
            return vectors[-1] / len(vectors)
        return vectors[-1] if options.get("state") == "last" else average(vectors)

    return vector


def gru(p, words, ids, merges, options):
    """The reset gate acts on the state before U does (Zhou 2017 §2.2)."""

    def gate(name, word, state):
        return linear(p[f"x{name}"], word) + linear(p[f"h{name}"], state) + p.get(f"b{name}", 0)

    state = np.zeros_like(p["xz"][..., 0])
    for word in words:
        update, reset = (sigmoid(gate(name, word, state)) for name in "zr")
        state = (1 - update) * state + update * np.tanh(gate("n", word, reset * state))
    return state


def recursive(p, words, ids, merges, options):
    stack = []
    for word, closes in zip(words, merges, strict=True):
        stack.append(word)
        for _ in range(closes):
            right, left = stack.pop(), stack.pop()
            stack.append(np.tanh(linear(p["weight"], np.concatenate([left, right], axis=-1)) + p["bias"]))
    return stack[0]


def cnn(p, words, ids, merges, options):
    responses = np.stack([relu(linear(p["weight"], word) - p["bias"]) for word in words])
    return np.take_along_axis(responses, responses.real.argmax(axis=0)[None], axis=0)[0]


ENCODERS = {
    "sum": total,
    **{name: gran(name) for name in ("gran", "gran2", "gran3", "gran4", "gran5", "gran_nogate")},
    **{each.__name__: each for each in (avg, word, scaled_avg, proj, dan, rnn, irnn, gru, recursive, cnn)},
    **{each.__name__: each for each in (lstm, lstm_avg, bilstm, bilstm_avg, bigran)},
}


# Objectives: means over the pairs, or the examples


def unit(vectors):
    norms = np.sqrt((vectors * vectors).sum(axis=-1, keepdims=True))
    return vectors / np.where(norms.real < 1e-8, 1e-8, norms)  # the papers are silent on a zero vector


def negatives(similarity, rule, pool, margin, draws=None):
    """The negative of each text of 2B, from the other pairs' texts: of both sides, or of its own side."""
    num = len(similarity)
    chosen = []
    for text in range(num):
        allowed = [other for other in range(num) if other // 2 != text // 2]
        if pool == "same_side":
            allowed = [other for other in allowed if other % 2 == text % 2]
        hardest = max(allowed, key=lambda other: similarity[text, other])
        if rule == "min_violation":
            active = [other for other in allowed if similarity[text, other] > similarity[text, text ^ 1] - margin]
            hardest = min(active, key=lambda other: similarity[text, other]) if active else hardest
        if rule == "rand" or (rule == "mix" and draws[1, text] >= 0.5):
            hardest = allowed[int(draws[0, text] * len(allowed))]
        chosen.append(hardest)
    return chosen


def margin_loss(vectors, margin, similarity, rule="max", pool="both_sides", draws=None):
    """Wieting 2015 eq. 1 (dot product), Wieting 2016 eq. 11 and Wieting 2017 eq. 2 (cosine)."""
    vectors = unit(vectors) if similarity == "cosine" else vectors
    real = vectors[0].real
    chosen = negatives(real @ real.T, rule, pool, margin, draws)
    paired = (vectors * vectors[:, np.arange(len(chosen)) ^ 1]).sum(axis=-1)
    return relu(margin - paired + (vectors * vectors[:, chosen]).sum(axis=-1)).sum(axis=1) / (len(chosen) / 2)


def squared_l2_loss(vectors):
    """Wieting 2015 §4.1."""
    return ((vectors[:, ::2] - vectors[:, 1::2]) ** 2).sum(axis=(1, 2)) / (vectors.shape[1] / 2)


def contrastive_loss(vectors, contrast, drawn, margin, similarity):
    """Zhou 2017 §2.4; ``drawn`` [B, k] are numbers of contrast vectors. Without a margin: negative sampling (Mikolov et
    al. 2013).
    """
    if similarity == "cosine":
        vectors, contrast = unit(vectors), unit(contrast)
    first = vectors[:, ::2]
    paired = (first * vectors[:, 1::2]).sum(axis=-1)
    unlike = (first[:, :, None] * contrast[:, drawn]).sum(axis=-1)
    if margin is None:
        terms = -np.log(sigmoid(paired)) - np.log(sigmoid(-unlike)).sum(axis=2)
        return terms.sum(axis=1) / len(drawn)
    return relu(margin - paired[:, :, None] + unlike).sum(axis=(1, 2)) / len(drawn)


def pair_logits(p, vectors):
    """Wieting 2016 eq. 13; W× and W+ are the left and right half of W."""
    left, right = vectors[:, ::2], vectors[:, 1::2]
    features = np.concatenate([left * right, absolute(left - right)], axis=-1)
    return text_logits(p, features)


def text_logits(p, vectors):
    hidden = sigmoid(linear(p["head.weight"][:, None], vectors) + p["head.bias"][:, None])
    return linear(p["head.class_weight"][:, None], hidden) + p["head.class_bias"][:, None]


def divergence(logits, scores, released_loss, released_targets):
    """KL(p ‖ p̂) with p_{⌊y⌋+1} = y - ⌊y⌋, p_{⌊y⌋} = ⌊y⌋ - y + 1, scores from 1 (Wieting 2016 eq. 14)."""
    classes = logits.shape[-1]
    targets = np.zeros((len(scores), classes))
    for row, score in enumerate(scores):
        below = int(np.floor(score))
        targets[row, below - 1] = below - score + 1
        if below < classes:
            targets[row, below] = score - below
    targets += 1e-6 if released_targets else 0
    logs = np.log(targets, where=targets > 0, out=np.zeros_like(targets))
    terms = (targets * (logs - log_softmax(logits))).sum(axis=(1, 2)) / len(scores)
    return terms / classes if released_loss else terms


def cross_entropy(logits, classes, released_targets):
    targets = np.eye(logits.shape[-1])[classes] + (1e-6 if released_targets else 0)
    return -(targets * log_softmax(logits)).sum(axis=(1, 2)) / len(classes)


def choice_loss(vectors, margin, num_asked=2, num_texts=7):
    """Zhou 2017 §3.2 on Turney's questions: each asked text against each option, the first option is right."""
    vectors = unit(vectors).reshape(len(vectors), -1, num_texts, vectors.shape[-1])
    asked, options = vectors[:, :, :num_asked], vectors[:, :, num_asked:]
    similarity = (asked[:, :, :, None] * options[:, :, None]).sum(axis=-1).reshape(*vectors.shape[:2], -1)
    return relu(margin - similarity[..., :1] + similarity[..., 1:]).sum(axis=(1, 2)) / vectors.shape[1]


# Training


def clipped(grads, clip, form, stacked):
    """Gradients of a norm of at most ``clip``.

    tensor: a stack of gates has one norm. gate: every gate has its own, + 1e-7, as in Lasagne. global: one norm.
    """
    groups = {"tensor": stacked, "gate": [[name] for name in grads], "global": [[*grads]]}[form]
    scaled = {}
    for group in groups:
        norm = np.sqrt(sum((grads[name] ** 2).sum() for name in group))
        factor = min(norm, clip) / (norm + 1e-7) if form == "gate" else min(1, clip / norm)
        scaled |= {name: grads[name] * factor for name in group}
    return scaled


class Optimizer:
    """Adam (Kingma and Ba 2015), AdaGrad (Duchi et al. 2011) and SGD; ``rows`` are those that have a gradient."""

    def __init__(self, optimizer, form=""):
        self.optimizer, self.form, self.state = optimizer, form, {}

    def step(self, name, grad, rate, count, rows):
        """The difference that a step makes."""
        if self.optimizer == "sgd":
            return -rate * grad
        first, second = self.state.setdefault(name, [np.zeros_like(grad), np.zeros_like(grad)])
        if self.optimizer == "adagrad":
            second = self.state[name][1] = np.where(rows, second + grad**2, second)
            roots = {
                "lasagne": lambda: np.sqrt(second + 1e-6),
                "matlab": lambda: np.sqrt(second) + 1e-4,
                "torch": lambda: np.sqrt(second) + 1e-10,
            }
            return np.where(rows, -rate * grad / roots[self.form](), 0)
        first = self.state[name][0] = np.where(rows, 0.9 * first + 0.1 * grad, first)
        second = self.state[name][1] = np.where(rows, 0.999 * second + 0.001 * grad**2, second)
        if self.form == "released":
            moved = rate * np.sqrt(1 - 0.999**count) / (1 - 0.9**count) * first / (np.sqrt(second) + 1e-8)
        else:
            moved = rate * (first / (1 - 0.9**count)) / (np.sqrt(second / (1 - 0.999**count)) + 1e-8)
        return np.where(rows, -moved, 0)


def train(parameters, objective, batches, recipe, stacked, frozen=()):
    """Train, and yield after each step the objective before it (without penalties) and the parameters.

    Args:
        parameters: name → values; ``words`` [V, D], the head's begin with ``head.``, the others are the encoder's.
        objective: maps perturbed parameters, batch and number of the step to [P].
        batches: ids of their words (for the sparse update) and whatever the objective reads.
        recipe: optimizer, form, rate, encoder_rate, word_l2, encoder_l2, head_l2, l2_factor, target, clip, clip_form,
            dense.
        stacked: names that are one parameter of the package.
        frozen: names that keep their values.
    """
    initial, optimizer = dict(parameters), Optimizer(recipe["optimizer"], recipe.get("form", ""))

    def penalty(p, rows):
        pulls = 0
        for name in parameters:
            if name in frozen:
                continue
            away = p[name] - (initial[name] if name == "words" or recipe.get("target") == "initial" else 0)
            weight = recipe.get("word_l2" if name == "words" else "encoder_l2", 0)
            if name.startswith("head."):
                away, weight = p[name], recipe.get("head_l2", 0)
            squares = np.where(rows, away**2, 0) if name == "words" else away**2
            pulls = pulls + weight * squares.reshape(len(squares), -1).sum(axis=1)
        return recipe.get("l2_factor", 1) * pulls

    for count, batch in enumerate(batches, 1):
        rows = np.zeros((len(parameters["words"]), 1), bool)
        rows[sorted({word for ids, _ in batch["read"] for word in ids})] = True
        if recipe.get("dense"):
            rows[:] = True
        plain = {name: value[None] for name, value in parameters.items()}
        value = objective(plain, batch, count)[0]
        grads = gradients(lambda p: objective(p, batch, count) + penalty(p, rows), parameters)  # noqa: B023 - at once
        grads = {name: grad for name, grad in grads.items() if name not in frozen}
        if recipe.get("clip"):
            kept = [[name for name in group if name not in frozen] for group in stacked]
            grads = clipped(grads, recipe["clip"], recipe["clip_form"], list(filter(None, kept)))
        rate, encoder_rate = recipe["rate"], recipe.get("encoder_rate", recipe["rate"])
        moved = {
            name: optimizer.step(name, grad, rate, count, rows)
            if name == "words"
            else optimizer.step(name, grad, encoder_rate, count, True)
            for name, grad in grads.items()
        }
        parameters = {name: values + moved.get(name, 0) for name, values in parameters.items()}
        yield value, parameters
