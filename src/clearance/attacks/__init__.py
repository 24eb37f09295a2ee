"""Attacks: small changes of an image that change the class that a model predicts.

An attack uses a callable `model(images) -> logits`, images in [0, 1] and labels; never a classifier's insides.
It holds its settings and is called:

>>> import torch
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3)).eval()
>>> images, labels = torch.rand(8, 1, 4, 4), torch.randint(3, (8,))
>>> hit = PGD(epsilon=0.1, norm=2, loss="logit_margin")(model, images, labels)
>>> hit.images.shape, hit.success.shape, hit.distance.shape
(torch.Size([8, 1, 4, 4]), torch.Size([8]), torch.Size([8]))

Radii are in the unit of the pixels, which lie in [0, 1]. Whatever an attack finds is clipped, checked against
its ball, and scored by asking the model again.

| attack | finds | norms |
|---|---|---|
| FGSM | the point of the ball that is best to first order | inf, 2, 1 |
| IFGSM | the end of many small steps | inf, 2, 1 |
| PGD | the same from several starts, towards several rivals | inf, 2, 1 |
| APGD | likewise, with momentum and steps that are halved where they stop helping | inf, 2, 1 |
| TargetedAscent | an image that the model takes for another class with high confidence | inf, 2, 1 |
| DeepFool | the first boundary that linear steps cross | inf, 2, 1 |
| MinimumNorm | the nearest image that the model gets wrong | inf, 2, 1 |
| SquareSearch | what random patches find, without gradients | inf, 2, 1 |
| transferred | what another attack finds on another model | its own |
| straight_through | no images: returns the model with gradients where it rounds or stops them | |
| as_attack | what any callable returns | inf, 2, 1 |

Losses are named: cross_entropy, logit_margin, dlr and scaled_cross_entropy. Only those in :data:`SCALE_FREE` give a
verdict that the scale of logits cannot move.
"""

from clearance.attacks.ascent import TargetedAscent as TargetedAscent
from clearance.attacks.attack import Attack as Attack
from clearance.attacks.foreign import as_attack as as_attack
from clearance.attacks.gradient import APGD as APGD
from clearance.attacks.gradient import FGSM as FGSM
from clearance.attacks.gradient import IFGSM as IFGSM
from clearance.attacks.gradient import PGD as PGD
from clearance.attacks.losses import SCALE_FREE as SCALE_FREE
from clearance.attacks.minimum_norm import DeepFool as DeepFool
from clearance.attacks.minimum_norm import MinimumNorm as MinimumNorm
from clearance.attacks.square import SquareSearch as SquareSearch
from clearance.attacks.transfer import straight_through as straight_through
from clearance.attacks.transfer import transferred as transferred

__all__ = [
    "APGD",
    "FGSM",
    "IFGSM",
    "PGD",
    "SCALE_FREE",
    "Attack",
    "DeepFool",
    "MinimumNorm",
    "SquareSearch",
    "TargetedAscent",
    "as_attack",
    "straight_through",
    "transferred",
]
