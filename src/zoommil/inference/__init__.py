"""Row 12, inference: a raw slide and an artefact come in; the answer, where it looked, its cost."""
