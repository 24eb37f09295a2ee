"""Methods of several papers on the same images: the errors of heads trained on one image of each class."""
