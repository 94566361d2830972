"""What verification says of an edited kernel."""

from megakernel.device.emulator import Emulator
from megakernel.device.face import Device
from megakernel.operator.contract import Problem
from megakernel.record.plan import Submission
from megakernel.record.verification import Verification
from megakernel.run.prepare import KernelStore, Operands, prepare
from megakernel.run.verify import Inputs, verify
from megakernel.variants.catalogue import CATALOGUE
from tests.emulated.checking import EMULATED
from tests.host_only import HostOnly
from tests.wrong.fault import Setting


def emulator_for(
    setting: Setting, seed: int, weak_stores: bool | None = None, *, for_host_only: bool = False
) -> Emulator:
    """The device of a setting; ``for_host_only`` does not ask whether NVRTC takes the kernel too."""
    weak = setting.weak_stores if weak_stores is None else weak_stores
    device = HostOnly if for_host_only else Emulator
    return device(seed=seed, weak_stores=weak, time_limit_s=setting.time_limit_s)


def verdict(device: Device, store: KernelStore, setting: Setting, submission: Submission = "direct") -> Verification:
    """Verifies the setting's variant with the store's sources; on the emulator, without the libraries it calls."""
    variants = EMULATED if isinstance(device, Emulator) else CATALOGUE
    problem = Problem(setting.rows, setting.width)
    inputs = Inputs.of(setting.fixture, problem)
    with Operands(device, problem) as operands:
        inputs.load(operands)
        with (
            prepare(device, store, variants[setting.variant], operands, setting.configuration) as prepared,
            prepared.executable(submission) as executable,
        ):
            return verify(prepared, executable, inputs)
