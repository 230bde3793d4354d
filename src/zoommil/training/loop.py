"""Row 11, the loop: a model and two sets of bags come in; its best epoch and its curves go out.

One loop for every model. Validation alone decides: it runs in evaluation mode without gradients,
its loss is the mean cross-entropy of the logits, the plateau schedule steps on that loss, the
selecting metric keeps an epoch only when it is strictly better, early stopping counts on it.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from zoommil.errors import ModelError, TrainingError
from zoommil.models.model import Model
from zoommil.training.calibration import cross_entropy
from zoommil.training.data import BagSet, LoadedBag
from zoommil.training.metrics import LOWER_IS_BETTER, SCALARS, metric_values
from zoommil.training.optimisers import build_optimiser, build_schedule
from zoommil.training.predictions import softmax
from zoommil.training.prefetch import Stopwatch, load_ahead
from zoommil.training.progress import EpochRecord, Progress, Report
from zoommil.training.run import RunSpec
from zoommil.training.sampling import BagSampler, class_weights

logger = logging.getLogger(__name__)


@dataclass
class Best:
    """The best epoch so far and its weights; how many epochs have passed without a better one."""

    epoch: int = 0
    score: float | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)
    stale: int = 0


class Trainer:
    """A run between two epochs: everything that decides how it goes on."""

    def __init__(
        self,
        model: Model,
        training: BagSet,
        validation: BagSet,
        run: RunSpec,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        """Args: training: bags to learn from; validation: bags that choose the epoch."""
        self.run, self.device = run, torch.device(device)
        self.model = model.to(self.device)
        self.training, self.validation = training, validation
        self.optimiser = build_optimiser(model, run.optimiser)
        self.schedule = build_schedule(self.optimiser, run.schedule, run.training.epochs)
        self.sampler = BagSampler(
            training.labels, is_weighted=run.training.weighted_sampler, seed=run.seed
        )
        self.scaler = torch.amp.GradScaler("cuda", enabled=self._autocast_type == torch.float16)
        self.epoch = 0
        self.best = Best()
        self.history: list[EpochRecord] = []
        self.random_state = torch.Generator().manual_seed(run.seed).get_state()
        self.device_random_state: Tensor | None = None
        self.stopwatch = Stopwatch()
        weights = class_weights(training.labels, model.num_classes).to(self.device)
        self._class_weights = weights if run.training.class_weights else None

    @property
    def is_finished(self) -> bool:
        """Whether the last epoch was run, or early stopping ended it."""
        spec, stopping = self.run.training, self.run.stopping
        has_stopped = stopping.patience > 0 and self.best.stale >= stopping.patience
        return self.epoch >= spec.epochs or (has_stopped and self.epoch >= stopping.min_epochs)

    def run_epoch(self, report: Report | None = None) -> EpochRecord:
        """Train one epoch, validate, keep the weights if they are the best, step the schedule."""
        rate = float(self.optimiser.param_groups[0]["lr"])
        with self._own_randomness():
            train_loss = self._train(report)
        metrics = self.validate(report)
        self.epoch += 1
        is_best = self._choose(metrics)
        self._step_schedule(metrics["loss"])
        record = EpochRecord(self.epoch, rate, train_loss, metrics, is_best)
        self.history.append(record)
        if report is not None:
            known = {name: value for name, value in metrics.items() if value is not None}
            total = self.run.training.epochs
            report(Progress("epoch", 1, 1, self.epoch, total, train_loss, known, is_best))
        return record

    def validate(self, report: Report | None = None) -> dict[str, float | None]:
        """Loss and metrics of the validation bags as the weights are now; undefined is None."""
        logits = self.logits(self.validation, report)
        labels = np.array(self.validation.labels)
        values = metric_values(labels, softmax(logits))
        numbers = {"loss": cross_entropy(logits, labels)}
        numbers |= {name: float(values[name][0]) for name in SCALARS}
        return {name: value if math.isfinite(value) else None for name, value in numbers.items()}

    def logits(self, bags: BagSet, report: Report | None = None) -> Float[np.ndarray, "bag klass"]:
        """The logits of every bag in order: evaluation mode, no gradients, no autocast."""

        def count(done: int) -> None:
            if report is not None:
                report(self._progress("validating", done, len(bags)))

        return logits_of(self.model, bags, self.device, count, self.stopwatch)

    def best_weights(self) -> dict[str, Tensor]:
        """The weights of the best epoch.

        Raises:
            TrainingError: the selecting metric was defined in no epoch.
        """
        if not self.best.weights:
            raise TrainingError(
                f"training.select = {self.run.training.select!r} was undefined in every epoch; "
                "select by 'loss', or give the validation split every class."
            )
        return self.best.weights

    def _train(self, report: Report | None) -> float:
        spec = self.run.training
        self.model.train()
        self.training.start_epoch(self.epoch)
        order = self.sampler.epoch()
        batches = [order[i : i + spec.batch_bags] for i in range(0, len(order), spec.batch_bags)]
        total, done = 0.0, 0
        loading = load_ahead(self.training.load, order, self.stopwatch, depth=self.training.depth)
        with contextlib.closing(loading):
            for number, batch in enumerate(batches):
                self._set_progress((self.epoch + number / len(batches)) / spec.epochs)
                total += self._train_batch(loading, len(batch))
                done += len(batch)
                if report is not None:
                    report(self._progress("training", done, len(order), total / done))
        return total / len(order)

    def _train_batch(self, loading: Iterator[LoadedBag], size: int) -> float:
        """One optimiser step from the mean gradient of some bags; returns their summed loss."""
        self.optimiser.zero_grad(set_to_none=True)
        total = 0.0
        for _ in range(size):
            bag = next(loading).to(self.device)
            loss = self._loss(bag)
            self.scaler.scale(loss / size).backward()
            total += float(loss.detach())
        if self.run.training.clip_norm > 0:
            self.scaler.unscale_(self.optimiser)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.run.training.clip_norm)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        return total

    def _loss(self, bag: LoadedBag) -> Float[Tensor, ""]:
        """One bag's training loss. Raises TrainingError when it is no longer a finite number."""
        reason = "its loss is NaN or infinite"
        with self._autocast():
            try:
                output = self.model(bag.features, bag.coords, bag.valid)
                loss = self.model.loss(output, bag.example.label, self._class_weights)
                if math.isfinite(float(loss.detach())):
                    return loss
            except ModelError as error:
                reason = str(error)
        raise TrainingError(
            f"training broke at slide {bag.example.slide_id!r} in epoch {self.epoch + 1}: {reason} "
            "Its features were finite, so lower optimiser.lr, set training.clip_norm = 1.0, or set "
            "training.autocast = 'off'."
        )

    def _choose(self, metrics: dict[str, float | None]) -> bool:
        """Whether this epoch is strictly better than the best before; keeps its weights if so."""
        name = self.run.training.select
        value = float(self.epoch) if name == "last" else metrics[name]
        sign = -1.0 if name in LOWER_IS_BETTER else 1.0
        score = None if value is None else sign * value
        best = self.best.score
        is_better = score is not None and (best is None or score > best)
        is_tie = score is not None and score == best and self.run.stopping.ties_improve
        self.best.stale = 0 if is_better or is_tie else self.best.stale + 1
        if is_better:
            self.best.epoch, self.best.score = self.epoch, score
            self.best.weights = {
                key: value.detach().cpu().clone() for key, value in self.model.state_dict().items()
            }
        return is_better

    def _step_schedule(self, validation_loss: float | None) -> None:
        if isinstance(self.schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.schedule.step(math.inf if validation_loss is None else validation_loss)
        else:
            self.schedule.step()

    def _set_progress(self, share: float) -> None:
        """Tell a model whose noise falls over training how much of it has passed."""
        set_progress = getattr(self.model, "set_progress", None)
        if set_progress is not None:
            set_progress(share)

    @property
    def _autocast_type(self) -> torch.dtype | None:
        wish = self.run.training.autocast
        if wish == "auto":
            if self.device.type != "cuda":
                return None
            wish = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        return {"off": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[wish]

    def _autocast(self) -> contextlib.AbstractContextManager:
        kind = self._autocast_type
        if kind is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=kind)

    @contextlib.contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Dropout draws from torch's global generators: set them to ours, then give them back."""
        is_cuda = self.device.type == "cuda"
        index = self.device.index if self.device.index is not None else 0
        with torch.random.fork_rng([index] if is_cuda else []):
            torch.set_rng_state(self.random_state)
            if is_cuda and self.device_random_state is None:
                torch.cuda.manual_seed(self.run.seed)
            elif is_cuda and self.device_random_state is not None:
                torch.cuda.set_rng_state(self.device_random_state, self.device)
            yield
            self.random_state = torch.get_rng_state()
            if is_cuda:
                self.device_random_state = torch.cuda.get_rng_state(self.device)

    def _progress(
        self, stage: str, done: int, total: int, train_loss: float | None = None
    ) -> Progress:
        return Progress(stage, done, total, self.epoch + 1, self.run.training.epochs, train_loss)


def _loading(
    bags: BagSet, order: Sequence[int], stopwatch: Stopwatch | None
) -> Generator[LoadedBag]:
    return load_ahead(bags.load, order, stopwatch, depth=bags.depth)


@torch.no_grad()
def logits_of(
    model: Model,
    bags: BagSet,
    device: torch.device,
    report: Callable[[int], None] | None = None,
    stopwatch: Stopwatch | None = None,
) -> Float[np.ndarray, "bag klass"]:
    """A model's logits of every bag in order, in evaluation mode and without gradients."""
    model.eval()
    rows: list[np.ndarray] = []
    with contextlib.closing(_loading(bags, range(len(bags)), stopwatch)) as loading:
        for loaded in loading:
            bag = loaded.to(device)
            rows.append(model(bag.features, bag.coords, bag.valid).logits.float().cpu().numpy())
            if report is not None:
                report(len(rows))
    return np.stack(rows) if rows else np.zeros((0, model.num_classes), np.float32)


def pick_device(name: str) -> torch.device:
    """The device of a name; "auto" is the first CUDA device if there is one, else the CPU.

    Raises:
        TrainingError: the device is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise TrainingError(f"device {name!r} cannot be used: {first}. Try 'cpu'.") from error
    return torch.device(name)


def epochs_as_rows(history: Sequence[EpochRecord]) -> list[dict[str, float | int | None]]:
    """The curves as flat rows: epoch, lr, train_loss, val_<metric>..., is_best."""
    return [
        {
            "epoch": record.epoch,
            "lr": record.lr,
            "train_loss": record.train_loss,
            **{f"val_{name}": value for name, value in record.metrics.items()},
            "is_best": int(record.is_best),
        }
        for record in history
    ]
