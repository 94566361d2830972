"""A hang becomes a message and an end; work that finishes in time is left alone."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.unit.fakes import FakeBuffer, FakeDevice

from megakernel.operator.contract import Problem
from megakernel.run.prepare import KernelStore, Operands, Prepared, prepare
from megakernel.run.watchdog import Watchdog, arrived, explain
from megakernel.variants.catalogue import CATALOGUE
from megakernel.variants.declaration import ROW_BARRIER_WORDS, Configuration

MEMBERS = 4


@contextmanager
def prepared_variant(name: str = "row_retained", rows: int = 6) -> Iterator[Prepared]:
    device = FakeDevice(sm_count=MEMBERS * 3, blocks_per_sm=1)  # three rows a launch
    with (
        KernelStore(device) as store,
        Operands(device, Problem(rows, MEMBERS * 1024)) as operands,
        prepare(device, store, CATALOGUE[name], operands, Configuration(256, 1024)) as prepared,
    ):
        yield prepared


class Process:
    """Stands for what keeps samples and ends the process."""

    def __init__(self) -> None:
        self.saved: list[str] = []
        self.ended = threading.Event()
        self.codes: list[int] = []

    def save(self, message: str) -> str:
        assert not self.codes, "samples are saved before the end"
        self.saved.append(message)
        return "a.h5.partial"

    def end(self, code: int) -> None:
        self.codes.append(code)
        self.ended.set()


def set_word(prepared: Prepared, row: int, word: int) -> None:
    buffer = prepared.buffers["row_barriers"]
    assert isinstance(buffer, FakeBuffer)
    buffer.memory.view("u4")[row * ROW_BARRIER_WORDS] = word


def test_a_hang_is_reported_with_variant_launches_and_barrier_words(capsys: pytest.CaptureFixture[str]) -> None:
    process = Process()
    with prepared_variant() as prepared:
        set_word(prepared, 4, 0x8000_0003)
        guard = Watchdog(process.save, process.end).guard(prepared, 0.02)
        with guard("graph, round 7"):
            assert process.ended.wait(10)  # the hang: over when the process would have ended
    (message,) = process.saved
    assert process.codes == [2]
    assert message.splitlines() == [
        "hang: row_retained 256x1024 at 6 x 4096, graph, round 7, did not finish within 0.02 s",
        "launch 1 of 2: row_retained<256, 1024, Shape::exact>, 12 blocks of 256; "
        "no block waits at a barrier of rows 0 to 2",
        "launch 2 of 2: row_retained<256, 1024, Shape::exact>, 12 blocks of 256; "
        "row 4: 3 of 4 blocks arrived (word 0x80000003)",
    ]
    assert capsys.readouterr().err == f"mk: {message}\nthe samples so far are in a.h5.partial\n"


def test_the_process_ends_even_when_saving_fails(capsys: pytest.CaptureFixture[str]) -> None:
    process = Process()

    def fail(message: str) -> str:
        raise OSError("no space left")

    ended: list[BaseException | None] = []
    hook, threading.excepthook = threading.excepthook, lambda args: ended.append(args.exc_value)
    try:
        with prepared_variant() as prepared, Watchdog(fail, process.end).armed(prepared, "round 1", 0.02):
            assert process.ended.wait(10)
    finally:
        threading.excepthook = hook
    assert process.codes == [2]
    assert "hang: row_retained" in capsys.readouterr().err


def test_barrier_words_that_cannot_be_read_do_not_hide_the_hang(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    with prepared_variant() as prepared:
        monkeypatch.setattr(prepared.device, "peek", _broken)
        with Watchdog(process.save, process.end).armed(prepared, "round 1", 0.02):
            assert process.ended.wait(10)
    assert process.saved[0].endswith("the barrier words could not be read: cuMemcpyDtoHAsync failed")
    assert capsys.readouterr().err


def _broken(buffer: object) -> object:
    raise RuntimeError("cuMemcpyDtoHAsync failed")


def test_work_that_finishes_in_time_is_left_alone_and_costs_no_wait() -> None:
    process = Process()
    watchdog = Watchdog(process.save, process.end)
    with prepared_variant() as prepared:
        started = time.monotonic()
        for _ in range(20):
            with watchdog.armed(prepared, "round", 60):
                pass
        assert time.monotonic() - started < 5
        assert not [thread for thread in threading.enumerate() if thread.name == "watchdog"]
    assert not process.saved
    assert not process.codes


def test_an_error_disarms_the_watchdog() -> None:
    process = Process()
    with (
        prepared_variant() as prepared,
        pytest.raises(ZeroDivisionError),
        Watchdog(process.save, process.end).armed(prepared, "round", 0.05),
    ):
        raise ZeroDivisionError
    time.sleep(0.1)
    assert not process.codes


@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_arrivals_are_counted_in_whatever_order_blocks_come(members: int) -> None:
    # As RowBarrier in cuda/barriers.cuh: members add one, the leader what makes the sum flip the top bit.
    for start in (0, 0x8000_0000):
        for order in itertools.permutations(range(members)):
            word = start
            for count, member in enumerate(order, 1):
                word = (word + (0x8000_0000 - (members - 1) if member == 0 else 1)) & 0xFFFF_FFFF
                assert arrived(word, members) == (count if count < members else 0)
            assert word == start ^ 0x8000_0000


def test_many_stuck_rows_are_summed_up() -> None:
    with prepared_variant(rows=3) as prepared:
        for row in range(3):
            set_word(prepared, row, 1)
        (line,) = explain(prepared.device, prepared.plan, prepared.buffers["row_barriers"])
        assert line.count("1 of 4 blocks arrived") == 3
    device = FakeDevice()
    with (
        KernelStore(device) as store,
        Operands(device, Problem(9, 1024)) as operands,
        prepare(device, store, CATALOGUE["row_retained"], operands, Configuration(32, 128)) as prepared,
    ):
        for row in range(9):
            set_word(prepared, row, 5)
        (line,) = explain(device, prepared.plan, prepared.buffers["row_barriers"])
    assert line.endswith("row 3: 5 of 8 blocks arrived (word 0x00000005); 5 more rows wait")


def test_a_grid_wide_barrier_and_plain_launches_are_explained_without_words() -> None:
    with prepared_variant("retained", rows=3) as prepared:
        (line,) = explain(prepared.device, prepared.plan, None)
        assert line.endswith("; a grid-wide barrier (its state is the driver's own)")
    with prepared_variant("local_recompute", rows=3) as prepared:
        lines = explain(prepared.device, prepared.plan, None)
        assert [line.split(":")[0] for line in lines] == ["launch 1 of 3", "launch 2 of 3", "launch 3 of 3"]


def test_rows_that_were_not_looked_at_are_not_called_free() -> None:
    # Only the first 16,384 words are copied while a launch hangs: 512 rows.
    device = FakeDevice()
    with (
        KernelStore(device) as store,
        Operands(device, Problem(2000, 4096)) as operands,
        prepare(device, store, CATALOGUE["row_retained"], operands, Configuration(256, 1024)) as prepared,
    ):
        lines = explain(device, prepared.plan, prepared.buffers["row_barriers"])
    last = prepared.plan.launches[-1]
    assert last.first_row > 512
    assert "no block waits" not in lines[-1]
