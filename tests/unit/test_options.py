"""Which variants a command means."""

import pytest

from megakernel.cli.options import chosen_variants, with_floors
from megakernel.errors import UsageError
from megakernel.variants.catalogue import CATALOGUE, COPY, EMPTY


@pytest.mark.parametrize("names", [None, []])
def test_without_a_name_all_are_meant_but_those_that_call_a_library(names: list[str] | None) -> None:
    chosen = {variant.name for variant in chosen_variants(names)}
    assert set(CATALOGUE) - chosen == {"rms_cudnn"}


def test_a_name_means_its_variant_once_a_librarys_too() -> None:
    assert chosen_variants(["rms_cudnn", "copy", "rms_cudnn"]) == (CATALOGUE["rms_cudnn"], COPY)
    assert with_floors(chosen_variants(["copy", "local1"])) == (EMPTY, COPY, CATALOGUE["local1"])
    with pytest.raises(UsageError, match="unknown variant 'local9'"):
        chosen_variants(["local1", "local9"])
