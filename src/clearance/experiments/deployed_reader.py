"""A model with the temperature, threshold and names that its audit found. Images in [0, 1]; needs torch alone."""

import json
from pathlib import Path

import torch


class Deployed:
    def __init__(self, model: torch.nn.Module, folder: str | Path = ".") -> None:
        self.model, self.kept = model.eval(), json.loads(Path(folder, "deploy.json").read_text("utf-8"))
        if "threshold" in self.kept:
            self.known = torch.load(Path(folder, "features.pt"), weights_only=True).double()
            model.get_submodule(self.kept["head"]).register_forward_pre_hook(self._keep)

    def _keep(self, _: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        self.features = given[0]

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> list[tuple[str, float, bool]]:
        """For each image its class, the probability of it, and whether it resembles the training images."""
        mean, std = (torch.tensor(self.kept[name]).view(-1, 1, 1) for name in ("mean", "std"))
        found = self.model((images - mean) / std)
        best = (getattr(found, "logits", found) / self.kept.get("temperature", 1)).softmax(1).max(1)
        usual = torch.ones(len(images), dtype=torch.bool)
        if "threshold" in self.kept:
            cosines = torch.nn.functional.normalize(self.features.double()) @ self.known.T
            nearest = cosines.topk(min(self.kept["neighbours"], len(self.known))).values[:, -1]
            usual = nearest - 1 >= self.kept["threshold"]
        names = [self.kept["classes"][k] for k in best.indices.tolist()]
        return list(zip(names, best.values.tolist(), usual.tolist(), strict=True))
