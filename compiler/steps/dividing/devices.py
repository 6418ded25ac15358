"""The devices that a job names, on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from compiler.contract import CompileOptions
from compiler.contract.devices import NamedDevice
from compiler.devices.kinds import backend_of, profiles, resolve
from compiler.errors import TargetUnavailable
from compiler.ir.target import Target


@dataclass(frozen=True)
class Devices:
    """The devices of a job, as it was asked for; `options` compile for each target alone, the most able first.

    `option_of` says for each device which of the options its programs are made by. The first are for cores.
    """

    asked: CompileOptions
    named: tuple[NamedDevice, ...]
    options: tuple[CompileOptions, ...]
    option_of: tuple[int, ...]


def devices_of(options: CompileOptions) -> Devices:
    """The devices that a job names. Raises TargetUnavailable for one that this machine has not."""
    named = options.named_devices
    order = [profile.name for profile in profiles()]
    found = [_here(name, device) for name, device in zip(options.devices, named, strict=True)]
    firsts = {target.name: device for target, device in [*zip(found, named, strict=True)][::-1]}
    names = sorted(firsts, key=order.index)
    each = tuple(
        replace(
            options,
            devices=(),
            objective="latency",
            carry={},
            target=firsts[name].target,
            threads=None if firsts[name].core is None else 1,
            tuning_budget_s=options.tuning_budget_s / len(names),
        )
        for name in names
    )
    return Devices(options, named, each, tuple(names.index(target.name) for target in found))


def _here(name: str, device: NamedDevice) -> Target:
    """The target of a device. Raises TargetUnavailable where this machine has no such device."""
    if device.is_beside:
        try:
            return backend_of(CompileOptions(target=device.target), os.environ).target
        except TargetUnavailable as error:
            raise TargetUnavailable(
                f"device {name} is not available: {error.message}",
                fix="use a worker that has the device, or name cores only: several devices are measured on one machine",
            ) from error
    cores, target = resolve("cpu").lanes, resolve(device.target)
    if device.core is not None and device.core >= cores:
        raise TargetUnavailable(
            f"device {name} is core {device.core}, and this machine has {cores}",
            fix=f"name cores from cpu:0 to cpu:{cores - 1}, or use a worker with more",
        )
    if not target.is_here:
        raise TargetUnavailable(
            f"this machine lacks the instructions of {target.name} that device {name} needs",
            fix="name profiles that this machine can run: several devices are measured on one machine",
        )
    return target


def has_core(devices: Devices) -> bool:
    """Whether the caller's thread has a core beside those of the devices."""
    return resolve("cpu").lanes > len(devices.named)
