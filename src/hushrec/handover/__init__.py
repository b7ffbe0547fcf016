"""What a run hands to other programs and people: vectors and scorers in files, a card, rounds for trackers.

It takes finished runs and rounds as they come. Of people it hands over nothing but what was asked for by name, and
to trackers and cards nothing at all.
"""
