"""What ``mk bench`` and ``mk session`` share: from a request to a file, a table and a verdict."""

from pathlib import Path

from megakernel.cli import interrupts
from megakernel.device.face import Device
from megakernel.errors import PlanError, VerdictError
from megakernel.record.reader import load
from megakernel.record.writer import SessionWriter
from megakernel.report import tables
from megakernel.report.summary import records, summarise
from megakernel.run.session import Request, run_session


def measure(device: Device, request: Request, path: Path, *, json: bool) -> None:
    """Measures into a new file and prints what it holds.

    Raises:
        VerdictError: a check failed.
        PlanError: something could not be run.
        RecordError, DeviceError, KeyboardInterrupt: measuring ended early; where the samples are has been said.
    """
    writer = SessionWriter(path)
    try:
        with tables.progress_bar() as bar:
            outcome = run_session(device, request, writer, interrupts.checked(tables.progress_report(bar)))
        writer.finish()
    except BaseException:
        if writer.close():
            tables.print_notice(f"the samples so far are in {writer.partial}")
        raise
    session = load(path)
    if json:
        tables.print_json(records(summarise(session)))
    else:
        tables.print_session(session)
        tables.print_lines([f"samples: {path}"])
    for line in (*outcome.refused, *outcome.failures):
        tables.print_notice(line)
    if outcome.failures:
        raise VerdictError(f"{len(outcome.failures)} checks failed: see above")
    if outcome.refused:
        raise PlanError(f"{len(outcome.refused)} could not be run: see above")
