"""Row 5, encoders: any timm model; a name or a card's arguments flow in, a network flows out."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoommil.encoders.card import EncoderCard
from zoommil.errors import EncoderError, MissingExtraError
from zoommil.registry import unknown_name


class TimmNetwork(nn.Module):
    """A timm model without its classifier, and how its tokens become one vector.

    ``own`` is the model's own pooling; ``class`` the class token; ``class+mean`` the class token
    followed by the mean of the patch tokens (register tokens are in neither). ``published`` is
    the timm model itself: what weight files name the tensors of.
    """

    def __init__(self, model: nn.Module, pooling: str) -> None:
        super().__init__()
        self.published: Any = model
        self.pooling = pooling
        width = int(self.published.num_features)
        self.dim = 2 * width if pooling == "class+mean" else width

    def forward(
        self, images: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch feature"]:
        """One vector per image, float32."""
        if self.pooling == "own":
            return self.published(images).float()
        tokens = self.published.forward_features(images).float()
        if self.pooling == "class":
            return tokens[:, 0]
        patch_mean = tokens[:, self.published.num_prefix_tokens :].mean(dim=1)
        return torch.cat([tokens[:, 0], patch_mean], dim=1)


def build_timm(
    architecture: str, pooling: str = "own", activation: str | None = None, **arguments: Any
) -> TimmNetwork:
    """The network of a card's arguments, weights not loaded.

    Args:
        architecture: timm's name of it.
        pooling: see :class:`TimmNetwork`.
        activation: ``swiglu`` for the packed SwiGLU with SiLU that large pathology models use.
        arguments: handed to ``timm.create_model``.
    """
    timm = require_timm(f"timm:{architecture}")
    if activation == "swiglu":
        from timm.layers.mlp import SwiGLUPacked  # pyright: ignore[reportMissingImports]

        arguments |= {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU}
    model = timm.create_model(architecture, pretrained=False, **{"num_classes": 0, **arguments})
    return TimmNetwork(model.eval(), pooling)


def card_of_timm(name: str) -> EncoderCard:
    """The card of ``timm:NAME``, from what timm itself knows of the model."""
    timm = require_timm(name)
    architecture = name.removeprefix("timm:")
    if not timm.is_model(architecture):
        raise unknown_name("timm model", architecture, timm.list_models(pretrained=True))
    with torch.device("meta"):
        model = timm.create_model(architecture, pretrained=False, num_classes=0)
    known = model.pretrained_cfg
    if not known.get("hf_hub_id"):
        raise EncoderError(
            f"timm has no weights on the hub for {architecture!r}. "
            "Name a tag that has, as timm:resnet50.tv_in1k."
        )
    return EncoderCard(
        name=name,
        title=f"{architecture} of timm",
        network="zoommil.encoders.timm_models:build_timm",
        arguments={"architecture": architecture},
        dim=model.num_features,
        input_px=known["input_size"][-1],
        any_size=False,
        mean=known["mean"],
        std=known["std"],
        pooling="own",
        source=f"hub:{known['hf_hub_id']}",
        extra="timm",
        licence=known.get("license") or "see the model's page on the hub",
    )


def require_timm(what: str) -> Any:
    """The timm package."""
    if find_spec("timm") is None:
        raise MissingExtraError(
            f"the encoder {what!r} needs timm. Run: pip install 'zoommil[timm]', "
            "or choose one of resnet50, resnet34, resnet18, efficientnet_lite0."
        )
    try:
        import timm  # pyright: ignore[reportMissingImports]
    except (ImportError, RuntimeError) as error:
        raise EncoderError(
            f"the encoder {what!r} needs timm, which is installed and cannot be imported here: "
            f"{str(error).splitlines()[0]}. Install the torchvision that fits your torch."
        ) from error
    return timm
