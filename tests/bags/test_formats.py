"""Other tools' files as those tools write them, by hand: fields, frames, and converting folders."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pytest
import torch

from zoommil.bags.bag import Bag
from zoommil.bags.cohort import Cohort, SlideRow
from zoommil.bags.formats.conversion import convert_cohort, export_features, import_features
from zoommil.bags.store import read_bag
from zoommil.errors import BagError, UnknownNameError

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
CORNERS = np.array([[512, 0], [1024, 0], [512, 512], [1536, 2048]])


def trident_file(path, rows=ROWS, corners=CORNERS, **changes):
    attributes = {
        "patch_size": 256, "patch_size_level0": 512, "level0_magnification": 40,
        "target_magnification": 20, "overlap": 0, "name": path.stem, "savetodir": "/home/someone",
        "level0_width": 60_000, "level0_height": 40_000, **changes,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=rows).attrs["encoder"] = "uni_v1"
        file.create_dataset("coords", data=corners).attrs.update(attributes)
    return path


def test_trident(tmp_path):
    bag = import_features("trident", trident_file(tmp_path / "a.h5"))
    assert (bag.slide_id, bag.num_steps, bag.slide_size) == ("a", 1, (60_000, 40_000))
    info = bag.steps[0]
    assert (info.magnification, info.mpp, info.patch_px, info.side) == (20, 0.5, 256, 512)
    assert info.encoder == "uni_v1"
    np.testing.assert_array_equal(info.rows_columns, [[0, 1], [0, 2], [1, 1], [4, 3]])
    np.testing.assert_array_equal(bag.boxes(0)[3], [1536, 2048, 512, 512])
    assert bag.provenance["imported"]["scale"] == "nominal"
    assert "someone" not in str(bag.provenance)
    physical = import_features("trident", tmp_path / "a.h5", mpp=0.2431)
    assert physical.steps[0].mpp == pytest.approx(0.4862)
    assert physical.provenance["imported"]["scale"] == "physical"
    batched = import_features("trident", trident_file(tmp_path / "b.h5", rows=ROWS[None]))
    np.testing.assert_array_equal(batched.features[0], ROWS)


def test_trident_with_overlap_or_off_grid_keeps_corners(tmp_path):
    for name, changes in (
        ("o", {"overlap": 128}),
        ("g", {"corners": CORNERS + np.eye(4, 2, dtype=int) * 3}),
    ):
        bag = import_features("trident", trident_file(tmp_path / f"{name}.h5", **changes))
        assert bag.steps[0].rows_columns is None
        np.testing.assert_array_equal(bag.boxes(0)[:, :2], bag.coords[0])
        assert bag.steps[0].overlap == changes.get("overlap", 0)


def clam_file(path, **attributes):
    with h5py.File(path, "w") as file:
        file["features"] = ROWS
        file["coords"] = CORNERS
        file["coords"].attrs.update(attributes)
    return path


def test_clam(tmp_path):
    plain = import_features("clam", clam_file(tmp_path / "a.h5"))
    assert plain.steps is None
    np.testing.assert_array_equal(plain.coords[0], CORNERS)
    attributes = {
        "patch_size": 256, "patch_level": 1, "downsample": np.array([2.0, 2.0]),
        "level_dim": np.array([30_000, 20_000]),
        "downsampled_level_dim": np.array([30_000, 20_000]), "name": "b",
    }  # fmt: skip
    bag = import_features("clam", clam_file(tmp_path / "b.h5", **attributes), mpp=0.25)
    info = bag.steps[0]
    assert (info.side, info.patch_px, info.mpp, info.magnification) == (512, 256, 0.5, 20)
    assert bag.slide_size is None  # level_dim is that of level 1
    told = import_features("clam", tmp_path / "a.h5", mpp=0.25, side=512, patch_px=256)
    np.testing.assert_array_equal(told.boxes(0), bag.boxes(0))


def test_clam_tensor_is_never_unpickled(tmp_path):
    torch.save(torch.from_numpy(ROWS), tmp_path / "a.pt")
    bag = import_features("clam", tmp_path / "a.pt")
    np.testing.assert_array_equal(bag.features[0], ROWS)
    assert bag.coords is None
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Exploit(tmp_path)))
    with pytest.raises(BagError, match="nothing else is unpickled"):
        import_features("clam", tmp_path / "b.pt")
    torch.save({"features": torch.zeros(2, 3)}, tmp_path / "c.pt")
    with pytest.raises(BagError, match="holds a dict"):
        import_features("clam", tmp_path / "c.pt")
    assert not (tmp_path / "exploited").exists()
    export_features("clam", bag, tmp_path / "d.pt")
    written = torch.load(tmp_path / "d.pt", weights_only=True)
    assert torch.equal(written, torch.from_numpy(ROWS))


class Exploit:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return (__import__("os").mkdir, (str(self.folder / "exploited"),))


def test_clam_frame_is_level_0(tmp_path):
    """Reading ``patch_size`` pixels at ``patch_level`` from ``coords`` gives the patch's region."""
    bag = import_features("trident", trident_file(tmp_path / "a.h5"))
    export_features("clam", bag, tmp_path / "b.h5")
    with h5py.File(tmp_path / "b.h5") as file:
        attributes = dict(file["coords"].attrs)
        assert (attributes["patch_size"], attributes["patch_level"]) == (512, 0)
        assert attributes["downsample"].tolist() == [1, 1]
        np.testing.assert_array_equal(file["coords"], CORNERS)


