"""``mk audit``."""

from pathlib import Path
from typing import Annotated

import typer

from megakernel.cli.options import JsonOption


def register(app: typer.Typer) -> None:
    app.command("audit")(audit)


def audit(
    files: Annotated[list[Path], typer.Argument(help="Session files, finished or not.", metavar="FILE...")],
    json: JsonOption = False,
) -> None:
    """Verifies session files again: what was computed, planned, shuffled and measured. Needs no GPU."""
    from megakernel.device.sources import kernel_folder, source_hashes
    from megakernel.errors import MegakernelError, MissingError, RecordError, VerdictError
    from megakernel.report import tables
    from megakernel.report.audit import audit_file
    from megakernel.report.findings import Audit

    sources = source_hashes(kernel_folder())
    audits: list[Audit] = []
    unreadable: list[MegakernelError] = []
    for file in files:
        try:
            audits.append(audit_file(file, sources))
        except (MissingError, RecordError) as error:
            unreadable.append(error)
        else:
            if not json:
                tables.print_audit(audits[-1])
    if json:
        tables.print_json([tables.audit_record(one) for one in audits])
    wrong = [one for one in audits if not one.passed]
    last = unreadable.pop() if unreadable and not wrong else None
    for message in unreadable:
        tables.print_notice(f"mk: {message}")
    if last is not None:
        raise last
    if wrong:
        count = sum(len(one.of_kind("fault")) for one in wrong)
        raise VerdictError(f"{count} {'fault' if count == 1 else 'faults'} in {', '.join(one.path for one in wrong)}")
