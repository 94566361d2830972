"""Result files: created exclusively, readable whenever the process dies, text kept exactly."""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.unit.samples import PASSED, PROTOCOL, STATE, header, sample, subject, write_round, write_session

from megakernel.errors import RecordError
from megakernel.operator.checks import Check
from megakernel.operator.contract import Problem
from megakernel.record.facts import DeviceState
from megakernel.record.reader import load
from megakernel.record.session import RoundState
from megakernel.record.writer import SessionWriter


def test_samples_come_back_as_they_were_written(tmp_path: Path) -> None:
    session = load(write_session(tmp_path / "a.h5", {"copy": [4000, 4100], "row_retained": [8000.5, 8200]}))
    assert session.complete
    assert session.interruption == ""
    copy, retained = session.series
    assert (copy.variant, copy.computes, retained.variant, retained.computes) == (
        *("copy", "copy"),
        *("row_retained", "softmax"),
    )
    assert retained.problem == Problem(16, 1000)
    assert (retained.submission, retained.configuration, retained.launches, retained.batch) == (
        "graph",
        "256x1024",
        1,
        4,
    )
    assert retained.singles_ns.tolist() == [[8000] * 3, [8200] * 3]
    assert retained.enqueue_ns.tolist() == retained.batch_ns.tolist() == [32002, 32800]
    assert retained.event_ns.tolist() == [32002.0, 32800.0]
    assert retained.rounds.tolist() == [0, 1]
    assert retained.position.tolist() == [1, 1]
    assert retained.verified_before
    assert retained.verified_after is None
    assert session.device["name"] == "Fake GPU"
    assert session.device["sm_count"] == 132
    assert session.protocol["order_seed"] == 7
    assert session.protocol["cache"] == "warm"


def test_large_times_keep_every_nanosecond(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    series = writer.add_series(writer.add_shape(Problem(1), ""), subject("v"))
    writer.append(series, 0, 0, replace(sample(1), enqueue_ns=2**53 + 1, singles_ns=np.array([2**62 + 1] * 3)))
    writer.finish_round(0, RoundState(STATE, STATE))
    writer.finish()
    (loaded,) = load(tmp_path / "a.h5").series
    assert loaded.enqueue_ns.tolist() == [2**53 + 1]
    assert loaded.singles_ns.tolist() == [[2**62 + 1] * 3]


@pytest.mark.parametrize(
    "name", ["coop/v2", "GB/s", "µ-kernel 高速", "a.b:c", "..", "/", "[bold]x[/bold]", "x" * 70_000]
)
def test_any_name_comes_back_once_and_exactly(tmp_path: Path, name: str) -> None:
    # As the name of a group, a slash would nest.
    session = load(write_session(tmp_path / "a.h5", {name: [5.0]}))
    assert [series.variant for series in session.series] == [name]


@pytest.mark.parametrize("text", ["", "plain", "ü\n\t高", "/path/with\udcff/byte", "x" * 200_000, "é" * 100_000])
def test_any_text_comes_back_exactly(tmp_path: Path, text: str) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header(environment={"command": text}))
    writer.finish()
    assert load(tmp_path / "a.h5").environment == {"command": text}


def test_text_with_a_nul_is_kept_whole(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header(environment={"command": "a\0b"}))
    writer.finish()
    assert load(tmp_path / "a.h5").environment == {"command": "a\\0b"}


def test_a_path_with_undecodable_bytes_works(tmp_path: Path) -> None:
    path = tmp_path / "m\udcffssung ü.h5"
    write_session(path, {"v": [1.0]})
    assert load(path).path == str(path)


