"""Row 16, benches: measurements of this package on this machine, each a table anyone can remake."""
