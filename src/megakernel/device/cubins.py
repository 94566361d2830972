"""Compiled cubins on disk, so that a warm start compiles nothing.

An entry's key is everything that its content depends on: source, kernel names, options, NVRTC's version and every
header of the kernel folders. Entries are published with an atomic rename, so processes may race; one that is damaged
fails its checksum and is compiled again.
"""

import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from megakernel.device.cache import default_cache_folder, headers_in
from megakernel.device.nvrtc import Cubin, Recipe, compile_recipe, make_recipe
from megakernel.record.facts import KernelResources


def cubin_for(source: Path, kernel_names: tuple[str, ...], arch: str, cache_folder: Path | None = None) -> Cubin:
    """The compiled kernels of one source, from the cache where they were compiled before.

    Raises:
        UsageError, CompileError, MissingError: see ``nvrtc.make_recipe`` and ``nvrtc.compile_recipe``.
    """
    recipe = make_recipe(source, kernel_names, arch)
    entry = (cache_folder or default_cache_folder()) / "cubins" / f"{source.stem}-{_key(recipe)}"
    cached = _read(entry)
    if cached is None or not set(kernel_names) <= set(cached.resources):
        cached = compile_recipe(recipe)
        _publish(entry, cached)
    return cached


def _key(recipe: Recipe) -> str:
    digest = hashlib.sha256()
    parts = (*recipe.kernel_names, *recipe.options, recipe.nvrtc_version, *recipe.cuda_headers, recipe.source.name)
    for part in parts:
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    for path in (recipe.source, *headers_in(recipe.own_folders)):
        digest.update(path.name.encode("utf-8", "surrogateescape") + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _read(entry: Path) -> Cubin | None:
    try:
        head, _, image = entry.read_bytes().partition(b"\n")
        fields = json.loads(head)
        if fields.pop("sha256") != hashlib.sha256(image).hexdigest():
            return None
        resources = {name: KernelResources(**values) for name, values in fields.pop("resources").items()}
        return Cubin(image=image, resources=resources, options=tuple(fields.pop("options")), **fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _publish(entry: Path, cubin: Cubin) -> None:
    fields = {
        "sha256": hashlib.sha256(cubin.image).hexdigest(),
        "arch": cubin.arch,
        "resources": {name: asdict(values) for name, values in cubin.resources.items()},
        "options": cubin.options,
        "nvrtc_version": cubin.nvrtc_version,
        "log": cubin.log,
    }
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=entry.parent, prefix=entry.name, delete=False) as file:
            file.write(json.dumps(fields).encode() + b"\n" + cubin.image)
        os.replace(file.name, entry)
    except OSError:
        return  # a cache that cannot be written only costs time
