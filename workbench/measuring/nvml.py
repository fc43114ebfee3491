"""The GPU that torch uses, as NVML knows it.

Its energy counters and the causes that slow it down are read through this.
"""

import os
from typing import Any

import torch

from workbench.measuring.gauges import Unmeasurable
from workbench.studies.text import counted

SLICE = (
    "not attributable: this is a slice of a shared GPU (MIG), and only the whole board is metered"
)


def board(device: torch.device, nvml: Any = None) -> tuple[Any, Any]:
    """The NVML binding and its handle of the board.

    The numbers of boards in torch may be others (CUDA_VISIBLE_DEVICES renumbers), so boards are
    matched by UUID, or else by PCI address.

    Args:
        device: torch's device
        nvml: by default the pynvml module; tests put a simulated one there

    Raises:
        Unmeasurable: for a slice of a board
        NVMLError: as NVML raises it
    """
    if "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        raise Unmeasurable(SLICE)
    if nvml is None:
        import pynvml  # loaded only if there is a GPU

        nvml = pynvml
    nvml.nvmlInit()
    properties: Any = torch.cuda.get_device_properties(device)
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
    except (nvml.NVMLError, AttributeError):
        pci = (
            f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:"
            f"{properties.pci_device_id:02x}.0"
        )
        handle = nvml.nvmlDeviceGetHandleByPciBusId(pci)
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except (nvml.NVMLError, AttributeError):
        return nvml, handle  # a board without MIG
    if current == nvml.NVML_DEVICE_MIG_ENABLE:
        raise Unmeasurable(SLICE)
    return nvml, handle


def disturbed(device: torch.device, nvml: Any = None) -> str:
    """Why the GPU was slower than it could be, or shared; "" if it was neither."""
    nvml, handle = board(device, nvml)
    slow = nvml.nvmlClocksEventReasonSwPowerCap | nvml.nvmlClocksEventReasonHwSlowdown
    slow |= nvml.nvmlClocksEventReasonSwThermalSlowdown
    if nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & slow:
        return "the GPU slowed down because of its temperature or its power"
    others = [p for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
    return (
        f"{counted(len(others), 'other process', 'other processes')} used the GPU" if others else ""
    )
