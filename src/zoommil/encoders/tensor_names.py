"""Row 5, encoders: other libraries' tensor names flow in, timm's flow out.

``transformers`` keeps apart what timm packs into one matrix, and names DINOv2's parts its own way:
one before its version 5 (as files on the hub are), another since. Both are understood.
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
    "attention.o_proj": "attn.proj",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    "mlp.weights_in": "mlp.fc1",
    "mlp.weights_out": "mlp.fc2",
    "mlp.down_proj": "mlp.fc2",
}
# The first of several parts that timm has as one: the others, and the one.
_PACKED = {
    "attention.attention.query": (
        ("attention.attention.key", "attention.attention.value"),
        "attn.qkv",
    ),
    "attention.q_proj": (("attention.k_proj", "attention.v_proj"), "attn.qkv"),
    "mlp.gate_proj": (("mlp.up_proj",), "mlp.fc1"),
}
_BLOCK = re.compile(r"(encoder\.layer\.(\d+)\.)(.+)\.(weight|bias)")


def is_transformers_dinov2(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the tensors are named as transformers' Dinov2Model names them."""
    return any(name.endswith("embeddings.position_embeddings") for name in tensors)


def rename_transformers_dinov2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under timm's names; parts that were packed stay as they were, too."""
    named = {name.removeprefix("dinov2."): tensor for name, tensor in tensors.items()}
    renamed: dict[str, Tensor] = {}
    for name, tensor in named.items():
        block = _BLOCK.fullmatch(name)
        if block is not None and block[3] in _PACKED:
            others, packed = _PACKED[block[3]]
            parts = [tensor, *(named[f"{block[1]}{other}.{block[4]}"] for other in others)]
            renamed[f"blocks.{block[2]}.{packed}.{block[4]}"] = torch.cat(parts)
        else:
            renamed[_timm_name(name)] = tensor
    return renamed


def _timm_name(name: str) -> str:
    block = re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", name)
    if block is None:
        return _replace(name, _WHOLE)
    return f"blocks.{block[1]}.{_replace(block[2], _IN_BLOCK)}"


def _replace(name: str, table: Mapping[str, str]) -> str:
    for theirs, ours in table.items():
        if name == theirs or name.startswith(theirs + "."):
            return ours + name.removeprefix(theirs)
    return name
