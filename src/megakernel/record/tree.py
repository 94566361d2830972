"""A whole file in memory: every group, dataset and attribute as it is stored, whether or not it makes sense.

``reader`` gives a session and refuses what is damaged; an audit must go on past the damage to name it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from megakernel.errors import RecordError
from megakernel.files import require_file
from megakernel.record.session import SCHEMA, SCHEMA_VERSION

# What a damaged header may claim to hold is not read: none of it fits a session.
_LARGEST_EXPANSION = 20  # of a compressed dataset, against the whole file
_SMALLEST_LIMIT_BYTES = 2**24
_MOST_CHUNKS = 100_000
_LARGEST_COUNT = 100_000
_DEEPEST = 8


class Damaged(Exception):
    """A part that should be there is not, or is of another kind. The message says which."""


@dataclass(frozen=True)
class Node:
    """A group (``value`` is None) or a dataset. Text is bytes, an array of texts an object array of bytes."""

    attributes: Mapping[str, Any]
    value: Any = None

    @property
    def is_group(self) -> bool:
        return self.value is None


@dataclass(frozen=True)
class Tree:
    """Attributes:
    nodes: by path; the root's is ``/``.
    unreadable: what HDF5 could not read, each with its reason.
    """

    nodes: Mapping[str, Node]
    unreadable: tuple[str, ...] = ()

    @cached_property
    def children(self) -> Mapping[str, list[str]]:
        """The names in each group, sorted."""
        found: dict[str, list[str]] = {}
        for path in sorted(self.nodes):
            parent, _, name = path.rpartition("/")
            if name:
                found.setdefault(parent or "/", []).append(name)
        return found

    @property
    def root(self) -> "Group":
        return Group(self, "/")


@dataclass(frozen=True)
class Group:
    """A group of a tree, asked for its parts by name; what is missing is ``Damaged``."""

    tree: Tree
    path: str

    def _place(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def has(self, name: str) -> bool:
        return self._place(name) in self.tree.nodes

    def group(self, name: str) -> "Group":
        node = self.tree.nodes.get(self._place(name))
        if node is None or not node.is_group:
            raise Damaged(f"{self._place(name)} is missing or no group")
        return Group(self.tree, self._place(name))

    def groups(self) -> list["Group"]:
        """The groups in it, in the order of their names."""
        places = (self._place(name) for name in self.tree.children.get(self.path, ()))
        return [Group(self.tree, place) for place in places if self.tree.nodes[place].is_group]

    def names(self) -> list[str]:
        """The names of the datasets in it, in order."""
        names = self.tree.children.get(self.path, ())
        return [name for name in names if not self.tree.nodes[self._place(name)].is_group]

    @property
    def attributes(self) -> dict[str, Any]:
        """All of them, as plain Python values where they are single."""
        return {name: _plain(value) for name, value in self.tree.nodes[self.path].attributes.items()}

    def attribute(self, name: str) -> Any:
        if name not in self.tree.nodes[self.path].attributes:
            raise Damaged(f"{self.path} has no attribute {name}")
        return _plain(self.tree.nodes[self.path].attributes[name])

    def integer(self, name: str) -> int:
        value = self.attribute(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Damaged(f"{self.path}: attribute {name} is {value!r}, no whole number")
        return value

    def array(self, name: str) -> NDArray[Any]:
        """The numbers of a dataset."""
        node = self.tree.nodes.get(self._place(name))
        if node is None or not isinstance(node.value, np.ndarray) or node.value.dtype.kind not in "biuf":
            raise Damaged(f"{self._place(name)} is missing or holds no numbers")
        return node.value

    def attributes_of(self, name: str) -> dict[str, Any]:
        """The attributes of one of its datasets."""
        node = self.tree.nodes.get(self._place(name))
        if node is None:
            raise Damaged(f"{self._place(name)} is missing")
        return {key: _plain(value) for key, value in node.attributes.items()}

    def text(self, name: str) -> str:
        node = self.tree.nodes.get(self._place(name))
        if node is None or not isinstance(node.value, bytes):
            raise Damaged(f"{self._place(name)} is missing or no text")
        return node.value.decode("utf-8", "surrogateescape")

    def texts(self, name: str) -> list[str]:
        node = self.tree.nodes.get(self._place(name))
        if node is None or not isinstance(node.value, np.ndarray) or node.value.ndim != 1:
            raise Damaged(f"{self._place(name)} is missing or no list of texts")
        if not all(isinstance(text, bytes) for text in node.value):
            raise Damaged(f"{self._place(name)} is no list of texts")
        return [text.decode("utf-8", "surrogateescape") for text in node.value]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def read_archive(path: Path) -> Tree:
    """Everything in a session file, finished or not.

    Raises:
        MissingError: there is no such file.
        RecordError: HDF5 cannot open it, or it is no session of a known schema version.
    """
    require_file(path)
    try:
        with h5py.File(path, "r") as file:
            tree = read_tree(file)
    except Exception as error:  # a damaged file can make h5py fail in any way
        raise RecordError(f"{path} is not a readable session file: {_first_line(error)}") from error
    root = tree.nodes["/"].attributes
    if _plain(root.get("schema")) != SCHEMA:
        raise RecordError(f"{path} is an HDF5 file, but not a session (no attribute schema = {SCHEMA!r})")
    version = _plain(root.get("schema_version"))
    if version != SCHEMA_VERSION:
        raise RecordError(f"{path} has schema version {version}; this program reads version {SCHEMA_VERSION}")
    return tree


def read_tree(file: h5py.File) -> Tree:
    """Everything in an open file. Links that lead elsewhere are not followed."""
    nodes: dict[str, Node] = {}
    unreadable: list[str] = []
    for path, thing in _walk(file, unreadable):
        try:
            nodes[path] = _node(thing, path, unreadable)
        except Exception as error:
            unreadable.append(f"{path}: {_first_line(error)}")
        if len(nodes) + len(unreadable) > _LARGEST_COUNT:
            raise RecordError(f"more than {_LARGEST_COUNT} groups and datasets")
    if "/" not in nodes:
        raise RecordError(unreadable[0] if unreadable else "it has no root group")
    return Tree(nodes, tuple(unreadable))


def _walk(file: h5py.File, unreadable: list[str]) -> Iterator[tuple[str, Any]]:
    pending: list[tuple[str, Any, int]] = [("/", file["/"], 0)]
    while pending:
        path, thing, depth = pending.pop()
        yield path, thing
        if not isinstance(thing, h5py.Group):
            continue
        try:
            names = sorted(thing)
        except Exception as error:
            unreadable.append(f"{path}: {_first_line(error)}")
            continue
        for name in reversed(names):
            place = f"{path.rstrip('/')}/{name}"
            try:
                if depth == _DEEPEST or not isinstance(thing.get(name, getlink=True), h5py.HardLink):
                    raise Damaged("a link that leads elsewhere")
                pending.append((place, thing[name], depth + 1))
            except Exception as error:
                unreadable.append(f"{place}: {_first_line(error)}")


def _node(thing: Any, path: str, unreadable: list[str]) -> Node:
    attributes: dict[str, Any] = {}
    for name in sorted(thing.attrs):
        try:
            attributes[name] = thing.attrs[name]
        except Exception as error:
            unreadable.append(f"{path}, attribute {name}: {_first_line(error)}")
    if isinstance(thing, h5py.Group):
        return Node(attributes)
    if not isinstance(thing, h5py.Dataset):
        raise Damaged("neither group nor dataset")
    limit_bytes = max(_SMALLEST_LIMIT_BYTES, _LARGEST_EXPANSION * thing.file.id.get_filesize())
    if thing.size is None or thing.size * thing.dtype.itemsize > limit_bytes:
        raise Damaged(f"claims to hold {thing.shape} values")
    if thing.chunks and math.prod(-(-n // c) for n, c in zip(thing.shape, thing.chunks, strict=True)) > _MOST_CHUNKS:
        raise Damaged(f"claims to hold {thing.shape} values in chunks of {thing.chunks}")
    return Node(attributes, thing[()])


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
