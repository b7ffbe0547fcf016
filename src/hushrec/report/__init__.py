"""What a run has to say: tables, figures, one self-contained page."""
