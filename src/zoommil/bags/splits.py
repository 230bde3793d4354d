"""Row 7, bags: a labelled cohort goes in, splits by case that are checked for leaks come out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from zoommil.bags.cohort import Cohort
from zoommil.bags.split import Split, check_split
from zoommil.errors import SplitError


@dataclass(frozen=True)
class _Unit:
    """Cases that must stay together: one case, or all of a site."""

    counts: tuple[int, ...]
    cases: tuple[str, ...]


def make_split(
    cohort: Cohort,
    *,
    fractions: Sequence[float] = (0.7, 0.15, 0.15),
    seed: int = 0,
    keep_sites: bool = False,
) -> Split:
    """One train/val/test split: whole cases, classes in proportion, the same for the same seed.

    Args:
        cohort: slides with labels.
        fractions: shares of cases for train, val and test; 0 leaves a part empty.
        seed: of the draw; the order of the cohort's rows does not matter.
        keep_sites: also keep all cases of a site on one side.

    Raises:
        SplitError: fractions that do not add up to 1; too few cases or sites for every class to be
            in every part.
    """
    if len(fractions) != 3 or min(fractions) < 0 or fractions[0] <= 0:
        raise SplitError(
            f"fractions {tuple(fractions)}: give three numbers, for train (above 0), val and test."
        )
    if not math.isclose(sum(fractions), 1, abs_tol=1e-6):
        raise SplitError(
            f"fractions {tuple(fractions)} add up to {sum(fractions):g}; give three that add up to "
            "1, as 0.7,0.15,0.15."
        )
    labels = _case_labels(cohort)
    _check_enough(labels, sum(fraction > 0 for fraction in fractions), "parts")
    parts = _allocate(_units(cohort, labels, keep_sites), fractions, np.random.default_rng(seed))
    split = _split_of(cohort, parts, "0")
    check_split(split, cohort)
    return split


def make_folds(
    cohort: Cohort,
    *,
    num_folds: int = 5,
    val_fraction: float = 0.15,
    seed: int = 0,
    keep_sites: bool = False,
) -> tuple[Split, ...]:
    """k splits whose test parts are disjoint and cover the cohort; val is cut out of the rest.

    Args:
        cohort: slides with labels.
        num_folds: how many.
        val_fraction: share of the cases outside the test fold that go to val; 0 for none.
        seed: of the draw; the order of the cohort's rows does not matter.
        keep_sites: also keep all cases of a site on one side.

    Raises:
        SplitError: too few cases or sites for every class to be in every part.
    """
    if num_folds < 2 or not 0 <= val_fraction < 1:
        raise SplitError(
            f"{num_folds} folds with val fraction {val_fraction:g}: give 2 or more folds and a "
            "fraction from 0 to below 1."
        )
    labels = _case_labels(cohort)
    _check_enough(labels, num_folds + (val_fraction > 0 and num_folds == 2), "folds")
    folds = _test_folds(cohort, labels, num_folds, seed, keep_sites)
    splits = []
    for fold, test in enumerate(folds):
        rest = {case: label for case, label in labels.items() if case not in test}
        generator = np.random.default_rng((seed, fold))
        units = _units(cohort, rest, keep_sites)
        train, val, _ = _allocate(units, (1 - val_fraction, val_fraction, 0.0), generator)
        split = _split_of(cohort, (train, val, test), str(fold))
        check_split(split, cohort)
        splits.append(split)
    return tuple(splits)


def with_validation(
    split: Split, cohort: Cohort, *, val_fraction: float = 0.15, seed: int = 0
) -> Split:
    """A split without val, as STAMP's, with one cut out of its train part by case."""
    train = cohort.subset(split.train)
    made = make_split(train, fractions=(1 - val_fraction, val_fraction, 0.0), seed=seed)
    filled = replace(split, train=made.train, val=made.val)
    check_split(filled, cohort)
    return filled


