"""Row 1, slides: a path comes in, pixels of any box at any resolution go out.

``opening`` chooses a reader, ``slide`` is the contract that all readers share.
"""
