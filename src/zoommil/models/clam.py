"""Row 9, models: CLAM, attention that also learns from its extremes; features in, answer out.

Lu et al. 2021. Beside the bag's loss, the patches of highest and lowest attention are taken as
examples for and against the bag's class by small classifiers of single patches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from zoommil.errors import ModelError
from zoommil.models.attention import GatedAttention, masked_softmax
from zoommil.models.model import Answer, MILOutput, SingleStepModel
from zoommil.models.sampling import spread, usable_rows

_ATTENTION_DROPOUT = 0.25  # of CLAM's code, whenever there is any dropout


def smooth_svm(
    logits: Float[Tensor, "row class"], targets: Int[Tensor, " row"]
) -> Float[Tensor, ""]:
    """The smooth top-1 SVM loss, temperature and margin 1, averaged over rows."""
    margins = 1.0 - functional.one_hot(targets, logits.shape[1]).to(logits.dtype)
    own = logits.gather(1, targets[:, None])[:, 0]
    return (torch.logsumexp(logits + margins, dim=1) - own).mean()


_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "ce": functional.cross_entropy,
    "svm": smooth_svm,
}


class _CLAM(SingleStepModel):
    """What both forms share; they differ in the number of attention rows and in the classifier."""

    def __init__(
        self,
        feature_dim: int | Sequence[int],
        num_classes: int,
        ratios: Sequence[int] = (),
        *,
        at: int = -1,
        embed_dim: int = 512,
        attention_dim: int = 256,
        dropout: float = 0.25,
        bag_weight: float = 0.7,
        num_instances: int = 8,
        subtyping: bool = False,
        bag_loss: str = "ce",
        instance_loss: str = "ce",
        init: str = "default",
        standardise: bool = False,
        seed: int | None = None,
    ) -> None:
        """Model with the defaults of CLAM's code.

        Args:
            attention_dim: 256 is CLAM's "small", 384 its "big".
            bag_weight: share of the bag's loss in the total (w).
            num_instances: patches taken from each end of the attention (B).
            subtyping: the classes exclude each other, so that the patches that speak for the
                bag's class speak against the others.
            bag_loss, instance_loss: "ce" or "svm" (smooth top-1 SVM).
            init: "default", or "xavier" (normal weights, zero biases) as older CLAM had.
        """
        super().__init__(
            feature_dim, num_classes, ratios, at=at, standardise=standardise, seed=seed
        )
        _check_choices(num_instances, bag_weight, (bag_loss, instance_loss), init)
        self.bag_weight = bag_weight
        self.num_instances = num_instances
        self.subtyping = subtyping
        self.bag_loss = bag_loss
        self.instance_loss = instance_loss
        self.projection = nn.Sequential(
            nn.Linear(self.feature_dims[0], embed_dim), nn.ReLU(), nn.Dropout(dropout)
        )
        self.attention = GatedAttention(
            embed_dim,
            attention_dim,
            dropout=_ATTENTION_DROPOUT if dropout > 0 else 0.0,
            num_outputs=self._num_attention_rows(),
        )
        self.classifiers = self._make_classifiers(embed_dim)
        self.instance_classifiers = nn.ModuleList(
            nn.Linear(embed_dim, 2) for _ in range(num_classes)
        )
        if init == "xavier":
            self.apply(_init_xavier)

    @abstractmethod
    def _num_attention_rows(self) -> int: ...

    @abstractmethod
    def _make_classifiers(self, embed_dim: int) -> nn.Module: ...

    @abstractmethod
    def _classify(self, pooled: Float[Tensor, "row embed"]) -> Float[Tensor, " class"]: ...

    @abstractmethod
    def _attention_row(self, of_class: int) -> int: ...

    def answer(
        self,
        features: Float[Tensor, "patch feature"],
        coords: Tensor | None,  # noqa: ARG002 (their order is irrelevant)
        valid: Bool[Tensor, " patch"] | None,
    ) -> Answer:
        """The attention given is the row of the class that it answers."""
        rows = usable_rows(features, valid)
        hidden = self.projection(features[rows])
        attention = masked_softmax(self.attention(hidden).T)
        logits = self._classify(attention.to(hidden.dtype) @ hidden)
        answered = attention[self._attention_row(int(logits.argmax()))]
        extras = {"embeddings": hidden, "class_attention": attention}
        return Answer(logits, spread(answered, rows, len(features)), extras)

    def loss(
        self, output: MILOutput, label: int | Tensor, class_weights: Tensor | None = None
    ) -> Float[Tensor, ""]:
        """The bag's loss, times its class's weight, and that of its instances, by `bag_weight`."""
        target = torch.as_tensor(label, device=output.logits.device).long().reshape(1)
        bag = _LOSSES[self.bag_loss](output.logits.float()[None], target)
        if class_weights is not None:
            bag = bag * class_weights[target[0]]
        instances = self.loss_of_instances(
            output.extras["embeddings"], output.extras["class_attention"], int(target)
        )
        return self.bag_weight * bag + (1 - self.bag_weight) * instances

    def loss_of_instances(
        self,
        embeddings: Float[Tensor, "patch embed"],
        class_attention: Float[Tensor, "row patch"],
        label: int,
    ) -> Float[Tensor, ""]:
        """The instance classifiers' loss, summed over classes; their mean if `subtyping`.

        From each end of the attention at most half of the bag is taken, but at least one patch.
        """
        num_taken = min(self.num_instances, max(1, len(embeddings) // 2))
        total = embeddings.new_zeros((), dtype=torch.float32)
        for class_index, classifier in enumerate(self.instance_classifiers):
            is_label = class_index == label
            if not is_label and not self.subtyping:
                continue
            attention = class_attention[self._attention_row(class_index)].detach()
            order = torch.argsort(attention, descending=True, stable=True)
            taken, targets = order[:num_taken], torch.zeros_like(order[:num_taken])
            if is_label:
                taken = torch.cat([taken, order[-num_taken:]])
                targets = torch.cat([targets + 1, targets])
            logits = classifier(embeddings[taken]).float()
            total = total + _LOSSES[self.instance_loss](logits, targets)
        return total / self.num_classes if self.subtyping else total


class ClamSB(_CLAM):
    """CLAM with a single attention row for all classes."""

    def _num_attention_rows(self) -> int:
        return 1

    def _make_classifiers(self, embed_dim: int) -> nn.Module:
        return nn.Linear(embed_dim, self.num_classes)

    def _classify(self, pooled: Float[Tensor, "row embed"]) -> Float[Tensor, " class"]:
        return self.classifiers(pooled)[0]

    def _attention_row(self, of_class: int) -> int:  # noqa: ARG002 (one row for all)
        return 0


class ClamMB(_CLAM):
    """CLAM with an attention row and a classifier of its own for each class."""

    def _num_attention_rows(self) -> int:
        return self.num_classes

    def _make_classifiers(self, embed_dim: int) -> nn.Module:
        return nn.ModuleList(nn.Linear(embed_dim, 1) for _ in range(self.num_classes))

    def _classify(self, pooled: Float[Tensor, "row embed"]) -> Float[Tensor, " class"]:
        assert isinstance(self.classifiers, nn.ModuleList)
        own = zip(self.classifiers, pooled, strict=True)
        return torch.cat([classifier(vector) for classifier, vector in own])

    def _attention_row(self, of_class: int) -> int:
        return of_class


def _check_choices(num_instances: int, bag_weight: float, losses: Sequence[str], init: str) -> None:
    for loss in losses:
        if loss not in _LOSSES:
            raise ModelError(f"loss is {loss!r}; expected one of {', '.join(_LOSSES)}.")
    if init not in ("default", "xavier"):
        raise ModelError(f"init is {init!r}; expected 'default' or 'xavier'.")
    if num_instances < 1:
        raise ModelError(f"num_instances is {num_instances}; expected at least 1.")
    if not 0 <= bag_weight <= 1:
        raise ModelError(f"bag_weight is {bag_weight}; expected a number from 0 to 1.")


def _init_xavier(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_normal_(module.weight)
        nn.init.zeros_(module.bias)