def _case_labels(cohort: Cohort) -> dict[str, int]:
    """The class index of every case: of most of its slides, the rarer class on ties."""
    cohort.require_labels()
    total = Counter(slide.label for slide in cohort.slides)
    labels = {}
    for case, slides in sorted(cohort.cases.items()):
        counts = Counter(slide.label for slide in slides)
        best = max(counts, key=lambda label: (counts[label], -total[label], str(label)))
        labels[case] = cohort.classes.index(str(best))
    return labels


def _check_enough(labels: Mapping[str, int], needed: int, what: str) -> None:
    counts = Counter(labels.values())
    rarest = min(counts, key=lambda label: (counts[label], label))
    if counts[rarest] < needed:
        raise SplitError(
            f"the rarest class has {counts[rarest]} cases, too few for {needed} {what}. "
            f"Use fewer {what}, or merge classes."
        )


def _units(cohort: Cohort, labels: Mapping[str, int], keep_sites: bool) -> list[_Unit]:
    """The cases, or the sites with all their cases, with their number of cases per class."""
    groups = _groups(cohort, labels, keep_sites)
    members: dict[str, list[str]] = {}
    for case in labels:
        members.setdefault(groups[case], []).append(case)
    units = []
    for cases in members.values():
        counts = Counter(labels[case] for case in cases)
        units.append(_Unit(tuple(counts[i] for i in range(len(cohort.classes))), tuple(cases)))
    return units


def _groups(cohort: Cohort, labels: Mapping[str, int], keep_sites: bool) -> dict[str, str]:
    """What each case must stay together with: itself, or its site."""
    if not keep_sites:
        return {case: case for case in labels}
    groups = {}
    for case, slides in cohort.cases.items():
        sites = sorted({slide.site or "" for slide in slides})
        if sites == [""] or len(sites) > 1:
            raise SplitError(
                f"case {case!r} has {'no site' if sites == [''] else 'sites ' + ', '.join(sites)}. "
                "Give every case one, in the column 'site', or do not keep sites together."
            )
        groups[case] = sites[0]
    return groups


def _allocate(
    units: Sequence[_Unit], fractions: Sequence[float], generator: np.random.Generator
) -> tuple[set[str], set[str], set[str]]:
    """Cases of the three parts: the largest units first, each where its classes lack most."""
    shares = np.array(fractions, dtype=np.float64) / sum(fractions)
    counts = np.array([unit.counts for unit in units], dtype=np.float64)
    lacking = shares[:, None] * counts.sum(axis=0)
    lacking = np.where(shares[:, None] > 0, np.maximum(lacking, 1.0), 0.0)
    wanted = np.where(lacking > 0, lacking, np.inf)
    parts: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    order = generator.permutation(len(units))
    order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
    for index in order:
        need = (counts[index] * lacking / wanted).sum(axis=1)
        need[shares == 0] = -np.inf
        chosen = int(need.argmax())
        lacking[chosen] -= counts[index]
        parts[chosen].update(units[index].cases)
    return parts


def _test_folds(
    cohort: Cohort, labels: Mapping[str, int], num_folds: int, seed: int, keep_sites: bool
) -> list[set[str]]:
    """The cases of each test fold, by scikit-learn's stratified folds over cases."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    cases = np.array(list(labels))
    classes = np.array(list(labels.values()))
    groups = np.array([_groups(cohort, labels, keep_sites)[case] for case in cases])
    if len(set(groups)) < num_folds:
        raise SplitError(
            f"{len(set(groups))} sites are too few for {num_folds} folds that keep them together. "
            "Use fewer folds."
        )
    if keep_sites:
        kind, together = StratifiedGroupKFold, groups
    else:
        kind, together = StratifiedKFold, None
    folds = kind(num_folds, shuffle=True, random_state=seed).split(cases, classes, together)
    return [{str(case) for case in cases[test]} for _, test in folds]


def _split_of(cohort: Cohort, parts: Iterable[set[str]], name: str) -> Split:
    ids = [tuple(s.slide_id for s in cohort.slides if s.case_id in cases) for cases in parts]
    return Split(*ids, name=name)
