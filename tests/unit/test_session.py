"""A whole session on a fake device: verify, shuffled rounds, verify again, one file."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.unit.fakes import FACTS, FakeDevice, FakeExecutable

from megakernel.errors import CompileError, DeviceError, PlanError
from megakernel.record.facts import DeviceState
from megakernel.record.plan import SUBMISSIONS, Plan, Submission
from megakernel.record.protocol import METRICS, SESSION, Protocol
from megakernel.record.reader import load
from megakernel.record.session import Freeze, Session, StandIns
from megakernel.record.writer import SessionWriter
from megakernel.report.summary import summarise
from megakernel.run.evict import sweep_problem
from megakernel.run.session import Outcome, Request, run_session
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import Configuration
from megakernel.variants.frozen import Entry, FrozenTable

PROTOCOL = Protocol(rounds=3, warmups=1, singles=2, batch=2, order_seed=5, pilot_repeats=2)
VARIANTS = ("empty", "copy", "local_recompute", "row_retained")


def request(
    variants: tuple[str, ...] = VARIANTS,
    rows: tuple[int, ...] = (2,),
    submissions: tuple[Submission, ...] = SUBMISSIONS,
    protocol: Protocol = PROTOCOL,
) -> Request:
    return Request(tuple(CATALOGUE[name] for name in variants), rows, 3000, 1e-5, submissions, protocol)


def measured(path: Path, device: FakeDevice, asked: Request) -> tuple[Outcome, Session]:
    writer = SessionWriter(path)
    outcome = run_session(device, asked, writer)
    writer.finish()
    return outcome, load(path)


def order_of(session: Session) -> list[list[tuple[str, str]]]:
    """The subjects of each round, in the order in which they were timed."""
    return [
        [name for _, name in sorted((int(s.position[r]), (s.variant, s.submission)) for s in session.series)]
        for r in range(len(session.series[0].rounds))
    ]


def test_every_variant_and_submission_is_timed_in_every_round(tmp_path: Path) -> None:
    device = FakeDevice()
    outcome, session = measured(tmp_path / "a.h5", device, request())
    assert outcome.failures == ()
    assert session.complete
    assert {(s.variant, s.submission) for s in session.series} == {(v, s) for v in VARIANTS for s in SUBMISSIONS}
    for series in session.series:
        assert series.rounds.tolist() == [0, 1, 2]
        assert series.singles_ns.shape == (3, 2)
        assert (series.singles_ns > 0).all()
        assert series.event_ns.tolist() == [2000, 2000, 2000]  # two invocations of the fake's microsecond
        assert series.verified_before
        assert series.verified_after
    assert len(summarise(session)) == len(session.series) * len(METRICS)
    assert all(buffer.closed for buffer in device.buffers)
    assert all(module.closed for module in device.modules)


def test_each_round_has_its_own_order_and_the_seed_repeats_it(tmp_path: Path) -> None:
    protocol = Protocol(rounds=5, warmups=0, singles=1, batch=1, order_seed=5, pilot_repeats=0)
    first = order_of(measured(tmp_path / "a.h5", FakeDevice(), request(protocol=protocol))[1])
    again = order_of(measured(tmp_path / "b.h5", FakeDevice(), request(protocol=protocol))[1])
    other = Protocol(rounds=5, warmups=0, singles=1, batch=1, order_seed=6, pilot_repeats=0)
    different = order_of(measured(tmp_path / "c.h5", FakeDevice(), request(protocol=other))[1])
    assert first == again != different
    assert len({tuple(order) for order in first}) > 3
    assert all(sorted(order) == sorted(first[0]) for order in first)


def test_the_stored_order_is_the_order_of_submission(tmp_path: Path) -> None:
    device = FakeDevice()
    protocol = Protocol(rounds=4, warmups=0, singles=1, batch=1, pilot_repeats=0)
    _, session = measured(tmp_path / "a.h5", device, request(protocol=protocol))
    timed = device.submissions[-(4 * 8 * 2 + 8) : -8]  # the last 8 verify again
    assert timed[::2] == timed[1::2]
    assert timed[::2] == [subject for order in order_of(session) for subject in order]


def test_shapes_follow_one_another_in_the_order_given(tmp_path: Path) -> None:
    _, session = measured(tmp_path / "a.h5", FakeDevice(), request(("row_retained",), rows=(4, 1, 2)))
    assert [s.problem.rows for s in session.series] == [4, 4, 1, 1, 2, 2]


def test_the_fastest_copy_is_taken_and_the_others_figures_are_kept(tmp_path: Path) -> None:
    device = FakeDevice()
    fastest = CATALOGUE["copy"].configurations[3]
    device.cost_ns = lambda plan: 10 if plan.configuration == fastest else 90
    _, session = measured(tmp_path / "a.h5", device, request(("copy",)))
    assert {s.configuration for s in session.series} == {str(fastest)}
    with h5py.File(tmp_path / "a.h5") as file:
        pilot = file["shapes/0000/pilot"]
        assert [name.decode() for name in pilot["configuration"]] == [
            str(configuration) for configuration in CATALOGUE["copy"].configurations
        ]
        np.testing.assert_array_equal(pilot["event_interval"][()], [[180, 180, 180, 20, 180, 180, 180]] * 2)
        assert pilot["event_interval"].attrs["invocations"] == 2
        assert pilot["event_interval"].attrs["units"] == "ns"


def test_a_wrong_copy_is_never_the_fastest(tmp_path: Path) -> None:
    device = FakeDevice()
    first, *_, wrong = CATALOGUE["copy"].configurations
    running: list[object] = []

    def cost_ns(plan: Plan) -> int:
        running[:] = [plan.configuration]
        return 10 if plan.configuration == wrong else 90

    device.cost_ns = cost_ns
    device.tamper = lambda variant, name, values: values.fill(0) if running == [wrong] else None
    outcome, session = measured(tmp_path / "a.h5", device, request(("copy",)))
    assert not outcome.failures
    assert {s.configuration for s in session.series} == {str(first)}
    with h5py.File(tmp_path / "a.h5") as file:
        assert str(wrong).encode() not in list(file["shapes/0000/pilot/configuration"][()])
    device.tamper = lambda variant, name, values: values.fill(0)
    outcome, session = measured(tmp_path / "b.h5", device, request(("copy",)))
    assert (len(outcome.failures), session.series) == (2, ())


def test_a_wrong_variant_is_not_timed_and_the_others_are(tmp_path: Path) -> None:
    device = FakeDevice()
    device.tamper = lambda variant, name, values: values.fill(0) if (variant, name) == ("row_retained", "y") else None
    outcome, session = measured(tmp_path / "a.h5", device, request())
    assert {s.variant for s in session.series} == {"empty", "copy", "local_recompute"}
    assert all(len(s.rounds) == 3 for s in session.series)
    assert outcome.failures
    assert all(line.startswith("row_retained, 2 rows, ") for line in outcome.failures)
    with h5py.File(tmp_path / "a.h5") as file:
        refused = file["shapes/0000/refused"]
        assert [(e.attrs["variant"], e.attrs["submission"]) for e in refused.values()] == [
            ("row_retained", "direct"),
            ("row_retained", "graph"),
        ]
        assert "y.accuracy" in refused["0000/reason"][()].decode()


def test_a_variant_that_does_not_fit_is_refused_and_the_others_are_timed(tmp_path: Path) -> None:
    device = FakeDevice(blocks_per_sm=lambda name, threads, shared: 0 if name.startswith("row_retained") else 4)
    outcome, session = measured(tmp_path / "a.h5", device, request())
    assert {s.variant for s in session.series} == {"empty", "copy", "local_recompute"}
    assert outcome.failures == ()
    (refusal,) = outcome.refused
    assert "not one block of row_retained" in refusal


@pytest.mark.parametrize("error", [PlanError("it does not fit"), CompileError("local.cu did not compile")])
def test_what_cannot_be_built_is_refused_with_its_reason(tmp_path: Path, error: Exception) -> None:
    device = FakeDevice()

    def refuse(source: Path) -> None:
        if source.name == "local.cu":
            raise error

    device.before_build = refuse
    outcome, session = measured(tmp_path / "a.h5", device, request(("local_recompute", "retained")))
    assert {s.variant for s in session.series} == {"retained"}
    assert outcome.failures == ()
    assert outcome.refused == (f"local_recompute, 2 rows: {error}",)
    with h5py.File(tmp_path / "a.h5") as file:
        (entry,) = file["shapes/0000/refused"].values()
        assert (entry.attrs["variant"], entry["reason"][()].decode()) == ("local_recompute", str(error))


def test_a_device_that_is_lost_before_anything_is_measured_leaves_no_file(tmp_path: Path) -> None:
    device = FakeDevice()
    device.before_submit = After(1, LOST)
    writer = SessionWriter(tmp_path / "a.h5")
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
        run_session(device, request(("local_recompute",)), writer)
    assert not writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_turns_wrong_while_being_timed_is_marked(tmp_path: Path) -> None:
    device = FakeDevice()

    def wear_out(variant: str, name: str, values: np.ndarray) -> None:
        if variant == "row_retained" and name == "y" and len(device.submissions) > 60:
            values[0, 0] = 0

    device.tamper = wear_out
    outcome, session = measured(tmp_path / "a.h5", device, request(("row_retained", "local_recompute")))
    assert {(s.variant, s.verified_before, s.verified_after) for s in session.series} == {
        ("row_retained", True, False),
        ("local_recompute", True, True),
    }
    assert outcome.failures


class After:
    """Raises at one of the calls that time."""

    def __init__(self, submission: int, error: BaseException) -> None:
        self.submission, self.error = submission, error

    def __call__(self, executable: FakeExecutable) -> None:
        if len(executable.device.submissions) == self.submission:
            raise self.error


LOST = DeviceError("cuLaunchKernel of k with 5 blocks failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)")


@pytest.fixture(scope="module")
def submissions_of_a_session(tmp_path_factory: pytest.TempPathFactory) -> int:
    device = FakeDevice()
    measured(tmp_path_factory.mktemp("counting") / "a.h5", device, request())
    return len(device.submissions)


@pytest.fixture
def interrupted(tmp_path: Path, submissions_of_a_session: int) -> Callable[[BaseException], Session]:
    """interrupted(error): the file of a session in whose last round the error came up."""

    def run(error: BaseException) -> Session:
        device = FakeDevice()
        device.before_submit = After(submissions_of_a_session - 8 - 3, error)
        writer = SessionWriter(tmp_path / "a.h5")
        with pytest.raises(type(error)) as caught:
            run_session(device, request(), writer)
        assert caught.value is error
        assert writer.close()
        assert not (tmp_path / "a.h5").exists()
        return load(tmp_path / "a.h5.partial")

    return run


def test_a_device_error_keeps_earlier_samples_and_names_the_call(
    interrupted: Callable[[BaseException], Session],
) -> None:
    session = interrupted(LOST)
    assert not session.complete
    assert session.interruption == str(LOST)
    assert {len(s.rounds) for s in session.series} == {2, 3}  # the last round is there in part
    assert all(s.singles_ns.shape == (len(s.rounds), 2) for s in session.series)
    assert {s.verified_after for s in session.series} == {None}


def test_ctrl_c_keeps_earlier_samples(interrupted: Callable[[BaseException], Session]) -> None:
    session = interrupted(KeyboardInterrupt())
    assert not session.complete
    assert session.interruption == "interrupted"
    assert all(len(s.rounds) >= 2 for s in session.series)


@pytest.mark.parametrize("text", ["a\udcff/path", "a\0b", "x" * 200_000])
def test_any_error_message_is_kept_and_never_hides_the_error(
    interrupted: Callable[[BaseException], Session], text: str
) -> None:
    session = interrupted(DeviceError(text))
    assert session.interruption.startswith(text[0])
    assert len(session.interruption) >= len(text)


def test_what_could_not_be_read_of_the_device_is_missing_and_stops_nothing(tmp_path: Path) -> None:
    device = FakeDevice()
    device.state = DeviceState()
    outcome, session = measured(tmp_path / "a.h5", device, request(("row_retained",)))
    assert outcome.failures == ()
    assert session.throttled_rounds == 0
    with h5py.File(tmp_path / "a.h5") as file:
        assert np.isnan(file["shapes/0000/sm_clock_mhz"][()]).all()


def test_throttled_rounds_are_kept_and_counted(tmp_path: Path) -> None:
    device = FakeDevice()
    device.state = DeviceState(throttle_reasons=0x4 | 0x1)
    _, session = measured(tmp_path / "a.h5", device, request(("row_retained",)))
    assert session.throttled_rounds == 3
    assert all(len(s.rounds) == 3 for s in session.series)


def test_the_file_tells_what_an_audit_needs(tmp_path: Path) -> None:
    measured(tmp_path / "a.h5", FakeDevice(), request(("local_recompute",)))
    with h5py.File(tmp_path / "a.h5") as file:
        assert file.attrs["fixture"] == "timing"
        assert len(file["shapes/0000"].attrs["x_sha256"]) == 64
        sources = [path.decode() for path in file["kernel_sources/path"]]
        assert {"local.cu", "tile.cuh", "primitives.cuh"} <= set(sources)
        assert "y" in file["tolerances"]
        assert "command" in file["environment"]
        graph = next(s for s in file["series"].values() if s.attrs["submission"] == "graph")
        assert len(json.loads(graph["graph"][()])["nodes"]) == graph.attrs["launches"] == 3
        assert json.loads(graph["plan"][()])["variant"] == "local_recompute"
        assert dict(graph["graph_timings"].attrs)["upload_ns"] == 2
        assert len(graph["resources"]) == 3
        after = graph["verified_after"]
        assert set(after["intermediates"]) == {"tile_square_sums", "tile_maxima", "tile_exponential_sums"}
        holder = file[f"series/{after.attrs['output_row_series']:04d}/verified_after"]
        assert holder["output_row"].shape == (3000,)
        assert holder.attrs["output_sha256"] == after.attrs["output_sha256"]


def test_progress_counts_every_step(tmp_path: Path) -> None:
    steps: list[tuple[int, int, str]] = []
    writer = SessionWriter(tmp_path / "a.h5")
    run_session(
        FakeDevice(),
        request(("row_retained",), rows=(1, 2)),
        writer,
        lambda done, total, what: steps.append((done, total, what)),
    )
    writer.close()
    assert [done for done, _, _ in steps] == list(range(10))
    assert {total for _, total, _ in steps} == {10}
    assert steps[0][2] == "1 x 3000: verifying"
    assert steps[-1][2] == "2 x 3000: verifying again"


EVICTED = replace(PROTOCOL, evicted_rounds=2, evicted_singles=3, evicted_bytes=2**20, evicted_l2s=0)


def test_evicted_series_stand_beside_the_warm_ones(tmp_path: Path) -> None:
    device = FakeDevice()
    device.cost_ns = lambda plan: 500 if plan.variant == "sweep" else 1000
    outcome, session = measured(tmp_path / "a.h5", device, request(protocol=EVICTED))
    assert outcome.failures == ()
    warm, evicted = ([s for s in session.series if s.cache == cache] for cache in ("warm", "evicted"))
    assert [(s.variant, s.submission) for s in warm] == [(s.variant, s.submission) for s in evicted]
    for series in evicted:
        assert series.rounds.tolist() == [0, 1]
        assert series.singles_ns.shape == series.single_event_ns.shape == (2, 3)
        assert (series.single_event_ns == 1000).all()
        assert (series.singles_ns > 0).all()
        assert len(series.enqueue_ns) == len(series.batch_ns) == len(series.event_ns) == 0
        assert series.verified_before
        assert series.verified_after
    for series in warm:
        assert series.rounds.tolist() == [0, 1, 2]
        assert series.single_event_ns.size == 0
    assert {len(set(order)) for order in order_of(replace(session, series=tuple(evicted)))} == {len(evicted)}
    assert all(buffer.closed for buffer in device.buffers)


def test_a_sweep_comes_before_each_evicted_invocation_and_no_warm_one(tmp_path: Path) -> None:
    device = FakeDevice()
    measured(tmp_path / "a.h5", device, request(("retained",), submissions=("graph",), protocol=EVICTED))
    names = [name for name, _ in device.submissions]
    first = names.index("sweep")
    assert names[first : first + 24] == ["sweep", "retained"] * 12  # 2 rounds of 3 by the host and 3 by events
    assert "sweep" not in names[:first]
    assert names[first + 24 :] == ["retained"]  # verified once more


def test_a_sweep_reads_at_least_what_the_protocol_says_and_twice_the_l2() -> None:
    small, large = replace(FACTS, l2_bytes=50 * 2**20), replace(FACTS, l2_bytes=200 * 2**20)
    for facts, least in ((small, 256 * 2**20), (large, 400 * 2**20)):
        problem = sweep_problem(Protocol(), facts)
        assert least <= 4 * problem.elements < least + 4 * problem.width
    assert SESSION.evicted_rounds == 15


def test_one_generator_shuffles_warm_and_evicted_rounds(tmp_path: Path) -> None:
    # The audit repeats the order from the seed.
    _, session = measured(tmp_path / "a.h5", FakeDevice(), request(rows=(1, 2), protocol=EVICTED))
    shuffler = random.Random(EVICTED.order_seed)
    for rows in (1, 2):
        for cache, rounds in (("warm", 3), ("evicted", 2)):
            mine = [s for s in session.series if (s.problem.rows, s.cache) == (rows, cache)]
            for number in range(rounds):
                order = list(range(len(mine)))
                shuffler.shuffle(order)
                assert [order.index(i) for i in range(len(mine))] == [int(s.position[number]) for s in mine]


def test_throttled_evicted_rounds_are_counted_too(tmp_path: Path) -> None:
    device = FakeDevice()
    device.state = DeviceState(throttle_reasons=0x8)
    _, session = measured(tmp_path / "a.h5", device, request(("retained",), protocol=EVICTED))
    assert session.throttled_rounds == 5
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["shapes/0000/throttled"].shape == (3,)
        assert file["shapes/0000/evicted/throttled"].shape == (2,)


def test_the_frozen_configuration_is_measured_and_what_stands_for_the_shape_is_stored(tmp_path: Path) -> None:
    chosen = Configuration(512, 8192)
    entry = Entry("Fake GPU", 132, 2, 3000, "a test", {"retained": chosen, "local1": chosen}, "local1", "retained")
    asked = replace(request(("retained",)), frozen=FrozenTable((entry,), "the table"))
    _, session = measured(tmp_path / "a.h5", FakeDevice(), asked)
    assert {s.configuration for s in session.series} == {"512x8192"}
    assert session.stand_ins == {2: StandIns("local1", "retained")}
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["configurations"][()] == b"the table"
    _, other = measured(tmp_path / "b.h5", FakeDevice(), replace(asked, rows=(1,)))
    assert other.stand_ins == {}  # the pilot has not chosen for one row


@pytest.mark.parametrize(
    ("freeze", "state"),
    [(Freeze(), "none"), (Freeze("{}"), "as frozen"), (Freeze("{}", ("a differs", "b\udcff is new")), "changed")],
)
def test_the_manifest_and_what_is_not_as_frozen_are_stored(tmp_path: Path, freeze: Freeze, state: str) -> None:
    _, session = measured(tmp_path / "a.h5", FakeDevice(), replace(request(("retained",)), freeze=freeze))
    assert session.freeze_state == state
    assert session.changes == freeze.changes
