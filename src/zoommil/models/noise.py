"""Row 9, models: a model's own random draws; a seed in, generators and storable states out."""

from __future__ import annotations

import torch
from jaxtyping import UInt8
from torch import Tensor

_SEED_BYTES = 8


class NoiseSource:
    """A generator that lives on the device it is asked for and can be stored as a tensor.

    Device generators have states of their own kinds: a state taken on one device continues
    exactly on the same kind of device, and starts again from the seed on another.
    """

    def __init__(self, seed: int | None = None) -> None:
        """Args: seed: None draws one from torch's global generator, so `manual_seed` rules it."""
        self.seed(int(torch.randint(2**31, ())) if seed is None else int(seed))

    def seed(self, seed: int) -> None:
        """Start again from that seed."""
        self._seed = seed
        self._generator = torch.Generator().manual_seed(seed)

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """The generator, on that device."""
        if self._generator.device.type != torch.device(device).type:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        return self._generator

    def get_state(self) -> UInt8[Tensor, " byte"]:
        """Seed and position as bytes."""
        seed = torch.tensor(list(self._seed.to_bytes(_SEED_BYTES, "little")), dtype=torch.uint8)
        return torch.cat([seed, self._generator.get_state()])

    def set_state(self, state: UInt8[Tensor, " byte"]) -> None:
        """Continue where `get_state` was called."""
        state = state.cpu()
        self.seed(int.from_bytes(bytes(state[:_SEED_BYTES].tolist()), "little"))
        position = state[_SEED_BYTES:]
        if len(position) != len(self._generator.get_state()) and torch.cuda.is_available():
            self._generator = torch.Generator("cuda").manual_seed(self._seed)
        if len(position) == len(self._generator.get_state()):
            self._generator.set_state(position.clone())

    def __deepcopy__(self, memo: dict) -> NoiseSource:
        copy = NoiseSource(self._seed)
        copy.set_state(self.get_state())
        return copy

    def __getstate__(self) -> dict:
        return {"state": self.get_state()}

    def __setstate__(self, kept: dict) -> None:
        self.set_state(kept["state"])
