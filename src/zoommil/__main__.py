"""Row 16, ``python -m zoommil``: the same as the command ``zoommil``."""

from zoommil.cli.app import main

main()
