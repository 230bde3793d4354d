"""Row 2, synthetic: a seed becomes a realistic pyramidal slide whose truth is known."""
