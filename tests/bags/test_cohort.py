"""Cohorts: every tool's columns, ids as strings, paths, and each way a table can be wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from zoommil.bags.cohort import read_cohort, write_cohort
from zoommil.errors import CohortError, MissingExtraError, UnknownNameError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        write(folder / name, "")
    return folder


def test_canonical_columns(tmp_path):
    table = write(
        tmp_path / "cohort.csv",
        "case_id,slide_id,label,path,mpp,mask_path,site,truth_path,fold_0\n"
        "01,007,tumor,slides/007.svs,0.25,masks/007.png,A,t/7.geojson,train\n"
        "02,008,normal,slides/008.svs,,,,,test\n",
    )
    cohort = read_cohort(table)
    first, second = cohort.slides
    assert (first.case_id, first.slide_id, first.label, first.site) == ("01", "007", "tumor", "A")
    assert first.path == tmp_path / "slides/007.svs"
    assert first.mask_path == tmp_path / "masks/007.png"
    assert (first.mpp, second.mpp) == (0.25, None)
    assert (second.site, second.mask_path) == (None, None)
    assert dict(first.extra) == {"truth_path": "t/7.geojson", "fold_0": "train"}
    assert cohort.classes == ("normal", "tumor")
    assert cohort.class_index(first) == 1
    cohort.require_labels()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wsi,mpp\n007.svs,0.5\n", ("007", "007", 0.5)),  # TRIDENT
        ("patient,slide\n01,007\n", ("01", "007", None)),  # slideflow
        (
            "sample_id,image_path,mask_path,spacing_at_level_0,patient_id\n007,a/x.tif,,0.25,01\n",
            ("01", "007", 0.25),
        ),  # slide2vec
        ("PATIENT,FILENAME\n01,007.svs\n", ("01", "007", None)),  # STAMP's slide table
        ("slide_id,type\n007,2\n", ("007", "007", None)),  # ZoomMIL's authors
        (",case_id,slide_id,label\n0,01,007.svs,x\n", ("01", "007", None)),  # CLAM, with an index
        ("\ufeffSlide_ID;Case_ID\n007;01\n", ("01", "007", None)),  # a spreadsheet's CSV
    ],
)
def test_names_of_other_tools(tmp_path, text, expected):
    (slide,) = read_cohort(write(tmp_path / "t.csv", text)).slides
    assert (slide.case_id, slide.slide_id, slide.mpp) == expected


def test_only_one_synonym_is_taken(tmp_path):
    table = write(tmp_path / "t.csv", "slide_id,slide,path,wsi\na,x,a.svs,b.svs\n")
    (slide,) = read_cohort(table).slides
    assert (slide.slide_id, slide.path, dict(slide.extra)) == (
        "a", tmp_path / "a.svs", {"slide": "x", "wsi": "b.svs"},
    )  # fmt: skip


def test_tsv_and_blank_lines(tmp_path):
    table = write(tmp_path / "t.tsv", "slide_id\tlabel\n001\t1, or so\n\n002\t\n")
    cohort = read_cohort(table)
    assert cohort.slide_ids == ("001", "002")
    assert [slide.label for slide in cohort.slides] == ["1, or so", None]


@pytest.mark.parametrize("suffix", ["parquet", "xlsx"])
def test_tables_of_the_extra(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"slide_id": ["007", "010"], "mpp": [0.25, None], "label": [1, 0]})
    package = {"parquet": "pyarrow", "xlsx": "openpyxl"}[suffix]
    path = tmp_path / f"t.{suffix}"
    try:
        __import__(package)
    except ImportError:
        write(path, "x")
        with pytest.raises(MissingExtraError, match=rf"{package}.*zoommil\[tables\]"):
            read_cohort(path)
        return
    getattr(frame, {"parquet": "to_parquet", "xlsx": "to_excel"}[suffix])(path, index=False)
    cohort = read_cohort(path)
    assert cohort.slide_ids == ("007", "010")
    assert [slide.mpp for slide in cohort.slides] == [0.25, None]
    assert cohort.classes == ("0", "1")


def test_missing_extra_names_the_install_line(tmp_path, monkeypatch):
    for package in ("pyarrow", "openpyxl"):
        monkeypatch.setitem(sys.modules, package, None)
    for suffix in ("parquet", "xlsx"):
        with pytest.raises(MissingExtraError, match=r'pip install "zoommil\[tables\]"'):
            read_cohort(write(tmp_path / f"t.{suffix}", "x"))


def test_clinical_and_slide_table_are_merged(tmp_path, caplog):
    clinical = write(tmp_path / "clini.csv", "PATIENT,isMSIH,age\n01,yes,50\n02,no,60\n03,no,70\n")
    slides = write(
        tmp_path / "slide.csv", "PATIENT,FILENAME\n01,a.svs\n01,b.h5\n02,c.svs\n04,d.svs\n"
    )
    cohort = read_cohort(clinical, slide_table=slides, label_column="isMSIH")
    assert cohort.slide_ids == ("a", "b", "c", "d")
    assert [slide.label for slide in cohort.slides] == ["yes", "yes", "no", None]
    assert cohort.slides[0].extra["age"] == "50"
    assert cohort.slides[1].path is None  # a feature file is not a slide
    assert "'04'" in caplog.text
    assert "as 03" in caplog.text
    with pytest.raises(CohortError, match="no label for slides d"):
        cohort.require_labels()
    doubled = write(tmp_path / "c2.csv", "PATIENT,isMSIH\n01,yes\n01,no\n")
    with pytest.raises(CohortError, match="rows 2 and 3 are both of case '01'"):
        read_cohort(doubled, slide_table=slides, label_column="isMSIH")


def test_paths_resolve_beside_the_table_then_in_the_slides_folder(tmp_path):
    touch(tmp_path / "here", "a.svs")
    touch(tmp_path / "far", "deep/er/b.svs", "sub/c.tif", "deep/er/d.ndpi")
    table = write(
        tmp_path / "here/t.csv", "slide_id,path\na,a.svs\nb,b.svs\nc,sub/c.tif\nd,\ne,e.svs\n"
    )
    cohort = read_cohort(table, slides=tmp_path / "far")
    assert [slide.path for slide in cohort.slides] == [
        tmp_path / "here/a.svs",
        tmp_path / "far/deep/er/b.svs",
        tmp_path / "far/sub/c.tif",
        tmp_path / "far/deep/er/d.ndpi",
        tmp_path / "here/e.svs",  # nowhere: extraction reports it by name
    ]
    touch(tmp_path / "far", "other/d.svs")
    with pytest.raises(CohortError, match=r"slide 'd' could be .*d.ndpi.* or .*d.svs"):
        read_cohort(table, slides=tmp_path / "far")


def test_folder(tmp_path):
    touch(
        tmp_path, "b.svs", "sub/a.NDPI", "a_mask.tif", "x-label.tiff", "notes.txt", ".c.svs",
        ".hidden/d.svs", "thumb.png", "mask.tif", "unmasked.tif",
    )  # fmt: skip
    cohort = read_cohort(tmp_path)
    assert sorted(cohort.slide_ids) == ["a", "b", "unmasked"]
    assert cohort.classes == ()
    assert all(slide.case_id == slide.slide_id for slide in cohort.slides)


def test_dicom_series_is_one_slide(tmp_path):
    def dicom(name: str, series: bytes) -> None:
        head = b"\0" * 128 + b"DICM" + b"\x20\x00\x0e\x00UI"
        (tmp_path / name).write_bytes(head + len(series).to_bytes(2, "little") + series)

    dicom("a_0.dcm", b"1.2.3")
    dicom("a_1.dcm", b"1.2.3")
    dicom("b.dcm", b"1.2.4")
    assert read_cohort(tmp_path).slide_ids == ("a_0", "b")


def test_real_dicom_series_is_one_slide(real_data):
    ids = read_cohort(real_data / "slides").slide_ids
    assert [name for name in ids if name.startswith("boxes_")] == ["boxes_0"]


def test_glob_and_single_slide(tmp_path):
    touch(tmp_path, "a.svs", "b.svs", "sub/c.svs")
    assert read_cohort(f"{tmp_path}/*.svs").slide_ids == ("a", "b")
    assert sorted(read_cohort(f"{tmp_path}/**/*.svs").slide_ids) == ["a", "b", "c"]
    assert read_cohort(tmp_path / "a.svs", mpp=0.5).slides[0].mpp == 0.5


def test_h4_colliding_ids_are_refused_and_named(tmp_path):
    touch(tmp_path / "one", "a.svs", "a.tif")
    with pytest.raises(
        CohortError, match=r"one/a.svs' and '.*one/a.tif' would both have the id 'a'"
    ):
        read_cohort(tmp_path / "one")
    touch(tmp_path / "two", "x/1.svs", "y/1.svs")
    with pytest.raises(CohortError, match=r"x/1.svs' and '.*y/1.svs'"):
        read_cohort(tmp_path / "two")
    table = write(tmp_path / "t.csv", "path\nx/1.svs\ny/1.svs\n")
    with pytest.raises(CohortError, match="would both have the id '1'"):
        read_cohort(table)
    named = write(tmp_path / "u.csv", "slide_id,path\nx1,x/1.svs\ny1,y/1.svs\n")
    assert read_cohort(named).slide_ids == ("x1", "y1")
    with pytest.raises(CohortError, match="rows 2 and 4 are the same slide 'a'"):
        read_cohort(write(tmp_path / "v.csv", "slide_id\na\nb\na\n"))


@pytest.mark.parametrize("mpp", ["0", "-0.25", "abc", "inf", "352.8"])
def test_invalid_mpp_names_its_row(tmp_path, mpp):
    table = write(tmp_path / "t.csv", f"slide_id,mpp\na,0.25\nb,{mpp}\n")
    with pytest.raises(CohortError, match=rf"row 3: mpp '{mpp}' of slide 'b'"):
        read_cohort(table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,class\na,b\n", "no column that says which slide.*found name, class"),
        ("slide_id\n", "no rows"),
        ("", "no rows"),
        ("slide_id,slide_id\na,b\n", "column 'slide_id' twice"),
        ("slide_id,label\na,b,c\n", "row 2 has 3 cells for 2 columns"),
        ("slide_id,label\n../a,b\n", "cannot be a file name"),
        ("case_id,label\n1,b\n", "names no slide"),
    ],
)
def test_bad_tables_say_what_was_found(tmp_path, text, message):
    with pytest.raises(CohortError, match=message):
        read_cohort(write(tmp_path / "t.csv", text))


def test_bad_sources(tmp_path):
    with pytest.raises(CohortError, match="does not exist"):
        read_cohort(tmp_path / "nothing")
    with pytest.raises(CohortError, match="has no slides"):
        read_cohort(tmp_path)
    with pytest.raises(CohortError, match="no file matches"):
        read_cohort(f"{tmp_path}/*.svs")
    (tmp_path / "t.csv").write_bytes(b"slide_id\n\xff\xfe\n")
    with pytest.raises(CohortError, match="not UTF-8"):
        read_cohort(tmp_path / "t.csv")
    table = write(tmp_path / "u.csv", "slide_id,label\na,x\n")
    with pytest.raises(CohortError, match="no column 'grade'"):
        read_cohort(table, label_column="grade")
    with pytest.raises(CohortError, match="slides folder"):
        read_cohort(table, slides=tmp_path / "none")


def test_classes_have_an_order(tmp_path):
    table = write(tmp_path / "t.csv", "slide_id,label\na,10\nb,9\nc,2\n")
    assert read_cohort(table).classes == ("2", "9", "10")
    assert read_cohort(table, classes=["10", "9", "2", "1"]).classes == ("10", "9", "2", "1")
    with pytest.raises(CohortError, match="label '2', which is not among the classes 10, 9"):
        read_cohort(table, classes=["10", "9"])
    with pytest.raises(CohortError, match="all 1 slides are of class '10'"):
        read_cohort(table).subset(["a"]).require_labels()


def test_subset_and_lookup(tmp_path):
    cohort = read_cohort(write(tmp_path / "t.csv", "slide_id,case_id\na,1\nb,1\nc,2\n"))
    assert cohort.subset(["c", "a"]).slide_ids == ("a", "c")
    assert {case: len(slides) for case, slides in cohort.cases.items()} == {"1": 2, "2": 1}
    assert cohort.slide("b").case_id == "1"
    with pytest.raises(UnknownNameError, match="Known: a, b, c"):
        cohort.slide("d")


def test_written_cohort_reads_back(tmp_path):
    table = write(
        tmp_path / "t.csv", "PATIENT,wsi,grade,age\n01,/s/007.svs,low,50\n02,/s/008.svs,,\n"
    )
    cohort = read_cohort(table, label_column="grade")
    write_cohort(cohort, tmp_path / "out.csv")
    assert (
        (tmp_path / "out.csv").read_text().startswith("case_id,slide_id,label,path,age\n01,007,low")
    )
    assert read_cohort(tmp_path / "out.csv").slides == cohort.slides
