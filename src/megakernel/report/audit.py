"""Audits a session file: works out again what can be worked out from it, and says what it only read.

``docs/audit.md`` says what each check can and cannot find.
"""

from collections.abc import Mapping
from pathlib import Path

from megakernel.record.apart import read_archive_apart
from megakernel.record.digest import contents_sha256
from megakernel.record.tree import Tree
from megakernel.report import audit_order, audit_plans, audit_results, audit_structure, audit_times
from megakernel.report.findings import Audit, Findings


def audit_file(path: Path, sources: Mapping[str, str]) -> Audit:
    """Audits one file.

    Args:
        sources: SHA-256 of each kernel source of this installation, by path.

    Raises:
        MissingError: there is no such file.
        RecordError: it cannot be read at all, or is no session of a known schema version.
    """
    return audit_tree(str(path), read_archive_apart(path), sources)


def audit_tree(path: str, tree: Tree, sources: Mapping[str, str]) -> Audit:
    findings = Findings()
    digest = ""
    with findings.guarded("digest"):
        digest = contents_sha256(tree)
    for audit in (audit_structure.audit, audit_order.audit, audit_times.audit, audit_results.audit):
        with findings.guarded("structure"):
            audit(tree.root, findings)
    for audit_sources in (audit_structure.audit_sources, audit_plans.audit):
        with findings.guarded("structure"):
            audit_sources(tree.root, findings, sources)
    return Audit(path, digest, findings.all())