def stamp_file(path, **changes):
    with h5py.File(path, "w") as file:
        file["feats"] = ROWS.astype(np.float16)
        file["coords"] = (CORNERS * 0.25).astype(np.float32)
        file.attrs.update(
            {"unit": "um", "tile_size_um": 128.0, "tile_size_px": 256, "extractor": "uni2",
             "code_hash": "ab", "feat_type": "tile", **changes}
        )  # fmt: skip
    return path


def test_stamp(tmp_path):
    path = stamp_file(tmp_path / "a.h5")
    with pytest.raises(BagError, match=r"micrometres. Pass mpp="):
        import_features("stamp", path)
    bag = import_features("stamp", path, mpp=0.25)
    np.testing.assert_array_equal(bag.coords[0], CORNERS)
    info = bag.steps[0]
    assert (info.mpp, info.side, info.patch_px, info.encoder) == (0.5, 512, 256, "uni2")
    assert bag.dtype == "float16"
    with pytest.raises(BagError, match="'px'"):
        import_features("stamp", stamp_file(tmp_path / "b.h5", unit="px"), mpp=0.25)
    export_features("stamp", bag, tmp_path / "c.h5")
    with h5py.File(path) as a, h5py.File(tmp_path / "c.h5") as c:
        for name in ("feats", "coords"):
            np.testing.assert_array_equal(a[name], c[name])
            assert a[name].dtype == c[name].dtype
        for name in ("unit", "tile_size_um", "tile_size_px", "extractor", "feat_type"):
            assert a.attrs[name] == c.attrs[name]
    large = Bag((ROWS * 1e5,), bag.coords, "x", bag.steps, slide_mpp=0.25)
    with pytest.raises(BagError, match="does not fit float16"):
        export_features("stamp", large, tmp_path / "d.h5")
    assert not (tmp_path / "d.h5").exists()


