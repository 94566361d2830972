"""Where a process begins: signals are looked after before the command line is loaded, which takes a while."""

import sys

from megakernel.cli import interrupts


def main() -> None:
    interrupts.install()
    try:
        from megakernel.cli.main import run
    except KeyboardInterrupt:
        sys.stderr.write(f"mk: {interrupts.name()}\n")
        sys.exit(interrupts.exit_code())
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
