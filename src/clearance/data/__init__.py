"""Images with labels: the ImageSet, one reader per format, and subsets.

Images are one float32 tensor (N, C, H, W) within [0, 1]; normalisation belongs to the model. A set never
changes: subsets, label noise and augmentation give new sets, and each random choice takes a seed.

>>> import torch
>>> from clearance import load_dataset
>>> from clearance.data import Augmentation
>>> train, test = load_dataset("digits", split="train"), load_dataset("digits", split="test")
>>> train
ImageSet('digits', 1300 images of shape (1, 8, 8), 10 classes)
>>> small = train.per_class(20, seed=0).with_label_noise(0.1, seed=0)
>>> len(small), len(test)
(200, 497)
>>> shifted = small.augmented(Augmentation(pad=1))
>>> images, labels = shifted.batch(torch.arange(32), generator=torch.Generator().manual_seed(0))
>>> images.shape, labels.shape
(torch.Size([32, 1, 8, 8]), torch.Size([32]))

:func:`clearance.load_dataset` reads digits, MNIST, Fashion-MNIST and CIFAR by name. `open_images` takes tensors,
arrays, folders of pictures, loaders and other people's Datasets of any size: what is larger than memory stays on
disk, and is read in batches. `gaussian_images` makes small sets for examples.
"""

from clearance.data.augmentation import Augmentation
from clearance.data.image_set import ImageSet
from clearance.data.intake import open_images
from clearance.data.preprocessing import Preprocessing, preprocessing_of
from clearance.data.stored import StoredImageSet
from clearance.data.synthetic import gaussian_images

__all__ = [
    "Augmentation",
    "ImageSet",
    "Preprocessing",
    "StoredImageSet",
    "gaussian_images",
    "open_images",
    "preprocessing_of",
]
