"""The command ``mk``: wires the commands together and turns errors into exit codes. Nothing else does."""

import os
import sys
import traceback
from contextlib import suppress

import typer

from megakernel import __version__
from megakernel.cli import audit, bench, devices, interrupts, kernels, report, session, verify
from megakernel.errors import MegakernelError, printable

GOOD, BAD_VERDICT, NOT_DONE, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="mk",
    help="CUDA Graphs, local fusion or a megakernel? Runs one operator through all of them on your GPU.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for commands in (devices, kernels, verify, bench, session, audit, report):
    commands.register(app)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"mk {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code: 0 good, 1 bad verdict, 2 not done, 3 ambiguous, 130/143 signals."""
    interrupts.install()
    _replace_closed_streams()
    try:
        result = app(arguments, prog_name="mk", standalone_mode=False)
        sys.stdout.flush()
    except typer.Exit as error:
        return int(error.exit_code)
    except MegakernelError as error:
        _say(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _say(interrupts.name())
        return interrupts.exit_code()
    except SystemExit as error:  # how Typer ends a command whose output nobody reads
        if isinstance(error.__context__, BrokenPipeError):
            return GOOD
        return int(error.code) if isinstance(error.code, int) else NOT_DONE
    except BrokenPipeError:
        # The reader of a pipe has gone: nothing is left to say, nor to flush when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except MemoryError as error:
        _say(f"not enough memory: {error}")
        return NOT_DONE
    except ImportError as error:
        _say(f"a package is missing or broken: {error}")
        return NOT_DONE
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        return NOT_DONE
    except Exception as error:
        _say(_usage(error) or _internal(error))
        return NOT_DONE
    if result == INTERRUPTED:  # some releases of Typer return this for Ctrl-C instead of raising it
        _say(interrupts.name())
        return interrupts.exit_code()
    return int(result or GOOD)


def _usage(error: Exception) -> str:
    """A usage error, with where to read on; nothing for any other. Its class's home differs between releases of Typer,
    so it is known by what it can do.
    """
    if not hasattr(error, "format_message"):
        return ""
    context = getattr(error, "ctx", None)
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    return f"{message}: see {context.command_path if context else 'mk'} --help"


def _internal(error: Exception) -> str:
    """A fault of this program, in one line that a report can quote."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return f"internal error at {place}: {type(error).__name__}: {' '.join(str(error).split())}"


def _replace_closed_streams() -> None:
    """Standard streams that the caller closed are None."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _say(message: str) -> None:
    with suppress(OSError):  # a full or closed standard error changes no exit code
        sys.stderr.write(f"mk: {printable(message)}\n")
        sys.stderr.flush()
