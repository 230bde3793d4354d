"""Write the features that ``zoommil doctor`` compares with. Run when the self-test's patch changes.

python scripts/selftest_features.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zoommil.diagnosis import selftest

TARGET = Path(selftest.__file__).parent / selftest.FEATURES_FILE

if __name__ == "__main__":
    np.save(TARGET, selftest.compute_features("torch", "fp32"), allow_pickle=False)
