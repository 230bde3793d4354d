"""Row 0, errors: every exception this package raises on purpose, in one tree.

    ZoomMILError
    ├── UnknownNameError          a name that no registry, table or file knows
    ├── ConfigError               a run file, option or spec that cannot be meant
    ├── MissingExtraError         an optional package is not installed
    ├── SlideError                a slide that cannot be opened or used
    │   ├── ResolutionError       its resolution is unknown, implausible or too coarse
    │   └── SlideReadError        a region of it that cannot be decoded
    ├── TissueError               a mask that cannot be made, read or used
    ├── GridError                 magnifications or patches that do not fit together
    ├── EncoderError              an encoder that cannot be built or run
    │   └── WeightsError          its weights are missing, gated or do not fit
    ├── BagError                  a bag or bag file that is not what it should be
    ├── CohortError               a table of slides that cannot be used
    │   └── SplitError            a split that leaks, is empty or misses a class
    ├── ModelError                a model whose arguments or inputs do not fit
    ├── TrainingError             a run that cannot start, resume or finish
    ├── ArtefactError             a trained model that does not fit what it is used with
    ├── PredictionError           a prediction that cannot be made or verified
    │   └── BudgetError           a budget below what the first step costs
    ├── OutputError               a file or folder that cannot be written
    │   └── DiskFullError         there is no space left, so that no other file can be written
    └── LockError                 another live process holds what is needed

A message says what was given, what was expected and what to do next, in one line.
"""

from __future__ import annotations


class ZoomMILError(Exception):
    """The root: catching it catches everything this package raises on purpose."""


class UnknownNameError(ZoomMILError):
    """A name that no registry, table or file knows."""


class ConfigError(ZoomMILError):
    """A run file, option or spec that cannot be meant."""


class MissingExtraError(ZoomMILError):
    """An optional package is not installed; the message names the install line."""


class SlideError(ZoomMILError):
    """A slide that cannot be opened or used."""


class ResolutionError(SlideError):
    """A slide whose resolution is unknown, implausible or too coarse for the request."""


class SlideReadError(SlideError):
    """A region of a slide that cannot be decoded; names slide, level and box."""


class TissueError(ZoomMILError):
    """A tissue mask that cannot be made, read or used."""


class GridError(ZoomMILError):
    """Magnifications or patches that do not fit together or into the slide."""


class EncoderError(ZoomMILError):
    """An encoder that cannot be built or run."""


class WeightsError(EncoderError):
    """Weights that are missing, gated or do not fit their network."""


class BagError(ZoomMILError):
    """A bag or bag file that is not what it should be."""


class CohortError(ZoomMILError):
    """A table of slides that cannot be used."""


class SplitError(CohortError):
    """A split that leaks, is empty or misses a class."""


class ModelError(ZoomMILError):
    """A model whose arguments or inputs do not fit."""


class TrainingError(ZoomMILError):
    """A training run that cannot start, resume or finish."""


class ArtefactError(ZoomMILError):
    """A trained model that does not fit what it is used with."""


class PredictionError(ZoomMILError):
    """A prediction that cannot be made or verified."""


class BudgetError(PredictionError):
    """A budget below what the first step costs."""


class OutputError(ZoomMILError):
    """A file or folder that cannot be written."""


class DiskFullError(OutputError):
    """No space or quota is left: whatever is written next would fail too."""


class LockError(ZoomMILError):
    """Another live process holds what is needed."""
