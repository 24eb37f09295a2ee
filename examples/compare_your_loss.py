"""Compare your own loss with plain cross-entropy, without changing the package.

    python examples/compare_your_loss.py

writes ``compare.html``. A loss is any subclass of ``cl.losses.Loss``: it gets the network's outputs for
a batch, and returns its terms by name. The training loop, the audits and the verdict over seeds are the same as for
the library's own losses.
"""

from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

import clearance as cl


class FocalLoss(cl.losses.Loss):
    """Cross-entropy with less weight on confident samples: (1 - p)^gamma * -log p (Lin et al., ICCV 2017, Eq. 4)."""

    reads_logits_only = True  # so a way of training may also pass the logits of K heads at once, (K, B, C)

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, outputs: cl.Outputs, labels: Tensor) -> cl.LossTerms:
        """One term, averaged over samples."""
        log_p = F.log_softmax(outputs.logits, dim=-1)
        chosen = labels.expand(log_p.shape[:-1]).unsqueeze(-1)
        log_p = log_p.gather(-1, chosen).squeeze(-1)
        return cl.LossTerms({"focal": -((1 - log_p.exp()) ** self.gamma * log_p).mean()})


def main(epochs: int = 20, seeds: int = 3, out: Path = Path("compare.html")) -> cl.Card:
    """Train both under each seed, audit both, and write one page."""
    train, test = cl.load_dataset("digits", split="train"), cl.load_dataset("digits", split="test")
    card = cl.compare(
        {"plain": "plain", "focal": FocalLoss(gamma=2.0)},  # the first is what the others are compared with
        train,
        test,
        seeds=seeds,
        epochs=epochs,
        on_run=lambda method, seed: print(f"training {method}, seed {seed}"),
    )
    card.save(out)
    print(card)
    print(f"The whole page: {out}")
    return card


if __name__ == "__main__":
    main()
