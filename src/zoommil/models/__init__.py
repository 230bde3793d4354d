"""Row 9, models: bags of feature vectors in, class logits and where they came from out."""