def test_sources_with_undecodable_names_are_listed(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(replace(header(), kernel_sources={"m\udcff.cu": "00", "b/c.cu": "11"}))
    writer.finish()
    with h5py.File(tmp_path / "a.h5") as file:
        names = [path.decode("utf-8", "surrogateescape") for path in file["kernel_sources/path"]]
    assert names == ["m\udcff.cu", "b/c.cu"]


@pytest.mark.parametrize("taken", ["a.h5", "a.h5.partial"])
def test_a_file_in_the_way_is_refused_and_left_alone(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("precious")
    with pytest.raises(RecordError, match=f"{taken} exists already: name another file with --out, or move it away$"):
        SessionWriter(tmp_path / "a.h5")
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text() == "precious"


def test_a_file_that_appears_meanwhile_is_never_overwritten(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    series = writer.add_series(writer.add_shape(Problem(1), ""), subject("v"))
    write_round(writer, 0, 0, {series: 9.0})
    (tmp_path / "a.h5").write_text("precious")
    with pytest.raises(RecordError, match=r"a\.h5 appeared meanwhile: the samples are in .*a\.h5\.partial$"):
        writer.finish()
    assert writer.close()
    assert (tmp_path / "a.h5").read_text() == "precious"
    assert load(tmp_path / "a.h5.partial").series[0].event_ns.tolist() == [36.0]


def test_two_sessions_cannot_write_one_file(tmp_path: Path) -> None:
    first = SessionWriter(tmp_path / "a.h5")
    with pytest.raises(RecordError, match="exists already"):
        SessionWriter(tmp_path / "a.h5")
    first.write_header(header())
    first.finish()
    assert load(tmp_path / "a.h5").complete


def test_a_folder_that_is_not_there_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        RecordError, match=r"^cannot write .*/none/a\.h5: there is no folder .*: make it first$"
    ) as caught:
        SessionWriter(tmp_path / "none" / "a.h5")
    assert "\n" not in str(caught.value)


def test_an_unfinished_file_is_readable_and_marked(tmp_path: Path) -> None:
    partial = write_session(tmp_path / "a.h5", {"v": [1.0, 2.0]}, complete=False)
    assert partial.name == "a.h5.partial"
    assert not (tmp_path / "a.h5").exists()
    session = load(partial)
    assert not session.complete
    assert session.series[0].rounds.tolist() == [0, 1]


def test_a_file_without_a_single_sample_is_removed_unless_finished(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    assert not writer.close()
    assert list(tmp_path.iterdir()) == []


def test_where_links_are_impossible_the_file_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError("operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    assert load(write_session(tmp_path / "a.h5", {"v": [1.0]})).complete
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]
    writer = SessionWriter(tmp_path / "b.h5")
    (tmp_path / "b.h5").write_text("precious")
    with pytest.raises(RecordError, match=r"b\.h5 appeared meanwhile"):
        writer.finish()
    assert (tmp_path / "b.h5").read_text() == "precious"


KILLED = """
import sys, time
from pathlib import Path
from megakernel.operator.contract import Problem
from megakernel.record.writer import SessionWriter
from tests.unit.samples import header, sample, subject, write_round

writer = SessionWriter(Path(sys.argv[1]))
writer.write_header(header())
shape = writer.add_shape(Problem(16, 1000), "")
series = [writer.add_series(shape, subject(name)) for name in "abc"]
for number in range(40):
    write_round(writer, shape, number, {each: 1000.0 + number for each in series})
writer.append(series[0], 40, 0, sample(1.0))
print("mid-round", flush=True)
time.sleep(60)
"""


def test_a_killed_run_keeps_every_finished_round(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path / "a.h5"], cwd=root, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "mid-round\n"
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    session = load(tmp_path / "a.h5.partial")
    assert not session.complete
    assert [series.variant for series in session.series] == ["a", "b", "c"]
    for series in session.series:
        assert series.rounds.tolist()[:40] == list(range(40))
        assert series.event_ns[:40].tolist() == [4 * (1000.0 + n) for n in range(40)]
        assert len(series.rounds) <= 41


def test_missing_telemetry_is_stored_as_missing(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    writer.add_shape(Problem(1), "")
    writer.finish_round(0, RoundState(STATE, DeviceState()))
    writer.finish()
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["shapes/0000/temperature_c"][()], [[40, np.nan]])
        assert file["shapes/0000/throttled"][()].tolist() == [False]


def test_an_output_row_that_two_series_share_is_stored_once(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    shape = writer.add_shape(Problem(1), "")
    row = np.arange(5, dtype=np.float32)
    same = replace(PASSED, output_row=row, intermediates={"tile_maxima": np.ones((1, 3), np.float32)})
    other = replace(same, output_sha256="cd" * 32, output_row=row + 1)
    for series, verification in enumerate([same, same, other]):
        writer.add_series(shape, subject(f"v{series}"))
        writer.add_verification_after(series, verification)
    writer.finish()
    with h5py.File(tmp_path / "a.h5") as file:
        after = [file[f"series/{i:04d}/verified_after"] for i in range(3)]
        assert [group.attrs["output_row_series"] for group in after] == [0, 0, 2]
        assert ["output_row" in group for group in after] == [True, False, True]
        assert after[2]["output_row"][()].tolist() == [1, 2, 3, 4, 5]
        assert after[1]["intermediates/tile_maxima"][()].tolist() == [[1, 1, 1]]


def test_every_check_is_stored_with_its_figures(tmp_path: Path) -> None:
    bad = replace(PASSED, checks=(*PASSED.checks, Check("y.written", False, float("inf"), 0.0, "5 of 9 values")))
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    series = writer.add_series(writer.add_shape(Problem(1), ""), subject("v"))
    writer.add_verification_after(series, bad)
    writer.finish()
    assert load(tmp_path / "a.h5").series[0].verified_after is False
    with h5py.File(tmp_path / "a.h5") as file:
        group = file["series/0000/verified_after"]
        assert [name.decode() for name in group["check"]] == ["y.accuracy", "y.written"]
        assert group["check_passed"][()].tolist() == [True, False]
        assert group["measured"][()].tolist() == [0.25, np.inf]
        assert group["detail"][1] == b"5 of 9 values"


def test_a_plain_reader_finds_units_invocations_and_no_python_objects(tmp_path: Path) -> None:
    path = write_session(tmp_path / "a.h5", {"v": [1.0]})
    with h5py.File(path) as file:
        assert file.attrs["schema"] == "megakernel.session"
        group = file["series/0000"]
        for name, invocations in {
            "host_completion": 1,
            "host_enqueue": PROTOCOL.batch,
            "host_batch_completion": PROTOCOL.batch,
            "event_interval": PROTOCOL.batch,
        }.items():
            assert group[name].attrs["units"] == "ns"
            assert group[name].attrs["invocations"] == invocations


@pytest.mark.parametrize("at", range(8))
def test_a_signal_while_the_file_is_sealed_leaves_it_incomplete_and_says_why(tmp_path: Path, at: int) -> None:
    """Wherever in the seal it falls: before, between and behind the summaries, and at each of the last marks."""
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    shape = writer.add_shape(Problem(16, 1000), "")
    for position, name in enumerate(("copy", "v")):
        writer.append(writer.add_series(shape, subject(name)), 0, position, sample(1000.0))
    writer.finish_round(shape, RoundState(STATE, STATE))
    calls = iter(range(100))
    create_group, set_attribute = h5py.Group.create_group, h5py.AttributeManager.__setitem__

    def interrupted(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **keywords: Any) -> Any:
            if next(calls) == at:
                raise KeyboardInterrupt("terminated")
            return original(*arguments, **keywords)

        return called

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(h5py.Group, "create_group", interrupted(create_group))
        patch.setattr(h5py.AttributeManager, "__setitem__", interrupted(set_attribute))
        with pytest.raises(KeyboardInterrupt):
            writer.finish()
    assert writer.close()
    session = load(writer.partial)
    assert not session.complete
    assert session.interruption == "terminated"
    assert [len(series.rounds) for series in session.series] == [1, 1]
    with h5py.File(writer.partial) as file:
        assert not {"contents_sha256", "finished"} & set(file.attrs)
        assert not any("summary" in series or "samples_sha256" in series.attrs for series in file["series"].values())
