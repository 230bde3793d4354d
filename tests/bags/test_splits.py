"""Splits: by case, stratified, deterministic, refused when they leak, and other tools' files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoommil.bags.cohort import Cohort, SlideRow, read_cohort
from zoommil.bags.split import Split, check_split, splits_of_cohort
from zoommil.bags.split_files import read_splits, write_splits
from zoommil.bags.splits import make_folds, make_split, with_validation
from zoommil.errors import SplitError


def make_cohort(cases_per_class=(20, 10), slides_per_case=2, num_sites=0) -> Cohort:
    slides, number = [], 0
    for label, cases in enumerate(cases_per_class):
        for _ in range(cases):
            site = f"site{number % num_sites}" if num_sites else None
            for copy in range(slides_per_case):
                slides.append(
                    SlideRow(f"{number:03}-{copy}", None, f"{number:03}", str(label), site=site)
                )
            number += 1
    return Cohort(tuple(slides), tuple(str(i) for i in range(len(cases_per_class))), "cohort.csv")


def counts(cohort: Cohort, ids) -> Counter:
    return Counter(cohort.slide(slide_id).label for slide_id in ids)


def test_split_is_stratified_by_case():
    cohort = make_cohort((40, 20))
    split = make_split(cohort, fractions=(0.5, 0.25, 0.25), seed=3)
    assert {part: dict(counts(cohort, ids)) for part, ids in split.parts.items()} == {
        "train": {"0": 40, "1": 20}, "val": {"0": 20, "1": 10}, "test": {"0": 20, "1": 10},
    }  # fmt: skip


def test_seed_decides_and_row_order_does_not():
    cohort = make_cohort()
    again = Cohort(cohort.slides[::-1], cohort.classes, cohort.source)
    for make in (make_split, make_folds):
        first = make(cohort, seed=1)
        assert make(cohort, seed=1) == first
        assert make(cohort, seed=2) != first
    assert set(make_split(again, seed=1).train) == set(make_split(cohort, seed=1).train)
    for a, b in zip(make_folds(again, seed=1), make_folds(cohort, seed=1), strict=True):
        assert {k: set(v) for k, v in a.parts.items()} == {k: set(v) for k, v in b.parts.items()}


def test_folds_cover_every_slide_once_in_test():
    cohort = make_cohort((13, 9, 7))
    folds = make_folds(cohort, num_folds=5)
    assert sorted(s for fold in folds for s in fold.test) == sorted(cohort.slide_ids)
    for fold in folds:
        assert sorted(s for ids in fold.parts.values() for s in ids) == sorted(cohort.slide_ids)
        assert set(counts(cohort, fold.val)) == {"0", "1", "2"}
    assert [fold.name for fold in folds] == list("01234")
    assert all(not fold.val for fold in make_folds(cohort, num_folds=3, val_fraction=0))


@settings(max_examples=40, deadline=None)
@given(
    cases=st.lists(st.integers(5, 12), min_size=2, max_size=4),
    seed=st.integers(0, 99),
    sites=st.sampled_from([0, 9]),
)
def test_no_case_or_site_is_ever_parted(cases, seed, sites):
    cohort = make_cohort(tuple(cases), 2, sites)
    by_id = {slide.slide_id: slide for slide in cohort.slides}
    try:
        splits = (
            make_split(cohort, seed=seed, keep_sites=bool(sites)),
            *make_folds(cohort, num_folds=3, seed=seed, keep_sites=bool(sites)),
        )
    except SplitError:
        if not sites:  # then five cases of a class are always enough
            raise
        return
    for split in splits:
        for name in ("case_id", "site") if sites else ("case_id",):
            found = [{getattr(by_id[i], name) for i in ids} for ids in split.parts.values()]
            assert sum(map(len, found)) == len(set.union(*found))


def test_h21_a_case_on_both_sides_is_refused_and_named():
    cohort = make_cohort()
    split = make_split(cohort)
    moved = split.train[0]
    leaking = Split(split.train[1:], split.val, (*split.test, moved))
    with pytest.raises(SplitError, match=r"leaks: case '(\d+)' is in train .* and in test"):
        check_split(leaking, cohort)
    check_split(split, cohort)


def test_h21_leaking_files_are_refused(tmp_path):
    cohort = make_cohort((3, 3))
    ids = cohort.slide_ids
    (tmp_path / "splits_0.csv").write_text(
        ",train,val,test\n" + "".join(f"{i},{a},{b},{c}\n" for i, (a, b, c) in enumerate([
            (ids[0], ids[2], ids[1]), (ids[6], ids[8], ids[10]),
        ]))
    )  # fmt: skip
    with pytest.raises(SplitError, match="case '000' is in train"):
        read_splits(tmp_path / "splits_0.csv", cohort)


def test_bad_splits_are_named():
    cohort = make_cohort((3, 3), slides_per_case=1)
    a, b = cohort.slide_ids[:3], cohort.slide_ids[3:]
    with pytest.raises(SplitError, match="val has no slide of class '1'"):
        check_split(Split((a[0], b[0]), (a[1],), (a[2], b[1])), cohort)
    check_split(Split((a[0], b[0]), (a[1],), ()), cohort, require_classes=False)
    with pytest.raises(SplitError, match=r"'x' of test is not in cohort.csv"):
        check_split(Split(a, (), ("x",)), cohort)
    with pytest.raises(SplitError, match="'000-0' is in train and again in val"):
        check_split(Split(a, (a[0],), ()), cohort)
    with pytest.raises(SplitError, match="no slides in train"):
        check_split(Split((), a, b), cohort)


def test_too_few_cases_or_sites():
    with pytest.raises(SplitError, match="rarest class has 2 cases, too few for 3 parts"):
        make_split(make_cohort((9, 2)))
    with pytest.raises(SplitError, match="rarest class has 4 cases, too few for 5 folds"):
        make_folds(make_cohort((9, 4)), num_folds=5)
    with pytest.raises(SplitError, match="3 sites are too few for 5 folds"):
        make_folds(make_cohort((9, 9), num_sites=3), num_folds=5, keep_sites=True)
    with pytest.raises(SplitError, match="case '000' has no site"):
        make_split(make_cohort(), keep_sites=True)
    with pytest.raises(SplitError, match="give three numbers"):
        make_split(make_cohort(), fractions=(0.5, 0.5))
    with pytest.raises(SplitError, match=r"add up to 1\.2"):
        make_split(make_cohort(), fractions=(0.9, 0.1, 0.2))
    with pytest.raises(SplitError, match="1 folds"):
        make_folds(make_cohort(), num_folds=1)


def test_case_with_slides_of_two_classes_is_one_case():
    slides = [
        SlideRow(f"{case}-{i}", None, str(case), str(int(case % 2 and i == 0)))
        for case in range(12) for i in range(2)
    ]  # fmt: skip
    cohort = Cohort(tuple(slides), ("0", "1"), "c.csv")
    split = make_split(cohort, fractions=(0.5, 0.25, 0.25))
    assert counts(cohort, split.test)["1"] in (1, 2)


def test_clam_files_round_trip(tmp_path):
    cohort = make_cohort()
    folds = make_folds(cohort, num_folds=4)
    written = write_splits(folds, cohort, tmp_path)
    assert [path.name for path in written] == [f"splits_{k}.csv" for k in range(4)]
    assert read_splits(tmp_path, cohort) == folds
    for k in range(4):
        assert read_splits(tmp_path / f"splits_{k}.csv", cohort) == (folds[k],)
        (flags,) = read_splits(tmp_path / f"splits_{k}_bool.csv", cohort)
        assert {p: set(i) for p, i in flags.parts.items()} == {
            p: set(i) for p, i in folds[k].parts.items()
        }
    first = (tmp_path / "splits_0.csv").read_text().splitlines()
    assert first[0] == ",train,val,test"
    assert first[-1].endswith(",,")  # ragged


def small_cohort(tmp_path: Path) -> Cohort:
    table = tmp_path / "cohort.csv"
    rows = "".join(f"{i:02},{100 + i},{i % 2}\n" for i in range(8))
    table.write_text("case_id,slide_id,label\n" + rows)
    return read_cohort(table)


EXPECTED = (("100", "101"), ("102", "103"), ("104", "105", "106", "107"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "splits_3.csv",  # CLAM, numeric ids turned into floats beside blanks
            ",train,val,test\n0,100.0,102.0,104\n1,101.0,103.0,105\n2,,,106\n3,,,107\n",
        ),
        (
            "authors_3.csv",  # ZoomMIL's authors, extensions left on
            "train,val,test\n100.svs,102.svs,104.svs\n101.svs,103.svs,105.svs\n,,106.svs\n,NaN,107.svs\n",
        ),
        (
            "fold3.csv",  # TransMIL
            ",train,train_label,val,val_label,test,test_label\n"
            "0,100,0,102,0,104,0\n1,101,1,103,1,105,1\n2,,,,,106,0\n3,,,,,107,1\n",
        ),
        (
            "splits_3_bool.csv",
            ",train,val,test\n100,True,False,False\n101,True,False,False\n102,False,True,False\n"
            "103,False,True,False\n104,False,False,True\n105,False,False,True\n"
            "106,False,False,True\n107,False,False,True\n",
        ),
    ],
)
def test_tables_of_other_tools(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_splits(tmp_path / name, small_cohort(tmp_path)) == (Split(*EXPECTED, name="3"),)


def test_stamp_and_patho_bench(tmp_path):
    cohort = small_cohort(tmp_path)
    stamp = {"splits": [{"train_patients": ["00", "01", "02"], "test_patients": ["04", "05"]}] * 2}
    (tmp_path / "splits.json").write_text(json.dumps(stamp))
    splits = read_splits(tmp_path / "splits.json", cohort)
    assert splits[1] == Split(("100", "101", "102"), (), ("104", "105"), "1")
    rows = "".join(f"{i:02}\t{'train' if i < 6 else 'test'}\ttrain\n" for i in range(8))
    (tmp_path / "k.tsv").write_text("case_id\tfold_0\tfold_1\n" + rows)
    first, second = read_splits(tmp_path / "k.tsv", cohort)
    assert (first.test, second.test, second.name) == (("106", "107"), (), "1")
    filled = with_validation(first, cohort, val_fraction=0.34, seed=1)
    assert len(filled.val) == 2
    assert set(filled.train) | set(filled.val) == set(first.train)
    assert filled.test == first.test


def test_columns_of_the_cohort(tmp_path):
    table = tmp_path / "c.csv"
    table.write_text("slide_id,fold_10,fold_2\na,train,test\nb,valid,train\nc,,train\n")
    second, tenth = splits_of_cohort(read_cohort(table))
    assert second == Split(("b", "c"), (), ("a",), "2")
    assert tenth == Split(("a",), ("b",), (), "10")
    table.write_text("slide_id,split\na,train\nb,holdout\n")
    with pytest.raises(SplitError, match="'b' is in 'holdout'"):
        splits_of_cohort(read_cohort(table))
    table.write_text("slide_id\na\n")
    with pytest.raises(SplitError, match="neither a column 'split' nor 'fold_0'"):
        splits_of_cohort(read_cohort(table))


def test_files_that_are_no_splits(tmp_path):
    cohort = small_cohort(tmp_path)
    with pytest.raises(SplitError, match="found columns case_id, slide_id, label"):
        read_splits(tmp_path / "cohort.csv", cohort)
    with pytest.raises(SplitError, match=r"no splits_0.csv"):
        read_splits(tmp_path, cohort)
    (tmp_path / "s.json").write_text("[]")
    with pytest.raises(SplitError, match=r"not STAMP's splits.json"):
        read_splits(tmp_path / "s.json", cohort)
    (tmp_path / "s.csv").write_text("train,val,test\n100,999,\n")
    with pytest.raises(SplitError, match="slide '999' is not in"):
        read_splits(tmp_path / "s.csv", cohort)
