"""Row 7, bags: features go in; bag files, cohorts, splits and other tools' files come out."""
