"""Row 11, training: bags, labels and a run file come in; an artefact, metrics and curves go out."""
