"""The slow truth about paths of heads: the Fisher matrix itself, formed sample by sample."""

import copy

import torch

SEGMENTS = 4
CLASSES = 3


def modules_of(head):
    """Parameter names by the module that holds them."""
    owners = {n: [f"{n}.{p}".lstrip(".") for p, _ in m.named_parameters(recurse=False)] for n, m in
              head.named_modules()}  # fmt: skip
    named = dict(head.named_parameters())
    kept = {owner: [name for name in names if name in named] for owner, names in owners.items()}
    return {owner: names for owner, names in kept.items() if names}


def gradients(head, sample, classes):
    """Gradient of -log p_c of one sample for each of `classes`, and its p: one autograd call each."""
    log_p = head(sample[None]).log_softmax(dim=1)[0]
    names, values = zip(*head.named_parameters(), strict=True)
    found = []
    for c in classes:
        grads = torch.autograd.grad(-log_p[c], values, retain_graph=True, materialize_grads=True)
        found.append((float(log_p[c].detach().exp()), dict(zip(names, grads, strict=True))))
    return found


def slow_distances(start, tangent, features, labels):
    """(empirical, model) as {layer: [d of every segment]}, through explicit matrices I_a and t^T I_a t."""
    layers = {**modules_of(start.architecture), "all": list(tangent)}
    found: dict[str, dict[str, list[float]]] = {
        kind: {layer: [] for layer in layers} for kind in ("empirical", "model")
    }
    for a in range(SEGMENTS):
        head = copy.deepcopy(start.architecture).requires_grad_(requires_grad=True)
        with torch.no_grad():
            for name, value in head.named_parameters():
                value.copy_(start.parameters[name][0] + a * tangent[name])
        classes = range(head(features[:1]).shape[1])
        seen = [gradients(head, sample, classes) for sample in features]
        for layer, names in layers.items():
            t = torch.cat([tangent[name].flatten() for name in names])
            empirical = model = torch.zeros(len(t), len(t), dtype=torch.float64)
            for of_class, label in zip(seen, labels.tolist(), strict=True):
                flat = [(p, torch.cat([grad[name].flatten() for name in names])) for p, grad in of_class]
                empirical = empirical + torch.outer(flat[label][1], flat[label][1]) / len(features)
                model = model + sum(p * torch.outer(g, g) for p, g in flat) / len(features)
            found["empirical"][layer].append(float(t @ empirical @ t) ** 0.5)
            found["model"][layer].append(float(t @ model @ t) ** 0.5)
    return found
