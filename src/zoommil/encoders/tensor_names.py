"""Row 5, encoders: other libraries' tensor names flow in, timm's flow out.

``transformers`` keeps queries, keys and values apart and names DINOv2's parts its own way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_WHOLE = {
    "embeddings.cls_token": "cls_token",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "layernorm": "norm",
}
_IN_BLOCK = {
    "attention.output.dense": "attn.proj",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    "mlp.weights_in": "mlp.fc1",
    "mlp.weights_out": "mlp.fc2",
}
_BLOCK = re.compile(r"encoder\.layer\.(\d+)\.(.+)")
_ATTENTION = re.compile(r"attention\.attention\.(query|key|value)\.(weight|bias)")


def is_transformers_dinov2(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the tensors are named as transformers' Dinov2Model names them."""
    return any(name.endswith("embeddings.position_embeddings") for name in tensors)


def rename_transformers_dinov2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under timm's names."""
    named = {name.removeprefix("dinov2."): tensor for name, tensor in tensors.items()}
    renamed: dict[str, Tensor] = {}
    for name, tensor in named.items():
        block = _BLOCK.fullmatch(name)
        if block is None:
            renamed[_replace(name, _WHOLE)] = tensor
            continue
        start, inside = f"blocks.{block[1]}.", block[2]
        attention = _ATTENTION.fullmatch(inside)
        if attention is None:
            renamed[start + _replace(inside, _IN_BLOCK)] = tensor
        elif attention[1] == "query":
            parts = [named[name.replace("query", part)] for part in ("query", "key", "value")]
            renamed[f"{start}attn.qkv.{attention[2]}"] = torch.cat(parts)
    return renamed


def _replace(name: str, table: Mapping[str, str]) -> str:
    for theirs, ours in table.items():
        if name == theirs or name.startswith(theirs + "."):
            return ours + name.removeprefix(theirs)
    return name
