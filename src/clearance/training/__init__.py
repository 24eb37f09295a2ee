"""Ways of training: which parameters a loss may move, and which head is in use.

| method | moves | head in use |
|---|---|---|
| EndToEnd | extractor and head | the model's own, in every step |
| FOCA | the extractor | new weak heads in every step; the model's own head is trained last |

EndToEnd can train on adversarial images: those of an attack, or of TRADES.

``fit`` runs any of them; your own loop calls the same two methods:

>>> import torch
>>> from clearance.data import gaussian_images
>>> from clearance.heads import MLP
>>> from clearance.models import Classifier
>>> _ = torch.manual_seed(0)
>>> data = gaussian_images(per_class=10, shape=(1, 4, 4))
>>> model = Classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 32)), MLP((32, 32, 3)))
>>> way = FOCA(per_class=2)
>>> optimizer = torch.optim.SGD(way.trainable(model), lr=0.01)
>>> training = way.start(model, data, optimizer, way.generators(seed=0))
>>> for rows in torch.randperm(len(data)).split(10):
...     loss = training.step(*data.batch(rows))
>>> training.finish()
>>> model(data.images).shape
torch.Size([30, 3])
"""

from clearance.training._way import Training, WayOfTraining
from clearance.training.end_to_end import EndToEnd
from clearance.training.fit import Execution, FitResult, Limits, fit
from clearance.training.foca import FOCA
from clearance.training.trades import TRADES

__all__ = [
    "FOCA",
    "TRADES",
    "EndToEnd",
    "Execution",
    "FitResult",
    "Limits",
    "Training",
    "WayOfTraining",
    "fit",
]
