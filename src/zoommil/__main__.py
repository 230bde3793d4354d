"""Row 16, ``python -m zoommil`` and the command ``zoommil``: the program, from its first moment.

Ctrl-C is one line even while the program itself is still being imported.
"""

import atexit
import os
import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from zoommil.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before anything was begun.\n")
        _leave()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _leave()
        raise


def _leave() -> None:
    """End at once: everything was said and unwound; threads that still work are not waited for."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
