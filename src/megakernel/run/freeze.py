"""Finds out what a manifest holds: hashes of the kernels, the package and the configurations; the protocol, the
fixture's generator, the tolerances and the rules of acceptance.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from megakernel.device.sources import kernel_folder, source_hashes
from megakernel.operator.fixtures import TIMING_SEED, hashed
from megakernel.operator.tolerances import acceptance_rules
from megakernel.record import manifest
from megakernel.record.manifest import Manifest, Sections, Value
from megakernel.record.protocol import SESSION, Protocol
from megakernel.record.session import NOT_FROZEN, Freeze
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Variant
from megakernel.variants.frozen import FrozenTable

_PACKAGE = Path(__file__).resolve().parents[1]

# Two sessions of one measurement differ in these.
_FREE = ("order_seed", "shape_order")

_SAMPLE_ROWS, _SAMPLE_WIDTH = 4, 4096

_ACCEPTANCE = {
    "before timing": "a variant that fails a check is not timed",
    "after timing": "each executable that was timed runs once more over poisoned memory and is checked; a failure is "
    "kept in the file and is a bad verdict",
    "throttled rounds": "kept and counted",
    "sessions": "two; their medians are averaged, and ratios are of the averages",
    "primary target": "1.25: local family over megakernel, event interval of graph replay at 16 rows; the article's "
    "pair first, then the pilot's; a miss is reported and is not replaced by another shape",
}


def freeze(frozen: FrozenTable, protocol: Protocol = SESSION, variants: Sequence[Variant] = ()) -> Manifest:
    """The manifest of this installation as it is now, and of those ``variants`` that are somebody's own."""
    return manifest.make(_sections(frozen, protocol, variants))


def compare(path: Path | None, frozen: FrozenTable, protocol: Protocol, variants: Sequence[Variant] = ()) -> Freeze:
    """How what is about to run stands to the manifest at ``path``; None is no manifest.

    Raises:
        MissingError, RecordError: it cannot be read.
    """
    if path is None:
        return NOT_FROZEN
    made_before = manifest.load(path)
    return Freeze(made_before.text, manifest.changes(made_before.sections, _sections(frozen, protocol, variants)))


def _sections(frozen: FrozenTable, protocol: Protocol, variants: Sequence[Variant]) -> Sections:
    own = [variant for variant in variants if variant not in CATALOGUE.values()]
    of_protocol: dict[str, Value] = {name: value for name, value in asdict(protocol).items() if name not in _FREE}
    return {
        "kernel_sources": source_hashes(kernel_folder(), (variant.source for variant in own)),
        "package": package_hashes(_PACKAGE),
        "configurations": {"frozen.toml": hashlib.sha256(frozen.text.encode()).hexdigest()},
        "protocol": of_protocol,
        "fixture": {
            "name": "timing",
            "seed": TIMING_SEED,
            f"sha256 of {_SAMPLE_ROWS} x {_SAMPLE_WIDTH}": hashlib.sha256(
                hashed(_SAMPLE_ROWS, _SAMPLE_WIDTH).tobytes()
            ).hexdigest(),
        },
        "tolerances": acceptance_rules(),
        "acceptance": _ACCEPTANCE,
        **({"own_variants": {variant.name: _declaration_hash(variant) for variant in own}} if own else {}),
    }


def _declaration_hash(variant: Variant) -> str:
    """Of all that is declared: stages, configurations, what moves."""
    return hashlib.sha256(repr(variant).encode("utf-8", "surrogateescape")).hexdigest()


def package_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every module and table of the package, by its path. The kernels of an installed package lie in it
    too, and have a section of their own.
    """
    files = sorted(p for p in folder.rglob("*") if p.suffix in {".py", ".json"} and p.is_file())
    relative = {path.relative_to(folder): path for path in files}
    return {
        name.as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in relative.items()
        if name.parts[0] != "kernels"
    }
