"""Every feature format: what is written comes back, in level-0 pixels, or is refused clearly."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from zoommil.bags.bag import Bag, StepInfo
from zoommil.bags.formats.conversion import FORMATS, export_features, import_features, load_format
from zoommil.errors import BagError, ConfigError, UnknownNameError

WRITABLE = [name for name in FORMATS.names() if load_format(name).can_write]
ONE_STEP = [name for name in WRITABLE if not load_format(name).keeps_all_steps]
MPP, SIZE = 0.25, (90_000, 70_000)


def grids(ratios=(2, 4), columns=7, num_parents=6) -> list[np.ndarray]:
    index = np.arange(num_parents) * 3
    found = [np.stack([index // columns, index % columns], axis=1)]
    for ratio in ratios:
        bits = int(ratio).bit_length() - 1
        slots = np.arange(ratio**2)
        dh = sum(((slots >> 2 * b) & 1) << b for b in range(bits))
        dw = sum(((slots >> (2 * b + 1)) & 1) << b for b in range(bits))
        found.append((found[-1][:, None] * ratio + np.stack([dh, dw], 1)[None]).reshape(-1, 2))
    return found


def make_bag(ratios=(2, 4), mpp=MPP, origin=(0.0, 0.0), dtype="float16", **changes) -> Bag:
    """A bag of 1.25x and up; a scale that no tool can round away when mpp is odd."""
    rng, magnification, steps, features = np.random.default_rng(0), 1.25, [], []
    for step, grid in enumerate(grids(ratios)):
        magnification *= ratios[step - 1] if step else 1
        downsample = 10 / magnification / mpp
        steps.append(
            StepInfo(
                magnification, 10 / magnification, downsample, 256, *origin, 256 * downsample, grid,
                encoder="resnet50",
            )
        )  # fmt: skip
        features.append(rng.normal(size=(len(grid), 6)).astype(dtype))
    arguments = {"steps": steps, "slide_id": "007", "slide_mpp": mpp, "slide_size": SIZE}
    return Bag(features, **{**arguments, **changes})


def options_for(name: str, bag: Bag) -> dict:
    """What the tool's own files never say."""
    if name == "authors":
        return {"mpp": bag.slide_mpp, "slide_size": bag.slide_size}
    return {"mpp": bag.slide_mpp} if name == "stamp" else {}


PLACES = [(0.25, (0.0, 0.0)), (0.2431, (311.0, 77.0))]


@pytest.mark.parametrize(
    ("name", "place"),
    # the authors' grid is their own, of nominal scale
    [(name, place) for name in WRITABLE for place in PLACES[: 1 if name == "authors" else 2]],
)
@pytest.mark.parametrize("step", [0, 2])
def test_one_step_round_trips(tmp_path, name, place, step):
    mpp, origin = place
    bag = make_bag(mpp=mpp, origin=origin)
    path = tmp_path / "007.h5"
    export_features(name, bag, path, step=step)
    back = import_features(name, path, **options_for(name, bag))
    assert back.slide_id == "007"
    assert back.num_steps == 1
    np.testing.assert_array_equal(back.features[0], bag.features[step])
    if name == "authors":  # one magnification alone is padded as one
        np.testing.assert_array_equal(back.steps[0].rows_columns, bag.steps[step].rows_columns)
        return
    np.testing.assert_array_equal(back.coords[0], bag.coords[step])
    np.testing.assert_allclose(back.boxes(0), bag.boxes(step), atol=1e-2)
    info, truth = back.steps[0], bag.steps[step]
    assert info.magnification == pytest.approx(truth.magnification)
    assert (info.patch_px, info.downsample) == (256, pytest.approx(truth.downsample))
    if name != "clam":
        assert info.encoder == "resnet50"
    assert back.slide_mpp == pytest.approx(mpp)


@pytest.mark.parametrize("name", [n for n in WRITABLE if load_format(n).keeps_all_steps])
def test_all_steps_round_trip(tmp_path, name):
    bag = make_bag()
    path = tmp_path / "007.h5"
    export_features(name, bag, path)
    back = import_features(name, path, **options_for(name, bag))
    assert (back.magnifications, back.ratios) == (bag.magnifications, bag.ratios)
    for step in range(3):
        np.testing.assert_array_equal(back.features[step], bag.features[step])
        np.testing.assert_array_equal(back.steps[step].rows_columns, bag.steps[step].rows_columns)


