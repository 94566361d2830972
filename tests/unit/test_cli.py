"""The commands, in this process and on a fake device: exit codes, and what is said where."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.fakes import FakeDevice, FakeExecutable
from tests.unit.samples import header, write_session

from megakernel.cli.main import run
from megakernel.errors import DeviceError, MissingError
from megakernel.record.reader import load
from megakernel.record.writer import SessionWriter
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration
from megakernel.variants.frozen import Entry, shipped, to_toml

Capture = pytest.CaptureFixture[str]
QUICK = ["--rows", "2", "--width", "3000", "--rounds", "2", "--warmups", "0", "--singles", "2", "--batch", "2"]
FIELDS = ["device", "variant", "rows", "width", "submission", "cache", "metric", "mean_ns", "session_median_ns"]
FIELDS += ["p10_ns", "p90_ns", "over_copy"]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """Takes the place of whatever device a command opens. The shipped table has configurations for it."""
    fake = FakeDevice()
    fake.facts = replace(fake.facts, name="NVIDIA H200")
    monkeypatch.setattr("megakernel.device.choose.open_device", lambda *_, **__: fake)
    return fake


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad request is refused before a device is opened."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a device was opened")

    monkeypatch.setattr("megakernel.device.choose.open_device", fail)


def test_bench_measures_stores_and_prints(device: FakeDevice, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.h5"
    assert run(["bench", "--variant", "row_retained", *QUICK, "--out", str(path)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert {line.split()[1] for line in captured.out.splitlines() if line.startswith("   2 ")} == {
        *("empty", "copy", "row_retained")
    }
    assert captured.out.endswith(f"samples: {path}\n")
    assert load(path).complete
    assert device.submissions


@pytest.mark.usefixtures("device")
def test_bench_prints_json_and_nothing_else(tmp_path: Path, capsys: Capture) -> None:
    assert run(["bench", "--variant", "retained", *QUICK, "--json", "--out", str(tmp_path / "a.h5")]) == 0
    records = json.loads(capsys.readouterr().out)
    assert len(records) == 3 * 2 * 4
    assert all(list(record) == FIELDS for record in records)
    ratios = {r["over_copy"] for r in records if r["metric"] == "event_interval"}
    assert ratios == {1.0}  # each invocation takes the fake a microsecond


@pytest.mark.usefixtures("device")
def test_bench_never_writes_over_a_file(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.h5"
    path.write_text("precious")
    assert run(["bench", *QUICK, "--out", str(path)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith(f"mk: {path} exists already")
    assert path.read_text() == "precious"


def test_a_wrong_result_is_a_bad_verdict_and_named(device: FakeDevice, tmp_path: Path, capsys: Capture) -> None:
    device.tamper = lambda variant, name, values: values.fill(0) if (variant, name) == ("unfused", "y") else None
    assert run(["bench", "--variant", "unfused", *QUICK, "--out", str(tmp_path / "a.h5")]) == 1
    captured = capsys.readouterr()
    assert "unfused, 2 rows, direct: y.accuracy: " in captured.err
    assert captured.err.splitlines()[-1].startswith("mk: ")
    assert "copy" in captured.out  # what passed is shown


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [(DeviceError("cuGraphLaunch failed"), 2, "cuGraphLaunch failed"), (KeyboardInterrupt(), 130, "interrupted")],
)
def test_an_interrupted_bench_says_where_its_samples_are(
    device: FakeDevice, tmp_path: Path, capsys: Capture, error: BaseException, code: int, message: str
) -> None:
    arguments = ["bench", "--variant", "unfused", *QUICK, "--out"]
    assert run([*arguments, str(tmp_path / "whole.h5")]) == 0
    capsys.readouterr()
    stop_after = len(device.submissions) - 8  # of these, 6 verify again
    device.submissions.clear()

    def fail(executable: FakeExecutable) -> None:
        if len(device.submissions) == stop_after:
            raise error

    device.before_submit = fail
    path = tmp_path / "a.h5"
    assert run([*arguments, str(path)]) == code
    captured = capsys.readouterr()
    partial = tmp_path / "a.h5.partial"
    assert captured.out == ""
    assert captured.err == f"the samples so far are in {partial}\nmk: {message}\n"
    assert not load(partial).complete
    assert {len(series.rounds) for series in load(partial).series} == {1, 2}
    assert not path.exists()


def test_verify_passes_and_fails_by_exit_code(device: FakeDevice, capsys: Capture) -> None:
    arguments = ["verify", "retained", "--rows", "2", "--width", "3000", "--fixture", "all"]
    assert run(arguments) == 0
    assert "FAILED" not in capsys.readouterr().out
    device.tamper = lambda variant, name, values: values.fill(np.nan) if name == "y" else None
    assert run([*arguments, "--json"]) == 1
    captured = capsys.readouterr()
    records = json.loads(captured.out)
    assert len(records) == 38
    assert not any(record["passed"] for record in records)
    assert captured.err == "mk: 38 of 38 verifications failed\n"


def test_graph_prints_and_writes_its_topology(device: FakeDevice, tmp_path: Path, capsys: Capture) -> None:
    dot = tmp_path / "g.dot"
    assert run(["graph", "local_recompute", "--rows", "2", "--width", "3000", "--dot", str(dot)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines[:3]] == ["0:", "1:", "2:"]
    assert lines[3] == "audit: as declared"
    assert dot.read_text().count("->") == 2


def test_a_graph_that_is_not_as_declared_is_a_bad_verdict(device: FakeDevice, capsys: Capture) -> None:
    device.read_back = lambda topology: replace(topology, edges=())
    assert run(["graph", "local_recompute", "--rows", "2", "--width", "3000", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["faults"] == ["edge 0 -> 1 is missing", "edge 1 -> 2 is missing"]
    assert captured.err.startswith("mk: the graph of local_recompute is not as declared: edge 0 -> 1 is missing")


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("command", ["bench", "verify", "graph"])
def test_a_row_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    small = FakeDevice(sm_count=1, blocks_per_sm=1)
    monkeypatch.setattr("megakernel.device.choose.open_device", lambda *_, **__: small)
    monkeypatch.chdir(tmp_path)
    variant = ["--variant", "row_retained", *QUICK] if command == "bench" else ["row_retained"]
    variant += ["--width", "40000"]  # more than one tile, however large
    assert run([command, *variant]) == 2


@pytest.mark.parametrize("command", ["bench", "verify", "graph"])
def test_on_a_device_without_frozen_configurations_it_is_said_once(
    device: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, command: str
) -> None:
    device.facts = replace(device.facts, name="Fake GPU")
    monkeypatch.chdir(tmp_path)
    options = QUICK if command == "bench" else QUICK[:4]
    name = ["--variant", "retained"] if command == "bench" else ["retained"]
    assert run([command, *name, *options]) == 0
    assert capsys.readouterr().err == (
        "no frozen configuration for Fake GPU with 132 SMs: taking the nearest that fit, of NVIDIA H200 (132 SMs); "
        "mk tune finds its own\n"
    )


def test_every_command_takes_its_configurations_from_the_table_given(
    device: FakeDevice, tmp_path: Path, capsys: Capture
) -> None:
    chosen = {"retained": Configuration(512, 8192), "local1": Configuration(1024, 8192)}
    mine = Entry("NVIDIA H200", 132, 16, 3000, "a test", chosen, "local1", "retained")
    (tmp_path / "mine.toml").write_text(to_toml([mine]))
    out = tmp_path / "a.h5"
    arguments = ["bench", "--variant", "retained", *QUICK, "--rows", "16", "--out", str(out)]
    assert run([*arguments, "--frozen", str(tmp_path / "mine.toml")]) == 0
    taken = {s.configuration for s in load(out).series if (s.variant, s.problem.rows) == ("retained", 16)}
    assert taken == {"512x8192"}
    capsys.readouterr()
    mine_too = ["--frozen", str(tmp_path / "mine.toml")]
    configurations = set()
    device.before_submit = lambda executable: configurations.add(str(executable.plan.configuration))
    for command in ("verify", "graph"):
        capsys.readouterr()
        assert run([command, "retained", "--rows", "16", "--width", "3000", *mine_too]) == 0
    assert "retained<512, 8192" in capsys.readouterr().out
    assert configurations == {"512x8192"}
    for words in (["occupancy", "retained", "--device", "h200", "--rows", "16"], ["compile", "retained"]):
        assert run([*words, *mine_too, "--json"]) == 0
        assert "retained<512, 8192" in capsys.readouterr().out
        assert run([*words, "--frozen", str(tmp_path / "none.toml")]) == 2
    assert run(["bench", "--frozen", str(tmp_path / "none.toml")]) == 2


def test_bench_measures_evicted_where_it_is_asked_to(device: FakeDevice, tmp_path: Path) -> None:
    device.facts = replace(device.facts, l2_bytes=2**20)
    out = tmp_path / "a.h5"
    assert run(["bench", "--variant", "retained", *QUICK, "--submission", "graph", "--evicted", "--out", str(out)]) == 0
    assert [(s.variant, s.cache, len(s.rounds)) for s in load(out).series] == [
        *((name, "warm", 2) for name in ("empty", "copy", "retained")),
        *((name, "evicted", 15) for name in ("empty", "copy", "retained")),
    ]


def test_show_prints_a_stored_session(tmp_path: Path, capsys: Capture) -> None:
    path = write_session(tmp_path / "a.h5", {"copy": [4.0, 4.0], "v": [8.0, 8.0]})
    assert run(["show", str(path)]) == 0
    assert " v " in capsys.readouterr().out
    assert run(["show", str(path), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert list(records[0]) == FIELDS
    assert records[-1]["over_copy"] == 2.0


def test_show_reads_an_interrupted_session(tmp_path: Path, capsys: Capture) -> None:
    partial = write_session(tmp_path / "a.h5", {"v": [8.0]}, complete=False)
    assert run(["show", str(partial)]) == 0
    assert "INCOMPLETE" in capsys.readouterr().out


def test_show_refuses_a_session_without_a_finished_round(tmp_path: Path, capsys: Capture) -> None:
    # An empty table, or one of nan, would look like a result.
    writer = SessionWriter(tmp_path / "a.h5")
    writer.write_header(header())
    writer.interrupt("cuInit failed")
    writer.finish()
    assert run(["show", str(tmp_path / "a.h5")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"mk: {tmp_path}/a.h5 holds no finished round: cuInit failed\n"


@pytest.mark.parametrize("content", [None, b"", b"not hdf5"])
def test_show_refuses_what_is_no_session_in_one_line(tmp_path: Path, capsys: Capture, content: bytes | None) -> None:
    path = tmp_path / "a.h5"
    if content is not None:
        path.write_bytes(content)
    assert run(["show", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"mk: {path}")
    assert captured.err.count("\n") == 1


BAD_REQUESTS = [
    (["bench", "--rows", "0"], "--rows"),
    (["bench", "--rows", "-3"], "--rows"),
    (["bench", "--rows", "1.5"], "--rows"),
    (["bench", "--rows", "2147483648"], "rows is 2147483648"),
    (["bench", "--width", "0"], "--width"),
    (["bench", "--width", "2147483648"], "--width"),
    (["bench", "--rounds", "0"], "--rounds"),
    (["bench", "--singles", "0"], "--singles"),
    (["bench", "--batch", "-1"], "--batch"),
    (["bench", "--warmups", "-1"], "--warmups"),
    (["bench", "--submission", "stream"], "--submission"),
    (["session"], "Missing option '--out'"),
    (["session", "--out", "a.h5", "--rounds", "0"], "--rounds"),
    (["session", "--out", "a.h5", "--rows", "0"], "--rows"),
    (["session", "--out", "a.h5", "--seed", "9223372036854775808"], "seed is 9223372036854775808"),
    (["session", "--out", "a.h5", "--frozen", "none.toml"], "none.toml: no such file"),
    (["session", "--out", "a.h5", "--variant", "fused"], "unknown variant 'fused'"),
    (["tune", "--rows", "-1"], "--rows"),
    (["tune", "--frozen", "none.toml"], "none.toml: no such file"),
    (["freeze", "--check", "none.json"], "none.json: no such file (mk freeze writes one)"),
    (["bench", "--watchdog", "0"], "watchdog is 0.0 s"),
    (["bench", "--watchdog", "inf"], "watchdog is inf s"),
    (["bench", "--seed", "9223372036854775808"], "seed is 9223372036854775808"),
    (["bench", "--variant", "fused"], "unknown variant 'fused': choose from empty, copy, "),
    (["bench", "--variant", "none.py:V"], "none.py: no such file"),
    *(
        ([command, "--eps", eps], f"eps is {float(eps)}: give a positive finite number that float32 can hold")
        for command in ("bench", "verify")
        for eps in ("nan", "-1", "0", "inf", "1e-60")
    ),
    (["verify", "--watchdog", "-1"], "watchdog is -1.0 s"),
    (["verify", "fused"], "unknown variant 'fused'"),
    (["verify", "--configuration", "junk"], "'junk' is not THREADSxTILE, such as 256x4096"),
    (["verify", "--configuration", "256x"], "'256x' is not THREADSxTILE"),
    (["verify", "--configuration", "-256x4096"], "'-256x4096' is not THREADSxTILE"),
    (["verify", "--configuration", "100x4000"], "threads is 100: give a multiple of 32 up to 1024"),
    (["verify", "--configuration", "256x1000"], "tile is 1000: give a multiple of 1024 (4 x threads)"),
    (["graph", "fused"], "unknown variant 'fused'"),
    (["compile", "--arch", "sm_999"], "architecture 'sm_999' is not one that NVRTC"),
    (["compile", "--arch", "compute_90"], "architecture 'compute_90' is not one that NVRTC"),
    (["graph"], "Missing argument 'VARIANT'"),
    (["nonsense"], "nonsense"),
    (["bench", "--nonsense"], "--nonsense"),
]


@pytest.mark.usefixtures("no_device")
@pytest.mark.parametrize(("arguments", "message"), BAD_REQUESTS, ids=lambda value: " ".join(value)[:40])
def test_a_bad_request_is_refused_with_one_clear_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    *notices, line = captured.err.splitlines()  # such as which package is not there
    assert line.startswith("mk: ")
    assert message in line
    assert not any(notice.startswith(("mk: ", "Usage", "Try")) for notice in notices)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("device")
def test_an_unknown_fixture_is_refused_with_the_known_ones(capsys: Capture) -> None:
    assert run(["verify", "retained", "--rows", "1", "--width", "64", "--fixture", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("mk: unknown fixture 'nothing': choose from timing, zeros, ")


def test_without_arguments_the_help_is_shown(capsys: Capture) -> None:
    run([])
    captured = capsys.readouterr()
    assert "bench" in captured.out + captured.err
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mk ")


@pytest.mark.parametrize(
    "command",
    [[], ["bench"], ["tune"], ["freeze"], ["session"], ["show"], ["compile"], ["occupancy"], ["verify"], ["graph"]],
)
def test_every_command_has_a_help(command: list[str], capsys: Capture) -> None:
    assert run([*command, "--help"]) == 0
    assert "Usage: mk" in capsys.readouterr().out


def test_compile_needs_no_gpu_and_keeps_cubins(tmp_path: Path, capsys: Capture) -> None:
    keep = tmp_path / "cubins"
    assert run(["compile", "copy", "row_retained", "--width", "50257", "--json", "--keep", str(keep)]) == 0
    records = json.loads(capsys.readouterr().out)
    frozen = shipped().configurations(CATALOGUE["row_retained"], ())
    assert [record["variant"] for record in records] == ["copy", *["row_retained"] * len(frozen)]
    assert records[1]["name"] == f"row_retained<{frozen[0].threads}, {frozen[0].tile}, Shape::unaligned>"
    assert all(record["registers"] > 0 and record["arch"] == "sm_90" for record in records)
    assert {path.read_bytes()[:4] for path in keep.glob("*.cubin")} == {b"\x7fELF"}
    assert len(list(keep.glob("*.cubin"))) == 1 + len(frozen)
    assert all(b".target sm_90" in path.read_bytes() for path in keep.glob("*.ptx"))
    assert len(list(keep.glob("*.ptx"))) == 1 + len(frozen)
    assert run(["compile", "empty"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "mk: interrupted\n"),
        (MissingError("no CUDA driver"), 2, "mk: no CUDA driver\n"),
        (OSError(28, "No space left on device"), 2, "mk: [Errno 28] No space left on device\n"),
        (ImportError("No module named 'h5py'"), 2, "mk: a package is missing or broken: No module named 'h5py'\n"),
    ],
)
def test_errors_become_exit_codes_in_one_place(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, error: BaseException, code: int, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("megakernel.device.choose.open_device", fail)
    assert run(["verify"]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", message)


def test_a_bug_is_one_line_that_says_so_and_where(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("megakernel.device.choose.open_device", fail)
    assert run(["verify"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("mk: internal error at test_cli.py:")
    assert message.endswith("ZeroDivisionError: two lines\n")
