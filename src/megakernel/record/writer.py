"""Writes a session to HDF5 while it runs. ``docs/schema.md`` describes the file.

The file grows under ``NAME.partial`` and takes its name when the session is over; neither name may exist before.
A flush after every round keeps it readable where the process is killed between flushes; a kill inside one may cost it
(``docs/decisions/0007``).
Names that people choose are attribute values, never names of groups.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import h5py
import numpy as np

from megakernel.errors import RecordError
from megakernel.files import cannot_write
from megakernel.operator.contract import Problem
from megakernel.record.facts import DeviceState
from megakernel.record.plan import Plan
from megakernel.record.protocol import Cache
from megakernel.record.seal import seal, unseal
from megakernel.record.session import (
    SCHEMA,
    SCHEMA_VERSION,
    EvictedSample,
    Header,
    RoundState,
    Sample,
    StandIns,
    Subject,
)
from megakernel.record.verification import Verification

_STATE_FIELDS = tuple(field.name for field in fields(DeviceState))
_TEXT = h5py.string_dtype()
_LEAST_ROOM_BYTES = 8 * 2**20

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _storing(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """What HDF5 raises where the disk is full, gone or not to be written, as an error of ours."""

    @wraps(method)
    def stored(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        try:
            return method(*arguments, **keywords)
        except (OSError, RuntimeError) as error:
            writer = arguments[0]
            assert isinstance(writer, SessionWriter)
            writer.let_go()
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            raise RecordError(f"cannot write {writer.partial}: {first_line}") from error

    return stored


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class SessionWriter:
    """Owns the file of one session.

    Raises:
        RecordError: a file is in the way, or the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        if not path.name:
            raise RecordError(f"{str(path)!r} names no file: give --out a file name")
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        for taken in (path, self.partial):
            if os.path.lexists(taken):
                raise RecordError(f"{taken} exists already: name another file with --out, or move it away")
        try:
            self._require_free()
            self._file = h5py.File(self.partial, "x")
        except OSError as error:
            raise cannot_write(path, error) from error
        self._samples = 0
        self._output_rows: dict[tuple[int, str], int] = {}  # by shape and digest: the series that holds the row
        self._series: list[h5py.Group] = []
        # Held open for the whole session: a dataset that is closed swallows what it could not write.
        self._datasets: dict[str, Any] = {}
        self._shapes: list[h5py.Group] = []
        self._file.attrs.update(
            schema=SCHEMA, schema_version=SCHEMA_VERSION, complete=False, interruption="", created=utc_now()
        )
        for name in ("shapes", "series"):
            self._file.create_group(name)
        self._file.flush()

    @_storing
    def write_header(self, header: Header) -> None:
        file = self._file
        file.attrs["fixture"] = header.fixture
        file.create_group("device").attrs.update(asdict(header.device))
        file.create_group("protocol").attrs.update(asdict(header.protocol))
        _write_texts(file.create_group("environment"), header.environment)
        _write_texts(file.create_group("tolerances"), header.tolerances)
        sources = file.create_group("kernel_sources")
        _write_strings(sources, "path", list(header.kernel_sources))
        _write_strings(sources, "sha256", list(header.kernel_sources.values()))
        manifest = file.create_group("manifest")
        manifest.attrs["state"] = header.freeze.state
        _write_text(manifest, "json", header.freeze.manifest)
        _write_text(manifest, "changes", "\n".join(header.freeze.changes))
        _write_text(file, "configurations", header.configurations)
        file.flush()

    @_storing
    def add_shape(self, problem: Problem, x_sha256: str, stand_ins: StandIns | None = None) -> int:
        """Starts a shape and returns its number."""
        group = self._file["shapes"].create_group(f"{len(self._shapes):04d}")
        group.attrs.update(asdict(problem), x_sha256=x_sha256, **(asdict(stand_ins) if stand_ins else {}))
        _create_states(group)
        self._shapes.append(group)
        return len(self._shapes) - 1

    @_storing
    def add_pilot(self, shape: int, variant: str, configurations: Sequence[str], event_ns: np.ndarray) -> None:
        """Keeps how a floor's configuration was chosen: event intervals of whole batches
        ``(repeats, configurations)``, in ns.
        """
        group = self._shapes[shape].create_group("pilot")
        group.attrs["variant"] = variant
        _write_strings(group, "configuration", configurations)
        dataset = group.create_dataset("event_interval", data=event_ns)
        dataset.attrs.update(units="ns", invocations=int(self._file["protocol"].attrs["batch"]))

    @_storing
    def add_series(self, shape: int, subject: Subject) -> int:
        """Starts a series and returns its number."""
        self.require_room()
        plan = subject.plan
        group = self._file["series"].create_group(f"{len(self._series):04d}")
        group.attrs.update(
            variant=plan.variant,
            computes=subject.computes,
            shape=shape,
            rows=plan.problem.rows,
            width=plan.problem.width,
            eps=plan.problem.eps,
            submission=subject.submission,
            cache=subject.cache,
            threads=plan.configuration.threads,
            tile=plan.configuration.tile,
            launches=len(plan.launches),
        )
        _write_plan(group, plan)
        _write_texts(group.create_group("compiler"), subject.compiler)
        if subject.topology is not None:
            _write_text(group, "graph", json.dumps(asdict(subject.topology)))
        if subject.graph_timings is not None:
            timings = group.create_group("graph_timings")
            timings.attrs["units"] = "ns"
            timings.attrs.update(asdict(subject.graph_timings))
        _write_checks(group.create_group("verified_before"), subject.before)
        protocol = self._file["protocol"].attrs
        singles, batch = (int(protocol["singles"]),), int(protocol["batch"])
        evicted_singles = (int(protocol["evicted_singles"]),)
        datasets: dict[str, tuple[tuple[int, ...], Any, int]] = {
            "host_completion": (singles, np.int64, 1),
            "host_enqueue": ((), np.int64, batch),
            "host_batch_completion": ((), np.int64, batch),
            "event_interval": ((), np.float64, batch),
        }
        if subject.cache == "evicted":
            datasets = {
                "host_completion": (evicted_singles, np.int64, 1),
                "single_event_interval": (evicted_singles, np.float64, 1),
            }
        for name, (shape_of_one, dtype, invocations) in datasets.items():
            dataset = _growing(group, name, shape_of_one, dtype)
            dataset.attrs.update(units="ns", invocations=invocations)
        for name in ("round", "position"):
            _growing(group, name, (), np.int64)
        self._series.append(group)
        return len(self._series) - 1

    @_storing
    def add_refusal(self, shape: int, variant: str, submission: str, reason: str) -> None:
        """Keeps why a subject was not timed."""
        group = self._shapes[shape].require_group("refused")
        entry = group.create_group(f"{len(group):04d}")
        entry.attrs.update(variant=variant, submission=submission)
        _write_text(entry, "reason", reason)

    @_storing
    def append(self, series: int, round_number: int, position: int, sample: Sample | EvictedSample) -> None:
        """Adds one round of a series, warm or evicted as its samples are."""
        values: dict[str, Any] = {"host_completion": sample.singles_ns}
        if isinstance(sample, EvictedSample):
            values |= {"single_event_interval": sample.single_event_ns}
        else:
            values |= {
                "host_enqueue": sample.enqueue_ns,
                "host_batch_completion": sample.batch_ns,
                "event_interval": sample.event_ns,
            }
        self._samples += 1
        for name, value in (values | {"position": position, "round": round_number}).items():
            self._append(self._series[series], name, value)

    def _append(self, group: h5py.Group, name: str, value: Any) -> None:
        dataset = self._datasets.setdefault(f"{group.name}/{name}", group[name])
        finished = dataset.shape[0]
        try:
            dataset.resize(finished + 1, axis=0)
            dataset[-1] = value
        except KeyboardInterrupt:  # the entry is there and holds nothing: a reader would take it for a value
            dataset.resize(finished, axis=0)
            raise

    def require_room(self) -> None:
        """Takes the room on the disk that the next round may need, or refuses to go on: HDF5 cannot recover from a
        write that failed. The file ends in that room until it is closed.

        Raises:
            RecordError: too little is left for the next round.
        """
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.id.get_vfd_handle(), self._file.id.get_filesize(), _LEAST_ROOM_BYTES)
            else:
                self._require_free()
        except OSError as error:
            raise RecordError(
                f"the disk of {self.partial} has no room for another round ({_LEAST_ROOM_BYTES // 1024} KiB): "
                f"{error.strerror}: make room, or name a file elsewhere with --out"
            ) from error

    def _require_free(self) -> None:
        room = shutil.disk_usage(self.partial.parent).free
        if room < _LEAST_ROOM_BYTES:
            raise RecordError(
                f"{room // 1024} KiB are left on the disk of {self.partial}, and a round may need "
                f"{_LEAST_ROOM_BYTES // 1024}: make room, or name a file elsewhere with --out"
            )

    def _close(self) -> None:
        """Closes the file and gives back the room that it did not need."""
        self._file.flush()
        used = self._file.id.get_filesize()
        self._file.close()
        if self.partial.stat().st_size > used:
            os.truncate(self.partial, used)

    @_storing
    def finish_round(self, shape: int, state: RoundState, cache: Cache = "warm") -> None:
        """Stores the device's state around a round and makes the round safe."""
        group = self._shapes[shape]
        if cache == "evicted":
            if "evicted" not in group:
                _create_states(group.create_group("evicted"))
            group = group["evicted"]
        for name in _STATE_FIELDS:
            self._append(group, name, [_number(state.before, name), _number(state.after, name)])
        self._append(group, "throttled", state.before.throttled or state.after.throttled)
        self._file.flush()

    @_storing
    def add_verification_after(self, series: int, verification: Verification) -> None:
        """Stores the checks after timing, and what an audit needs to repeat them.

        An output row is large, and direct launches and graph mostly agree to the bit: a row whose output's digest
        is already there is stored once, and ``output_row_series`` says with which series.
        """
        self.require_room()
        owner = self._series[series]
        group = owner.create_group("verified_after")
        _write_checks(group, verification)
        intermediates = group.create_group("intermediates")
        for name, values in verification.intermediates.items():
            intermediates.create_dataset(name, data=values)
        if verification.output_row is not None:
            key = (int(owner.attrs["shape"]), verification.output_sha256)
            holder = self._output_rows.setdefault(key, series)
            group.attrs.update(output_row_series=holder, output_row_index=verification.output_row_index)
            if holder == series:
                group.create_dataset("output_row", data=verification.output_row, compression="gzip", shuffle=True)
        self._file.flush()

    def interrupt(self, reason: str) -> None:
        """Says in the file why it is incomplete."""
        self._file.attrs["interruption"] = _storable(reason).encode("utf-8", "backslashreplace").decode()
        self._file.flush()

    def abandon(self, reason: str) -> str:
        """Ends a session that cannot go on. Returns where its samples are; empty where it has none."""
        self.interrupt(reason)
        return str(self.partial) if self.close() else ""

    @_storing
    def finish(self) -> None:
        """Marks the file complete and gives it its name.

        Raises:
            RecordError: the disk is full, or meanwhile a file has taken the name; the samples stay in the partial file.
        """
        self.require_room()
        try:
            seal(self._file, {"finished": utc_now(), "complete": True})
        except BaseException as error:  # a signal, most likely: the rounds are all there, the file is not finished
            with suppress(Exception):
                unseal(self._file)
                self.interrupt(str(error) or type(error).__name__)
            raise
        self._close()
        try:
            os.link(self.partial, self.path)  # unlike a rename, never replaces what is there
        except FileExistsError:
            raise RecordError(f"{self.path} appeared meanwhile: the samples are in {self.partial}") from None
        except OSError:  # a file system without hard links
            if self.path.exists():
                raise RecordError(f"{self.path} appeared meanwhile: the samples are in {self.partial}") from None
            self.partial.rename(self.path)
        else:
            self.partial.unlink()

    def let_go(self) -> None:
        """Leaves the file as it is on the disk. After a write that failed, HDF5 would try again whenever an object of
        it is closed, and then crash: from now on it writes to nowhere, and believes that all is well.
        """
        with suppress(Exception), open(os.devnull, "r+b") as nowhere:
            os.dup2(nowhere.fileno(), self._file.id.get_vfd_handle())

    def close(self) -> bool:
        """Closes an unfinished file, and removes it where it holds no sample. Returns whether it is kept."""
        with suppress(Exception):  # after a write that failed; what went wrong has been raised already
            self._close()
        if self._samples == 0:
            self.partial.unlink(missing_ok=True)
        return self._samples > 0