def test_atlaspatch(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features/resnet50"] = ROWS
        file["coords"] = np.concatenate([CORNERS, np.tile([256, 256, 1], (4, 1))], 1).astype(
            "int32"
        )
        file.attrs.update(
            {"patch_size": 256, "patch_size_level0": 512, "target_magnification": 20,
             "level0_magnification": 40, "overlap": 0, "level0_width": 9000, "level0_height": 8000,
             "creation_date": "2026-01-01", "wsi_path": "/home/someone/a.svs"}
        )  # fmt: skip
    bag = import_features("atlaspatch", tmp_path / "a.h5")
    np.testing.assert_array_equal(bag.coords[0], CORNERS)
    assert (bag.steps[0].encoder, bag.steps[0].side) == ("resnet50", 512)
    assert "someone" not in str(bag.provenance)
    assert "2026" not in str(bag.provenance)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["features/uni"] = ROWS + 1
    with pytest.raises(BagError, match=r"resnet50, uni. Choose with encoder="):
        import_features("atlaspatch", tmp_path / "a.h5")
    chosen = import_features("atlaspatch", tmp_path / "a.h5", encoder="uni")
    np.testing.assert_array_equal(chosen.features[0], ROWS + 1)


def authors_file(path, **changes):
    """Two parents at 5x, (2, 3) and (4, 0), then 10x and 20x, written as the authors' code does."""
    low = [[2, 3], [4, 0]]
    slots = [(0, 0), (1, 0), (0, 1), (1, 1)]
    mid = [[*p, *s] for p in low for s in slots]
    high = [[*p, *s] for p in mid for s in slots]
    with h5py.File(path, "w") as file:
        for key, steps in (("5.0x", low), ("10.0x", mid), ("20.0x", high)):
            file[f"{key}_coords"] = np.array(steps)
            file[f"{key}_patches"] = np.array(steps)[:, :2].astype(np.float32)
        for name, values in changes.items():
            del file[name]
            file[name] = values
    return path


def test_authors(tmp_path):
    path = authors_file(tmp_path / "a.h5")
    size = (40 * 256 * 4 - 1000, 40 * 256 * 4)
    bag = import_features("authors", path, mpp=0.25, slide_size=size)
    assert (bag.magnifications, bag.ratios) == ((5, 10, 20), (2, 2))
    np.testing.assert_array_equal(bag.steps[1].rows_columns[:4], [[4, 6], [5, 6], [4, 7], [5, 7]])
    np.testing.assert_array_equal(bag.steps[2].rows_columns[4:6], [[10, 12], [11, 12]])
    # at 20x: 1 pixel is 2 of level 0; the width lacks 500 of a multiple of 1024, half lies left
    assert (bag.steps[0].origin_x, bag.steps[0].origin_y) == (-500.0, 0.0)
    np.testing.assert_array_equal(bag.boxes(0)[0], [3 * 2048 - 500, 2 * 2048, 2048, 2048])
    export_features("authors", bag, tmp_path / "b.h5")
    with h5py.File(path) as a, h5py.File(tmp_path / "b.h5") as b:
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_authors_without_the_slide_gives_features_only(tmp_path, caplog):
    bag = import_features("authors", authors_file(tmp_path / "a.h5"))
    assert bag.steps is None
    assert bag.coords is None
    assert bag.ratios == (2, 2)
    assert "features only" in caplog.text


def test_authors_files_that_do_not_fit(tmp_path):
    shuffled = np.array([[2, 3, 0, 0], [4, 0, 0, 0]] * 4)
    path = authors_file(tmp_path / "a.h5", **{"10.0x_coords": shuffled})
    with pytest.raises(BagError, match="row 1 of step 1 is not inside row 0"):
        import_features("authors", path, mpp=0.25, slide_size=(9000, 9000))
    path = authors_file(tmp_path / "b.h5", **{"10.0x_coords": np.zeros((8, 2), int)})
    with pytest.raises(BagError, match="expected 4 columns"):
        import_features("authors", path)
    pixels = {
        f"{m}x_patches": np.zeros((n, 3, 4, 4), "u1")
        for m, n in (("5.0", 2), ("10.0", 8), ("20.0", 32))
    }
    with pytest.raises(BagError, match="pixels of patches"):
        import_features("authors", authors_file(tmp_path / "c.h5", **pixels))


def test_folder_is_converted_and_a_bad_file_does_not_end_it(tmp_path):
    source = tmp_path / "20x_256px_0px_overlap" / "features_uni_v1"
    for name in ("001", "002"):
        trident_file(source / f"{name}.h5")
    (source / "003.h5").write_text("truncated")
    seen = []
    done = convert_cohort(source, tmp_path / "bags", from_format="trident", progress=seen.append)
    assert seen == done
    assert [(c.slide_id, bool(c.error)) for c in done] == [
        ("001", False),
        ("002", False),
        ("003", True),
    ]
    assert "003.h5" in done[2].error
    assert sorted(path.name for path in (tmp_path / "bags").iterdir()) == ["001.h5", "002.h5"]
    assert read_bag(tmp_path / "bags" / "001.h5").slide_id == "001"
    convert_cohort(tmp_path / "bags", tmp_path / "t", from_format="zoommil", to_format="trident")
    assert (tmp_path / "t/20x_256px_0px_overlap/features_uni_v1/001.h5").is_file()
    convert_cohort(tmp_path / "bags", tmp_path / "c", from_format="zoommil", to_format="clam")
    assert (tmp_path / "c/h5_files/001.h5").is_file()
    assert (tmp_path / "c/pt_files/001.pt").is_file()
    back = convert_cohort(tmp_path / "c", tmp_path / "bags2", from_format="clam")
    np.testing.assert_array_equal(read_bag(back[0].written[0]).coords[0], CORNERS)


def test_cohort_chooses_slides_and_tells_their_mpp(tmp_path):
    for name in ("001", "002", "003"):
        (tmp_path / "in").mkdir(exist_ok=True)
        stamp_file(tmp_path / "in" / f"{name}.h5")
    slides = tuple(
        SlideRow(name, None, name, mpp=mpp) for name, mpp in (("003", 0.5), ("001", 0.25))
    )
    done = convert_cohort(
        tmp_path / "in", tmp_path / "out", from_format="stamp", cohort=Cohort(slides)
    )
    assert [c.slide_id for c in done] == ["003", "001"]
    assert read_bag(tmp_path / "out/003.h5").slide_mpp == 0.5
    with pytest.raises(UnknownNameError, match="slide '009'"):
        convert_cohort(
            tmp_path / "in", tmp_path / "out", from_format="stamp",
            cohort=Cohort((SlideRow("009", None, "9"),)),
        )  # fmt: skip


def test_h4_two_files_of_one_slide_are_refused(tmp_path):
    trident_file(tmp_path / "in/10x/001.h5")
    trident_file(tmp_path / "in/20x/001.h5")
    with pytest.raises(BagError, match=r"10x/001.h5' and .*20x/001.h5' are both of slide '001'"):
        convert_cohort(tmp_path / "in", tmp_path / "out", from_format="trident")
