"""Optimisers: Lookahead by hand, groups, schedules."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from zoommil.errors import ConfigError
from zoommil.training.optimisers import (
    Lookahead,
    build_optimiser,
    build_schedule,
    parameter_groups,
)
from zoommil.training.sampling import BagSampler, class_weights
from zoommil.training.specs import OptimiserSpec, ScheduleSpec


def test_lookahead_follows_its_algorithm() -> None:
    weight = nn.Parameter(torch.tensor([4.0]))
    optimiser = Lookahead(torch.optim.SGD([weight], lr=1.0), alpha=0.5, steps=2)
    seen = []
    for _ in range(4):
        weight.grad = torch.ones(1)
        optimiser.step()
        seen.append(weight.item())
    # slow 4: fast 3, 2 -> slow 3; fast 2, 1 -> slow 2
    assert seen == [3.0, 3.0, 2.0, 2.0]


def test_lookahead_continues_bit_for_bit_from_its_state() -> None:
    def make() -> tuple[nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Linear(5, 3)
        return model, build_optimiser(
            model, OptimiserSpec(name="lookahead_radam", lr=0.05, lookahead_steps=3)
        )

    def steps(model, optimiser, numbers) -> None:
        for number in numbers:
            optimiser.zero_grad()
            inputs = torch.randn(4, 5, generator=torch.Generator().manual_seed(number))
            model(inputs).pow(2).sum().backward()
            optimiser.step()

    model, optimiser = make()
    steps(model, optimiser, range(4))  # in the middle of a round of three
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimiser.state_dict())
    steps(model, optimiser, range(4, 11))
    again, other = make()
    again.load_state_dict(weights)
    other.load_state_dict(state)
    steps(again, other, range(4, 11))
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_vectors_are_not_decayed_when_asked_so() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    spec = OptimiserSpec(weight_decay=0.1, decay_vectors=False)
    groups = parameter_groups(model.named_parameters(), spec)
    assert {group["weight_decay"]: len(group["params"]) for group in groups} == {0.1: 1, 0.0: 3}


def test_group_rates_go_to_their_modules_and_typos_are_refused() -> None:
    model = nn.ModuleDict({"encoder": nn.Linear(4, 4), "head": nn.Linear(4, 2)})
    spec = OptimiserSpec(lr=1e-3, group_lr={"encoder": 1e-5})
    groups = parameter_groups(model.named_parameters(), spec)
    assert sorted(group["lr"] for group in groups) == [1e-5, 1e-3]
    with pytest.raises(ConfigError, match="'encodr'"):
        parameter_groups(model.named_parameters(), OptimiserSpec(group_lr={"encodr": 1.0}))


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Linear(4, 4)
    model.bias.requires_grad_(False)
    (group,) = parameter_groups(model.named_parameters(), OptimiserSpec())
    assert len(group["params"]) == 1


def test_cosine_with_warmup_rises_then_falls_to_nearly_nothing() -> None:
    optimiser = build_optimiser(nn.Linear(2, 2), OptimiserSpec(lr=1.0))
    schedule = build_schedule(optimiser, ScheduleSpec(name="cosine", warmup_epochs=2), epochs=10)
    rates = []
    for _ in range(10):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert rates[0] < rates[1] < rates[2] == 1.0
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert 0 < rates[-1] < 0.1


def test_weighted_sampler_balances_classes_and_resumes() -> None:
    labels = [0] * 90 + [1] * 10
    sampler = BagSampler(labels, is_weighted=True, seed=1)
    drawn = [index for _ in range(20) for index in sampler.epoch()]
    share = sum(labels[index] for index in drawn) / len(drawn)
    assert len(drawn) == 2000
    assert 0.45 < share < 0.55
    state = sampler.state()
    after = [sampler.epoch() for _ in range(3)]
    other = BagSampler(labels, is_weighted=True, seed=99)
    other.set_state(state)
    assert [other.epoch() for _ in range(3)] == after


def test_unweighted_sampler_sees_every_bag_once() -> None:
    sampler = BagSampler([0, 1] * 10, is_weighted=False, seed=0)
    first, second = sampler.epoch(), sampler.epoch()
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second


def test_class_weights_have_mean_one_over_the_bags() -> None:
    labels = [0, 0, 0, 1]
    weights = class_weights(labels, 2)
    assert weights.tolist() == pytest.approx([4 / 6, 2.0])
    assert weights[torch.tensor(labels)].mean().item() == pytest.approx(1.0)
