"""The ways to cut a module in front of a head: at a vector, or at maps that are flattened or pooled to one."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from clearance.models._cut import UntilHead


@dataclass(frozen=True)
class Cut:
    """An extractor and a head whose logits are the module's: to the bit, or but for rounding where `exact` is false."""

    extractor: UntilHead
    head: nn.Module
    exact: bool = True
    how: str = ""


class UntilMap(UntilHead):
    """The same extractor where the head receives maps (B, C, H, W): they are flattened, or averaged over H and W."""

    def __init__(self, module: nn.Module, head: nn.Module, *, pooled: bool) -> None:
        super().__init__(module, head)
        self.pooled = pooled

    def forward(self, *inputs: Tensor) -> Tensor:
        """Features of shape (B, C H W), or (B, C) where they are pooled."""
        maps = super().forward(*inputs)
        return maps.mean((2, 3)) if self.pooled else maps.flatten(1)


class MapHead(nn.Module):
    """A head that reads maps, as one that reads vectors.

    logits = part(features as (B, C, H, W)) as (B, K)

    Shapes:
        features (B, C H W) -> logits (B, K).

    >>> import torch
    >>> head = MapHead(nn.Conv2d(8, 3, 1), (8, 1, 1))
    >>> head(torch.rand(2, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, part: nn.Module, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.part, self.shape = part, shape
        self.training = part.training

    def forward(self, features: Tensor) -> Tensor:
        """Logits, shape (B, K)."""
        return self.part(features.unflatten(1, self.shape)).flatten(1)


def is_point_convolution(part: nn.Module) -> bool:
    """Whether a module is a 1x1 convolution: a linear layer at every place of a map."""
    return (
        isinstance(part, nn.Conv2d)
        and part.kernel_size == (1, 1)
        and part.stride == (1, 1)
        and part.padding in ((0, 0), "valid", "same")
        and part.groups == 1
    )


def cuts(module: nn.Module, head: nn.Module, received: tuple[int, ...]) -> Iterator[Cut]:
    """Every way to cut in front of a head that receives this shape, the plainest first.

    A 1x1 convolution in front of global average pooling is a linear layer behind it (a mean is linear), but for
    rounding: then the features are C averages in place of C H W values.
    """
    if len(received) == 2:
        yield Cut(UntilHead(module, head), head)
        return
    channels, height, width = received[1:]
    if height * width > 1 and is_point_convolution(head):
        yield Cut(
            UntilMap(module, head, pooled=True),
            MapHead(head, (channels, 1, 1)),
            exact=False,
            how="maps averaged before this convolution, not after it",
        )
    how = (
        ""
        if height * width == 1
        else f"maps of {channels} x {height} x {width} flattened: for this size alone"
    )
    yield Cut(UntilMap(module, head, pooled=False), MapHead(head, (channels, height, width)), how=how)