@pytest.mark.parametrize("name", ONE_STEP)
def test_several_steps_need_a_choice(tmp_path, name):
    bag = make_bag()
    with pytest.raises(BagError, match=r"has 3 steps .* step=-1"):
        export_features(name, bag, tmp_path / "a.h5")
    export_features(name, bag, tmp_path / "a.h5", magnification=10)
    export_features(name, bag, tmp_path / "b.h5", step=-1)
    with h5py.File(tmp_path / "a.h5") as a, h5py.File(tmp_path / "b.h5") as b:
        np.testing.assert_array_equal(a["coords"], b["coords"])


@pytest.mark.parametrize("name", [name for name in WRITABLE if name != "zoommil"])
def test_bags_without_a_place_are_refused(tmp_path, name):
    with pytest.raises(BagError, match="does not say"):
        export_features(name, Bag((np.zeros((3, 2)),), slide_id="x"), tmp_path / "a.h5")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for name in WRITABLE if name != "zoommil"])
def test_patches_that_were_not_encoded_do_not_become_features(tmp_path, name):
    bag = make_bag(ratios=())
    valid = np.array([True, False, True, True, False, True])
    bag = make_bag(ratios=(), valid=(valid,))
    if name == "authors":
        with pytest.raises(BagError, match="child_tissue"):
            export_features(name, bag, tmp_path / "a.h5")
        return
    export_features(name, bag, tmp_path / "a.h5")
    back = import_features(name, tmp_path / "a.h5", **options_for(name, bag))
    np.testing.assert_array_equal(back.features[0], bag.features[0][valid])
    np.testing.assert_array_equal(back.coords[0], bag.coords[0][valid])


@pytest.mark.parametrize("name", FORMATS.names())
def test_damage_is_a_clear_error(tmp_path, name):
    path = tmp_path / "a.h5"
    with pytest.raises(BagError, match="does not exist"):
        import_features(name, path)
    path.write_text("no features")
    with pytest.raises(BagError, match=r"cannot be read|not an intact bag"):
        import_features(name, path)
    with h5py.File(path, "w") as file:
        file["something"] = np.zeros(3)
    with pytest.raises(BagError, match=r"something|no features/|not a bag"):
        import_features(name, path)


@pytest.mark.parametrize("name", ONE_STEP)
def test_only_level_0_pixels_are_called_coords(tmp_path, name):
    """STAMP's are micrometres by that tool's definition, and say so."""
    bag = make_bag(mpp=0.2431, origin=(311.0, 77.0))
    export_features(name, bag, tmp_path / "a.h5", step=1)
    with h5py.File(tmp_path / "a.h5") as file:
        coords = file["coords"][:]
        if name == "stamp":
            assert file.attrs["unit"] == "um"
            coords = np.floor(coords / 0.2431 + 0.5)
        np.testing.assert_array_equal(coords, bag.coords[1])


@pytest.mark.parametrize("name", [name for name in WRITABLE if name != "zoommil"])
def test_import_says_where_it_came_from(tmp_path, name):
    bag = make_bag(ratios=())
    path = tmp_path / "007.h5"
    export_features(name, bag, path)
    said = import_features(name, path, **options_for(name, bag)).provenance["imported"]
    assert (said["format"], said["file"], len(said["file_sha256"])) == (name, "007.h5", 64)
    assert str(tmp_path) not in str(said)


def test_unknown_names_and_options():
    with pytest.raises(UnknownNameError, match="Did you mean 'trident'"):
        import_features("trident5", Path("a.h5"))
    with pytest.raises(ConfigError, match="unknown option 'mp'"):
        import_features("trident", Path("a.h5"), mp=0.5)
    with pytest.raises(ConfigError, match="option mpp is -1"):
        import_features("trident", Path("a.h5"), mpp=-1)
    with pytest.raises(BagError, match="only read"):
        export_features("atlaspatch", make_bag(ratios=()), Path("a.h5"))
