"""A stand-in for nvidia-smi, where there is no GPU: it prints what the real one prints of a node whose
figures the test chooses, in the XML of driver 550 (nvsmi_device_v12.dtd).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hangdoctor.model.gpu import Gpu


def xml(gpus: Sequence[Gpu], reasons: str = "event") -> str:
    """``nvidia-smi -q -x`` of these GPUs; `reasons`: "throttle" before driver 535."""
    shown = "".join(_gpu(gpu, reasons) for gpu in gpus)
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<timestamp>Sun Nov 22 08:52:11 2026</timestamp>
	<driver_version>550.127.05</driver_version>
	<cuda_version>12.4</cuda_version>
	<attached_gpus>{len(gpus)}</attached_gpus>
{shown}</nvidia_smi_log>
"""


def _gpu(gpu: Gpu, reasons: str) -> str:
    slowed = "".join(
        f"<clocks_{reasons}_reason_{name}>{'Active' if name in gpu.slowed else 'Not Active'}"
        f"</clocks_{reasons}_reason_{name}>"
        for name in ("gpu_idle", "sw_power_cap", "hw_thermal_slowdown", "hw_power_brake_slowdown")
    )
    processes = "".join(
        f"<process_info><pid>{pid}</pid><type>C</type><process_name>python</process_name>"
        "<used_memory>70000 MiB</used_memory></process_info>"
        for pid in gpu.pids
    )
    return f"""	<gpu id="0000{gpu.bus.upper()}.0">
		<product_name>{gpu.name}</product_name>
		<uuid>{gpu.uuid}</uuid>
		<minor_number>{gpu.index}</minor_number>
		<fb_memory_usage><total>{gpu.memory_total_mb} MiB</total><reserved>551 MiB</reserved>
			<used>{gpu.memory_mb} MiB</used><free>9000 MiB</free></fb_memory_usage>
		<utilization><gpu_util>{_figure(gpu.busy, "%")}</gpu_util><memory_util>3 %</memory_util>
			<encoder_util>N/A</encoder_util></utilization>
		<ecc_errors><volatile><sram_correctable>0</sram_correctable>
			<sram_uncorrectable_parity>{_figure(gpu.uncorrected)}</sram_uncorrectable_parity>
			<dram_uncorrectable>0</dram_uncorrectable></volatile>
			<aggregate><dram_uncorrectable>17</dram_uncorrectable></aggregate></ecc_errors>
		<clocks_{reasons}_reasons>{slowed}</clocks_{reasons}_reasons>
		<clocks><graphics_clock>{gpu.clock_mhz} MHz</graphics_clock>
			<sm_clock>{gpu.clock_mhz} MHz</sm_clock></clocks>
		<max_clocks><sm_clock>{gpu.clock_max_mhz} MHz</sm_clock></max_clocks>
		<processes>{processes}</processes>
	</gpu>
"""


def _figure(value: int, unit: str = "") -> str:
    return f"{value} {unit}".strip() if value >= 0 else "N/A"


def links(gpus: Sequence[Gpu]) -> str:
    """``nvidia-smi nvlink -e``: the errors on the first of two links."""
    lines = []
    for gpu in gpus:
        lines.append(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})")
        for link in range(2):
            errors = max(0, gpu.link_errors) if link == 0 else 0
            lines += [
                f"\t Link {link}: Replay Errors: {errors}",
                f"\t Link {link}: Recovery Errors: 0",
                f"\t Link {link}: CRC Errors: 0",
            ]
    return "\n".join(lines) + "\n"


def one(index: int, **figures: object) -> Gpu:
    """A healthy, busy GPU, but for these figures."""
    usual = {
        "uuid": f"GPU-{index:04d}-5f3c",
        "bus": f"0000:{index + 0x3B:02x}:00",
        "name": "NVIDIA H100 80GB HBM3",
        "busy": 100,
        "memory_mb": 71000,
        "memory_total_mb": 81559,
        "clock_mhz": 1980,
        "clock_max_mhz": 1980,
        "uncorrected": 0,
        "link_errors": 0,
    }
    return Gpu(index, **(usual | figures))  # type: ignore[arg-type]


def program(folder: Path, gpus: Sequence[Gpu]) -> Path:
    """A folder for PATH with a program of that name in it, which prints these GPUs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answer.xml").write_text(xml(gpus))
    (folder / "links.txt").write_text(links(gpus))
    script = folder / "nvidia-smi"
    script.write_text(
        f'#!/bin/sh\ncase "$1" in\n-q) cat {folder}/answer.xml;;\nnvlink) cat {folder}/links.txt;;\n'
        "*) exit 2;;\nesac\n"
    )
    script.chmod(0o755)
    return folder
