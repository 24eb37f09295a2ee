"""A model with the temperature, threshold and names that its audit found. Images in [0, 1]; needs torch alone."""

import json
from pathlib import Path

import torch


class Deployed:
    def __init__(self, model: torch.nn.Module, folder: str | Path = ".") -> None:
        self.model, self.kept = model.eval(), json.loads(Path(folder, "deploy.json").read_text("utf-8"))
        if self.kept["head"] is not None:
            model.get_submodule(self.kept["head"]).register_forward_hook(self._read)
        if "threshold" in self.kept:
            self.known = torch.load(Path(folder, "features.pt"), weights_only=True).double()

    def _read(self, _: torch.nn.Module, features: tuple[torch.Tensor, ...], logits: torch.Tensor) -> None:
        self.logits = logits
        if "threshold" in self.kept:
            known = self.known.to(logits.device)
            cosines = torch.nn.functional.normalize(features[0].double(), eps=1e-30) @ known.T
            self.usual = (
                cosines.topk(self.kept["neighbours"]).values[:, -1] >= self.kept["threshold"]
            ).tolist()

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> list[tuple[str, float, bool | None]]:
        """For each image its class, its probability, whether it is like the training images (None: no threshold)."""
        self.usual = [None] * len(images)
        mean, std = (torch.tensor(self.kept[k], device=images.device)[:, None, None] for k in ("mean", "std"))
        found = self.model(((images - mean) / std).to(next(self.model.parameters(), images).dtype))
        found = found.get("logits") if isinstance(found, dict) else getattr(found, "logits", found)
        found = (
            found if isinstance(found, torch.Tensor) else self.logits
        )  # of several outputs, those of the head
        share, classes = (found.float() / self.kept.get("temperature", 1)).softmax(1).max(1)
        return list(zip([self.kept["classes"][k] for k in classes], share.tolist(), self.usual, strict=True))
