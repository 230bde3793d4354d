"""Row 7, bags: CLAM's ``h5_files/<id>.h5`` and ``pt_files/<id>.pt`` to bags and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from zoommil.bags.bag import Bag
from zoommil.bags.formats.foreign import (
    exact_attributes,
    found_arguments,
    kept_attributes,
    need_array,
    open_foreign,
    plain_attributes,
    write_foreign,
)
from zoommil.bags.formats.format import (
    FeatureFormat,
    Found,
    ImportOptions,
    one_step,
    placed_bag,
    placed_step,
)
from zoommil.errors import BagError
from zoommil.files import atomic_path


class ClamFormat(FeatureFormat):
    """``features`` and level-0 ``coords`` in HDF5, or the bare tensor in a ``.pt`` file."""

    name = "clam"
    suffixes = (".h5", ".pt")

    def read(self, path: Path, options: ImportOptions) -> Bag:
        """The one-step bag in a file.

        Feature files of CLAM often lack the patch geometry: corners are then kept, and where the
        patches lie is known only with ``mpp``, ``side`` and ``patch_px``. A ``.pt`` has no corners.
        """
        if path.suffix.lower() == ".pt":
            return placed_bag(Found(_load_tensor(path), None), path, options, self.name)
        with open_foreign(path, self.name) as file:
            features = need_array(file, "features", path, self.name)
            corners = need_array(file, "coords", path, self.name)
            attributes = plain_attributes(file["coords"])  # pyright: ignore[reportArgumentType]
        found = Found(
            features=features,
            corners=corners,
            attributes=kept_attributes(attributes),
            **{**_stated(attributes), **found_arguments(attributes)},
        )
        return placed_bag(found, path, options, self.name)

    def write(self, bag: Bag, path: Path, step: int | None = None) -> None:
        """Write one step as HDF5, or its bare float32 tensor when the path ends in ``.pt``.

        CLAM gives patches in pixels of a level; ours are stated at level 0, where they lie.
        """
        if path.suffix.lower() == ".pt":
            _save_tensor(one_step(bag, step, self.name).features, path)
            return
        found, info = placed_step(bag, step, self.name)
        side = round(info.side)
        attributes: dict[str, Any] = {
            "patch_size": side,
            "patch_level": 0,
            "downsample": np.array([1.0, 1.0]),
            "name": bag.slide_id,
            "save_path": "",
            **exact_attributes(bag, info),
        }
        if bag.slide_size is not None:
            attributes["level_dim"] = np.array(bag.slide_size)
            attributes["downsampled_level_dim"] = np.array(bag.slide_size)
        with write_foreign(path) as file:
            file.create_dataset("features", data=found.features, track_times=False)
            assert found.corners is not None
            corners = np.floor(found.corners + 0.5).astype(np.int64)
            coords = file.create_dataset("coords", data=corners, track_times=False)
            coords.attrs.update(attributes)

    def output_paths(self, folder: Path, bag: Bag, step: int | None) -> list[Path]:
        """``h5_files/{slide_id}.h5`` (when corners are known) and ``pt_files/{slide_id}.pt``."""
        paths = [folder / "pt_files" / f"{bag.slide_id}.pt"]
        if one_step(bag, step, self.name).info is not None:
            paths.insert(0, folder / "h5_files" / f"{bag.slide_id}.h5")
        return paths


def _stated(attributes: dict[str, Any]) -> dict[str, Any]:
    """Side and pixels of a patch from CLAM's attributes: ``patch_size`` at a level's downsample."""
    if "patch_size" not in attributes:
        return {}
    downsample = np.ravel(attributes.get("downsample", 1.0))[0]
    patch_px = int(np.ravel(attributes["patch_size"])[0])
    found: dict[str, Any] = {"patch_px": patch_px, "side": float(patch_px * downsample)}
    size = attributes.get("level_dim")
    if size is not None and attributes.get("patch_level") == 0:
        found["slide_size"] = (int(size[0]), int(size[1]))
    return found


def _load_tensor(path: Path) -> np.ndarray:
    """The bare tensor of a ``.pt`` file; nothing is unpickled but tensors."""
    import torch

    if not path.is_file():
        raise BagError(f"{str(path)!r} does not exist or is not a file; expected CLAM's tensor.")
    try:
        tensor = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).split("\n", 1)[0]
        raise BagError(
            f"{str(path)!r} is not a file with one bare tensor, and nothing else is unpickled "
            f"({reason})."
        ) from error
    if not isinstance(tensor, torch.Tensor):
        raise BagError(
            f"{str(path)!r} holds a {type(tensor).__name__}; expected one bare tensor (N, D)."
        )
    return tensor.float().numpy()


def _save_tensor(features: np.ndarray, path: Path) -> None:
    import torch

    with atomic_path(path) as temporary:
        torch.save(torch.from_numpy(np.ascontiguousarray(features)), temporary)
