"""The loop: who chooses, in which mode, and that a resumed run is the same run."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_bags import SMALL_ZOOM, make_bags, make_set

from zoommil.errors import TrainingError
from zoommil.models.creation import create_model
from zoommil.training.checkpoint import load_checkpoint, save_checkpoint
from zoommil.training.determinism import deterministic
from zoommil.training.loop import Trainer, logits_of
from zoommil.training.run import RunSpec

METHODS = ["zoommil", "zoommil_robust", "abmil", "clam_sb", "transmil", "sparseconvmil", "meanmil"]
SMALL = {
    "zoommil": SMALL_ZOOM,
    "zoommil_robust": SMALL_ZOOM,
    "abmil": {"embed_dim": 16, "attention_dim": 8},
    "clam_sb": {"embed_dim": 16, "attention_dim": 8, "num_instances": 2},
    "transmil": {"embed_dim": 16, "num_heads": 2, "num_landmarks": 4},
    "sparseconvmil": {"num_patches": 10},
    "meanmil": {"num_patches": 10},
}


def small_run(recipe: str = "zoommil", **tables) -> RunSpec:
    return RunSpec.compose(
        {"recipe": recipe, "model": SMALL[recipe], "training": {"epochs": 4}}, tables
    )


def make_trainer(run: RunSpec, bags=None, *, seed: int = 0) -> Trainer:
    bags = bags or make_bags(18, counts=(9, 36))
    model = create_model(
        run.model.name,
        feature_dim=8,
        num_classes=2,
        ratios=(2,),
        seed=seed,
        **run.model.arguments,
    )
    return Trainer(model, make_set(bags, 0, 12, model), make_set(bags, 12, 18, model), run)


def saved(trainer: Trainer, path: Path) -> bytes:
    save_checkpoint(trainer, path, "same run")
    return path.read_bytes()


@pytest.mark.parametrize("recipe", METHODS)
def test_check_22_same_seed_gives_identical_checkpoints(recipe: str, tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        torch.manual_seed(len(name) + len(files))  # the surroundings' generator must not matter
        trainer = make_trainer(small_run(recipe))
        with deterministic():
            for _ in range(2):
                trainer.run_epoch()
        files.append(saved(trainer, tmp_path / name))
    assert files[0] == files[1]


@pytest.mark.parametrize("recipe", METHODS)
def test_check_22_resumed_run_is_bit_identical(recipe: str, tmp_path: Path) -> None:
    run = small_run(recipe, schedule={"name": "plateau", "patience": 0, "factor": 0.5})
    straight = make_trainer(run)
    for _ in range(4):
        straight.run_epoch()
    first = make_trainer(run)
    for _ in range(2):
        first.run_epoch()
    save_checkpoint(first, tmp_path / "checkpoint", "same run")
    second = make_trainer(run, seed=7)  # other weights and noise, until the checkpoint is loaded
    load_checkpoint(second, tmp_path / "checkpoint", "same run")
    for _ in range(2):
        second.run_epoch()
    assert saved(straight, tmp_path / "a") == saved(second, tmp_path / "b")


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    first, second = make_trainer(small_run()), make_trainer(small_run(seed=1))
    for trainer in (first, second):
        trainer.run_epoch()
    assert saved(first, tmp_path / "a") != saved(second, tmp_path / "b")


def test_training_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    make_trainer(small_run()).run_epoch()
    assert torch.equal(before, torch.get_rng_state())


class Scripted(Trainer):
    """A trainer whose validation says what the test wants; everything else is the real one."""

    script: list[dict[str, float]]

    def validate(self, report=None):
        return super().validate(report) | self.script[self.epoch]


def scripted(run: RunSpec, **columns: list[float]) -> Scripted:
    trainer = make_trainer(run)
    trainer.__class__ = Scripted
    names = list(columns)
    trainer.script = [
        dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ]
    return trainer


def test_check_23_schedule_steps_on_loss_while_f1_selects() -> None:
    run = small_run(
        schedule={"name": "plateau", "patience": 0, "factor": 0.5},
        training={"epochs": 4, "select": "weighted_f1"},
    )
    trainer = scripted(run, loss=[1.0, 2.0, 0.5, 0.4], weighted_f1=[0.5, 0.9, 0.7, 0.8])
    records = [trainer.run_epoch() for _ in range(4)]
    assert trainer.best.epoch == 2  # by F1, although its loss was the worst
    rates = [record.lr / records[0].lr for record in records]
    assert rates == [1.0, 1.0, 0.5, 0.5]  # by loss: worse in epoch 2, better in 3, although F1 fell


def test_check_23_the_earlier_of_two_equal_epochs_is_kept() -> None:
    run = small_run(training={"epochs": 4, "select": "weighted_f1"})
    trainer = scripted(run, weighted_f1=[0.5, 0.8, 0.8, 0.7])
    weights = []
    for _ in range(4):
        trainer.run_epoch()
        weights.append(copy.deepcopy(trainer.model.state_dict()))
    assert trainer.best.epoch == 2
    for name, value in trainer.best_weights().items():
        assert torch.equal(value, weights[1][name])


def test_loss_selects_by_the_smallest() -> None:
    trainer = scripted(small_run(), loss=[1.0, 0.5, 0.7, 0.6])
    for _ in range(4):
        trainer.run_epoch()
    assert trainer.best.epoch == 2


def test_last_epoch_can_be_kept_whatever_validation_says() -> None:
    trainer = scripted(small_run(training={"epochs": 3, "select": "last"}), loss=[0.1, 0.5, 0.9])
    for _ in range(3):
        trainer.run_epoch()
    assert trainer.best.epoch == 3


@pytest.mark.parametrize(
    ("stopping", "epochs"),
    [
        ({"patience": 2}, 4),  # best in 2, then two without a better one
        ({"patience": 2, "min_epochs": 5}, 5),
        ({"patience": 2, "ties_improve": True}, 5),  # the tie in epoch 3 counts as one
        ({"patience": 0}, 6),
    ],
)
def test_early_stopping(stopping: dict, epochs: int) -> None:
    run = small_run(training={"epochs": 6}, stopping=stopping)
    trainer = scripted(run, loss=[1.0, 0.5, 0.5, 0.7, 0.7, 0.7])
    while not trainer.is_finished:
        trainer.run_epoch()
    assert trainer.epoch == epochs
    assert trainer.best.epoch == 2


def test_h8_validation_runs_in_evaluation_mode_without_gradients() -> None:
    trainer = make_trainer(small_run())
    modes = []

    def look(module, inputs, output) -> None:
        modes.append((module.training, torch.is_grad_enabled(), output.logits.requires_grad))

    trainer.model.register_forward_hook(look)
    trainer.run_epoch()
    assert modes == [(True, True, True)] * 12 + [(False, False, False)] * 6


def test_h8_validation_is_repeatable_although_the_model_has_dropout_and_noise() -> None:
    trainer = make_trainer(small_run())
    trainer.run_epoch()
    noise = trainer.model.get_extra_state()
    assert trainer.validate() == trainer.validate()
    assert torch.equal(noise, trainer.model.get_extra_state())


def test_h7_only_validation_bags_choose_the_epoch_and_stop_training(tmp_path: Path) -> None:
    """The trainer is not even given the bags that are reported on."""
    trainer = make_trainer(small_run(stopping={"patience": 1}))
    seen = set()
    for bags in (trainer.training, trainer.validation):
        seen |= {example.slide_id for example in bags.examples}
    loaded = set()
    for bags in (trainer.training, trainer.validation):
        load = bags.load
        bags.load = lambda index, load=load: loaded.add(load(index).example.slide_id) or load(index)
    while not trainer.is_finished:
        trainer.run_epoch()
    assert loaded <= seen
    assert len(seen) == 18


def test_h15_pickled_checkpoint_is_refused_unopened(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    (tmp_path / "checkpoint").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TrainingError, match="pickled files are never"):
        load_checkpoint(make_trainer(small_run()), tmp_path / "checkpoint", "x")
    torch.save({"model": 1}, tmp_path / "checkpoint")
    with pytest.raises(TrainingError, match="not a checkpoint"):
        load_checkpoint(make_trainer(small_run()), tmp_path / "checkpoint", "x")
    assert not (tmp_path / "exploded").exists()


def test_h15_nothing_in_the_package_unpickles_objects() -> None:
    import zoommil

    for path in Path(zoommil.__file__).parent.rglob("*.py"):
        for line in path.read_text().splitlines():
            assert "pickle.load" not in line, path
            assert "torch.load(" not in line or "weights_only=True" in line, path
            assert "allow_pickle=True" not in line, path


def test_checkpoint_is_plain_tensors_and_json(tmp_path: Path) -> None:
    trainer = make_trainer(small_run("transmil"))
    trainer.run_epoch()
    save_checkpoint(trainer, tmp_path / "c.safetensors", "x")
    tensors = load_file(tmp_path / "c.safetensors")
    kinds = {name.split("/")[0] for name in tensors}
    assert {"model", "best", "optimiser", "random"} <= kinds
    assert any(name.endswith("/slow") for name in tensors)


def test_checkpoint_of_another_run_or_version_is_refused(tmp_path: Path, monkeypatch) -> None:
    trainer = make_trainer(small_run())
    save_checkpoint(trainer, tmp_path / "c", "one")
    with pytest.raises(TrainingError, match="another run"):
        load_checkpoint(trainer, tmp_path / "c", "two")
    monkeypatch.setattr("zoommil.training.checkpoint.FORMAT_VERSION", 99)
    with pytest.raises(TrainingError, match="format 1; this is format 99"):
        load_checkpoint(trainer, tmp_path / "c", "one")


def test_gradients_of_a_batch_are_the_mean_over_its_bags() -> None:
    """One step over three bags equals the step along the mean of their three gradients."""
    run = small_run(
        "abmil",
        model={**SMALL["abmil"], "dropout": 0.0},
        optimiser={"name": "sgd", "lr": 0.1, "betas": [0.0, 0.0]},
        training={"batch_bags": 3, "epochs": 1, "weighted_sampler": False},
    )
    bags = make_bags(9, counts=(9, 36))
    trainer = make_trainer(run, {**bags, **make_bags(18, counts=(9, 36))})
    model = copy.deepcopy(trainer.model)
    order = copy.deepcopy(trainer.sampler).epoch()
    trainer.run_epoch()
    for start in range(0, 12, 3):
        losses = []
        for index in order[start : start + 3]:
            bag = trainer.training.load(index)
            losses.append(model.loss(model(bag.features), bag.example.label))
        model.zero_grad()
        torch.stack(losses).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)
    for name, value in trainer.model.state_dict().items():
        if value.is_floating_point():
            assert torch.allclose(value, model.state_dict()[name], atol=1e-6), name


def test_last_batch_of_an_epoch_may_be_smaller() -> None:
    trainer = make_trainer(small_run(training={"batch_bags": 5, "epochs": 1}))
    steps = []
    trainer.optimiser.register_step_post_hook(lambda *_: steps.append(1))
    trainer.run_epoch()
    assert len(steps) == 3  # 12 bags: 5, 5, 2


def test_clipping_bounds_the_step() -> None:
    run = small_run(
        optimiser={"name": "sgd", "lr": 1.0, "betas": [0.0, 0.0]},
        training={"clip_norm": 1e-3, "epochs": 1},
    )
    trainer = make_trainer(run)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.run_epoch()
    moved = torch.cat(
        [(p - b).flatten() for p, b in zip(trainer.model.parameters(), before, strict=True)]
    )
    assert 0 < moved.norm() <= 12 * 1e-3 + 1e-6


def test_class_weights_scale_each_bags_loss() -> None:
    bags = make_bags(18, counts=(9, 36))
    run = small_run(training={"class_weights": True, "epochs": 1})
    trainer = make_trainer(run, bags)
    assert trainer._class_weights is not None
    assert trainer._class_weights.tolist() == [1.0, 1.0]
    assert make_trainer(small_run())._class_weights is None


def test_loss_that_is_not_finite_ends_the_run_with_advice() -> None:
    trainer = make_trainer(small_run(optimiser={"name": "sgd", "lr": 1e30, "betas": [0.0, 0.0]}))
    with pytest.raises(
        TrainingError, match=r"broke at slide 's\d+' in epoch 1: .* lower optimiser.lr"
    ):
        for _ in range(4):
            trainer.run_epoch()


def test_sigma_schedule_is_told_how_much_has_passed() -> None:
    trainer = make_trainer(small_run("zoommil_robust"))
    shares = []
    real = trainer.model.set_progress
    trainer.model.set_progress = lambda share: shares.append(share) or real(share)
    trainer.run_epoch()
    trainer.run_epoch()
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert shares[12] == pytest.approx(0.25)
    assert max(shares) < 0.5


def test_autocast_on_the_cpu_still_selects_in_float32_and_learns() -> None:
    trainer = make_trainer(small_run(training={"autocast": "bfloat16", "epochs": 1}))
    record = trainer.run_epoch()
    assert np.isfinite(record.train_loss)


def test_progress_says_where_the_run_is() -> None:
    trainer = make_trainer(small_run())
    seen = []
    trainer.run_epoch(seen.append)
    assert [p.stage for p in seen] == ["training"] * 12 + ["validating"] * 6 + ["epoch"]
    assert [p.done for p in seen[:12]] == list(range(1, 13))
    assert {"loss", "weighted_f1"} <= set(seen[-1].metrics)


@pytest.mark.parametrize("recipe", METHODS)
def test_every_recipe_learns_an_easy_class(recipe: str) -> None:
    run = small_run(recipe, training={"epochs": 40}, optimiser={"lr": 5e-3})
    trainer = make_trainer(run, make_bags(18, counts=(9, 36), shift=4.0))
    while not trainer.is_finished:
        trainer.run_epoch()
    trainer.model.load_state_dict(trainer.best_weights())
    for bags in (trainer.training, trainer.validation):
        logits = logits_of(trainer.model, bags, torch.device("cpu"))
        assert (logits.argmax(1) == np.array(bags.labels)).all()
