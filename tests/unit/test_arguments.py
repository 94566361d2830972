"""Packed arguments: the bits that a kernel reads, for as long as the object lives."""

import gc
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megakernel.device.arguments import PackedArguments, host_bits
from megakernel.record.plan import Argument, Launch, Pointer, Value

LAUNCH = Launch("k", 1, 32, 0, False, (), 0, 1)


def bits(*arguments: Argument, **addresses: int) -> tuple[int, ...]:
    return PackedArguments(replace(LAUNCH, arguments=arguments), addresses).bits


@pytest.mark.parametrize("value", [1, 1.0, 1e-5, 0.1, 2**24 + 1, np.float64(0.1), np.float32(0.1)])
def test_a_float_arrives_as_float32_whatever_python_type_came_in(value: float) -> None:
    # Packed as an integer or a double, eps = 1 would arrive as 1.4e-45.
    assert bits(Value("eps", "float32", value)) == (struct.unpack("<I", struct.pack("<f", value))[0],)


@pytest.mark.parametrize("value", [1, 50_257, 131_072, 2**31 - 1, 2**32 - 1])
def test_a_uint32_arrives_whole_also_when_given_as_a_float(value: int) -> None:
    assert bits(Value("width", "uint32", value), Value("width", "uint32", float(value))) == (value, value)


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**32 - 1))
def test_a_divisor_carries_the_reciprocal_that_divides_exactly(divisor: int, dividend: int) -> None:
    (packed,) = bits(Value("tiles", "divisor", divisor))
    value, reciprocal = packed & 0xFFFF_FFFF, packed >> 32
    assert (value, reciprocal) == (divisor, (2**32 - 1) // divisor)
    quotient = dividend * reciprocal >> 32  # as TileCount::divide in cuda/tile.cuh
    quotient += dividend - quotient * value >= value
    assert quotient == dividend // divisor


def test_a_pointer_is_the_address_plus_the_offset_in_64_bits() -> None:
    found = bits(Pointer("x", 2**33 + 4), Pointer("y", 0), x=0x7F00_0000_0000, y=2**48 - 256)
    assert found == (0x7F00_0000_0000 + 2**33 + 4, 2**48 - 256)


def test_sizes_are_those_of_the_declared_types() -> None:
    arguments = (
        Pointer("x", 0),
        Value("width", "uint32", 1),
        Value("tiles", "divisor", 1),
        Value("eps", "float32", 1),
    )
    assert PackedArguments(replace(LAUNCH, arguments=arguments), {"x": 8}).sizes == (8, 4, 8, 4)


def test_a_kernel_without_arguments_can_be_packed() -> None:
    packed = PackedArguments(LAUNCH, {})
    assert packed.bits == packed.sizes == ()
    assert packed.pointers_address


def test_the_driver_finds_each_argument_through_its_pointer() -> None:
    packed = PackedArguments(replace(LAUNCH, arguments=(Pointer("x", 4), Value("eps", "float32", 0.5))), {"x": 96})
    first, second = (host_bits(packed.pointers_address + 8 * i, 8) for i in range(2))
    assert host_bits(first, 8) == 100
    assert host_bits(second, 4) == 0x3F00_0000


def test_packed_memory_survives_collection_and_new_allocations() -> None:
    # A graph's nodes point at it long after the function that built them has returned.
    def build(n: int) -> PackedArguments:
        arguments = (Pointer("x", n), Value("width", "uint32", n), Value("eps", "float32", n))
        return PackedArguments(replace(LAUNCH, arguments=arguments), {"x": n << 32})

    packed = [build(n) for n in range(200)]
    before = [p.bits for p in packed]
    gc.collect()
    rubbish = [np.full(8 * k, 0xA5, np.uint8) for k in range(1, 400)]
    assert [p.bits for p in packed] == before
    assert before[7] == ((7 << 32) + 7, 7, struct.unpack("<I", struct.pack("<f", 7))[0])
    assert rubbish
