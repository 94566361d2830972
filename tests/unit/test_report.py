"""The analysis of one and of two sessions, as mk report prints it."""

import csv
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import h5py
import pytest
from tests.unit.reports import CHAIN, write_chain

from megakernel.cli.main import run
from megakernel.errors import RecordError, UsageError
from megakernel.report import content
from megakernel.report.analysis import analyse, frozen_pairs
from megakernel.report.rates import peak_gb_s
from megakernel.report.stand_ins import Pair

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "h200"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("two")
    return [write_chain(folder / "a.h5"), write_chain(folder / "b.h5", scale=1.1)]


def test_two_sessions_are_printed_with_their_target_penalties_and_rates(two: list[Path], capsys: Capture) -> None:
    assert run(["report", *map(str, two)]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert not re.search(r"\b(nan|inf)\b", out, re.IGNORECASE)
    line = next(line.split() for line in out.splitlines() if line.startswith("  16  row_retained"))
    # direct, graph, the two medians, p10-p90, against local fusion, event, speed-up, over copy twice, published
    assert line[2:9] == ["17.86", "14.71", "14.01", "15.41", "14.70-14.72", "-6.7", "%"]
    assert line[9:11] == ["14.71", "1.071"]
    assert "target 1.25 x event speed-up at 16 rows, the article's pair (local_recompute / row_retained): MISSED" in out
    assert "the article's pair missed it; its speed-up is not stated" in out
    assert "the sessions ran on the same device" in out
    assert "+1.05" in out  # reload the input: 1.0 and 1.1 us
    assert "isolate memory access" in out


def test_one_session_says_that_it_is_alone(tmp_path: Path, capsys: Capture) -> None:
    assert run(["report", str(write_chain(tmp_path / "a.h5", rounds=1))]) == 0
    out = capsys.readouterr().out
    assert "one session: there is no second median" in out
    assert "one round" in out
    assert not re.search(r"\bnan\b", out, re.IGNORECASE)


def test_json_and_csv_hold_the_same_documented_records(two: list[Path], capsys: Capture) -> None:
    assert run(["report", *map(str, two), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert len(records) == len(CHAIN) * 2 * 4
    assert run(["report", *map(str, two), "--csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["variant"] for line in lines] == [record["variant"] for record in records]
    assert list(lines[0]) == list(records[0])
    described = (ROOT / "docs" / "report.md").read_text()
    assert all(f"| `{name}`" in described for name in records[0])


def test_the_target_is_of_the_article_s_pair_first_and_then_of_the_pilot_s(two: list[Path]) -> None:
    analysis = analyse(two, {16: Pair("unfused", "retained")})
    article, pilot = analysis.targets
    assert (article.pair, article.met) == (Pair("local_recompute", "row_retained"), False)
    assert (pilot.pair, pilot.met) == (Pair("unfused", "retained"), True)
    lines = content.target_lines(analysis)
    assert "MISSED" in lines[0]
    assert "the pilot's pair (unfused / retained): MET, 28.36 / 15.23 us = 1.862" in lines[1]


def test_stand_ins_come_from_the_files_where_these_agree(two: list[Path]) -> None:
    plain = analyse(two).sessions[0]
    assert frozen_pairs([plain]) == {}
    chosen = SimpleNamespace(path="a.h5", stand_ins={16: Pair("local1", "retained")})
    other = SimpleNamespace(path="b.h5", stand_ins={16: Pair("local1", "row_retained"), 1: Pair("a", "b")})
    assert frozen_pairs([chosen]) == {16: Pair("local1", "retained")}  # type: ignore[list-item]
    with pytest.raises(RecordError, match=r"b\.h5: at 16 rows local1 / row_retained stands"):
        frozen_pairs([chosen, other])  # type: ignore[list-item]


def test_a_target_that_was_not_measured_is_not_met_nor_missed(tmp_path: Path) -> None:
    path = write_chain(tmp_path / "a.h5", {"copy": 8000, "row_retained": 9000})
    assert "not measured in these files" in content.target_lines(analyse([path]))[0]
    others = [  # no other shape takes its place, nor an emulated time
        write_chain(tmp_path / "b.h5", rows=(1,)),
        write_chain(tmp_path / "c.h5", width=1000),
        write_chain(tmp_path / "d.h5", kind="emulator"),
    ]
    for other in others:
        analysis = analyse([other])
        assert "not measured in these files" in content.target_lines(analysis)[0]
        assert all(rate.above_peak is None for rate in analysis.rates)


def test_throttled_rounds_are_counted_and_left_out_on_request(tmp_path: Path, capsys: Capture) -> None:
    path = write_chain(tmp_path / "a.h5", throttled=(2,))
    assert run(["report", str(path)]) == 0
    assert "1 rounds were throttled (power or temperature); they are included" in capsys.readouterr().out
    assert run(["report", str(path), "--exclude-throttled"]) == 0
    out = capsys.readouterr().out
    assert "1 throttled rounds are excluded, as asked" in out
    assert "14.00" in out  # of rounds 0 and 1 alone: 14.000 and 14.010
    whole = analyse([path]).find("row_retained", 16, "graph", "event_interval")
    kept = analyse([path], exclude_throttled=True).find("row_retained", 16, "graph", "event_interval")
    assert whole is not None
    assert kept is not None
    assert (whole.mean_ns, kept.mean_ns) == (14010, 14005)


def test_where_every_round_is_excluded_nothing_is_shown(tmp_path: Path, capsys: Capture) -> None:
    path = write_chain(tmp_path / "a.h5", throttled=(0, 1, 2))
    assert run(["report", str(path), "--exclude-throttled"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"mk: {path}: every round of empty, 16 rows, direct was throttled")


def test_sessions_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    one = write_chain(tmp_path / "a.h5")
    with pytest.raises(UsageError, match="given twice"):
        analyse([one, one])
    copied = tmp_path / "copy.h5"
    copied.write_bytes(one.read_bytes())
    with pytest.raises(UsageError, match="hold the same samples"):
        analyse([one, copied])
    other = write_chain(tmp_path / "b.h5", scale=1.1, device="Other GPU")
    with pytest.raises(RecordError, match=r"not sessions of one measurement: device name \(Fake GPU and Other GPU\)"):
        analyse([one, other])


def test_drift_is_warned_of(tmp_path: Path) -> None:
    path = write_chain(tmp_path / "a.h5", {"copy": 100, "retained": 100_000}, rounds=12)  # copy: 100 to 210 ns
    lines = content.drift_lines(analyse([path]))
    assert lines == ["DRIFT: copy, 16 rows, graph: the last third of the rounds took +69.6 % against the first"]


def test_rates_are_bytes_over_the_event_interval() -> None:
    rates = {rate.variant: rate for rate in analyse([DATA / "session-1.h5"]).rates if rate.rows == 16}
    assert "empty" not in rates
    moved = 2 * 4 * 16 * 131_072
    assert rates["copy"].declared_bytes == moved
    assert all(rate.compulsory_gb_s == pytest.approx(moved / rate.event_ns) for rate in rates.values())
    assert (rates["local_recompute"].declared_bytes or 0) > 2 * moved  # x three times, y once, and statistics


def test_a_rate_above_the_peak_is_flagged() -> None:
    rates = {(rate.variant, rate.rows): rate for rate in analyse([DATA / "session-1.h5"]).rates}
    assert rates["copy", 32].above_peak is True
    assert rates["row_retained", 64].above_peak is False
    assert peak_gb_s("NVIDIA H200") == 4800
    assert peak_gb_s("NVIDIA H100 80GB HBM3") == 3350
    assert peak_gb_s("NVIDIA H100 PCIe") == 2000
    for other in ("NVIDIA GH200 480GB", "NVIDIA GeForce RTX 4090 Laptop GPU", "unknown"):
        assert peak_gb_s(other) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--json", "--csv"], "give one of --json, --csv, --html and --figure"),
        (["--figure", "metrics"], "--figure NAME and --out FILE go together"),
        (["--out", "a.svg"], "--figure NAME and --out FILE go together"),
        (["--figure", "nonsense", "--out", "a.svg"], "unknown figure 'nonsense': choose from completion, "),
        (["--figure", "metrics", "--out", "a.h5"], "'h5' is no format for a figure"),
        (["--html", "a.h5"], "a.h5: give the page a name that ends in .html"),
    ],
)
def test_bad_requests_are_refused_and_write_nothing(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path = write_chain(tmp_path / "a.h5")
    before = path.read_bytes()
    monkeypatch.chdir(tmp_path)
    assert run(["report", "a.h5", *options]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert message in captured.err
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


def test_an_average_of_different_configurations_is_said(tmp_path: Path) -> None:
    first, second = write_chain(tmp_path / "a.h5"), write_chain(tmp_path / "b.h5", scale=1.01)
    assert not any("other configurations" in line for line in content.warnings(analyse([first, second])))
    with h5py.File(second, "r+") as file:
        for series in file["series"].values():
            if series.attrs["variant"] in ("retained", "copy"):  # of a floor each session takes the fastest
                series.attrs["tile"] = 2 * int(series.attrs["tile"])
    (line,) = [line for line in content.warnings(analyse([first, second])) if "other configurations" in line]
    assert line.startswith("retained ran in other configurations at 16 rows (256x")