def _number(state: DeviceState, name: str) -> float:
    value = getattr(state, name)
    return float("nan") if value is None else float(value)


def _create_states(group: h5py.Group) -> None:
    for name in _STATE_FIELDS:
        _growing(group, name, (2,), np.float64).attrs["columns"] = ["before", "after"]
    _growing(group, "throttled", (), np.bool_)


def _growing(group: h5py.Group, name: str, shape_of_one: tuple[int, ...], dtype: Any) -> Any:
    return group.create_dataset(
        name, (0, *shape_of_one), dtype, maxshape=(None, *shape_of_one), chunks=(32, *shape_of_one)
    )


def _storable(text: str) -> str:
    """HDF5's strings end at the first NUL."""
    return text.replace("\0", "\\0")


def _utf8(text: str) -> bytes:
    """Bytes that a path or argument held undecodably come out as they were."""
    return _storable(text).encode("utf-8", "surrogateescape")


def _write_text(group: h5py.Group, name: str, text: str) -> None:
    """Text as a dataset: an attribute could not hold more than 64 KiB."""
    group.create_dataset(name, data=_utf8(text), dtype=_TEXT)


def _write_texts(group: h5py.Group, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        _write_text(group, name, text)


def _write_strings(group: h5py.Group, name: str, strings: Sequence[str]) -> None:
    group.create_dataset(name, data=[_utf8(text) for text in strings], shape=(len(strings),), dtype=_TEXT)


def _write_plan(group: h5py.Group, plan: Plan) -> None:
    _write_text(group, "plan", json.dumps(asdict(plan)))
    resources = group.create_group("resources")
    for position, room in enumerate(plan.residencies):
        entry = resources.create_group(f"{position:02d}")
        entry.attrs.update(asdict(room.resources))
        entry.attrs.update(
            threads=room.threads,
            dynamic_shared_bytes=room.shared_bytes,
            blocks_per_sm=room.blocks_per_sm,
            sm_count=room.sm_count,
            cap=room.cap,
        )


def _write_checks(group: h5py.Group, verification: Verification) -> None:
    group.attrs.update(
        passed=verification.passed, fixture=verification.fixture, output_sha256=verification.output_sha256
    )
    checks = verification.checks
    _write_strings(group, "check", [check.name for check in checks])
    _write_strings(group, "detail", [check.detail for check in checks])
    group.create_dataset("check_passed", data=np.array([check.passed for check in checks], np.bool_))
    group.create_dataset("measured", data=np.array([check.measured for check in checks], np.float64))
    group.create_dataset("allowed", data=np.array([check.allowed for check in checks], np.float64))
