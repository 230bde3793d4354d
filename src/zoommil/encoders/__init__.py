"""Row 5, encoders: patch pixels flow in, feature vectors flow out.

A card per encoder is data (``cards.toml``); a runtime per backend computes it.
"""
