"""From a configuration to the sources that it names; each is imported only where it is used."""

from discovery.config import Discovery, SourceSection
from discovery.looks import Looker
from discovery.source import Source


def sources_of(config: Discovery) -> dict[str, Source]:
    """Return the sources by name, in the order in which they count.

    Raises:
        SourceError: when one cannot be used here: its client is not installed, or has nothing to ask.
    """
    found: dict[str, Source] = {}
    for section in config.sources:
        source = _source(section, config)
        name, number = source.name, 1
        while name in found:
            number += 1
            name = f"{source.name} ({number})"
        found[name] = source
    return found


def looker_of(config: Discovery) -> Looker:
    """Return how hosts are looked at."""
    gate = config.gate
    return Looker(
        gate.check,
        gate.port,
        gate.timeout_s,
        gate.identity,
        gate.disk_bytes,
        gate.folder,
        gate.command,
        pulse_s=gate.pulse_s,
    )


def _source(section: SourceSection, config: Discovery) -> Source:
    slots = config.slots
    if section.static is not None:
        from discovery.static import Static

        return Static(section.static, slots)
    if section.file is not None:
        from discovery.file import File

        return File(section.file, slots)
    if section.command is not None:
        from discovery.command import Command

        return Command(section.command, slots, config.folder)
    if section.slurm is not None:
        from discovery.slurm import Slurm

        return Slurm(section.slurm.job, section.slurm.slots)
    if section.ray is not None:
        from discovery.ray import Ray

        return Ray(section.ray.address, section.ray.resource, section.ray.per_slot)
    assert section.kubernetes is not None
    from discovery.kubernetes import Cluster, Slots, of_pods, of_service

    k = section.kubernetes
    cluster = Cluster(k.namespace, k.context, k.kubeconfig)
    if k.selector is not None:
        return of_pods(k.selector, cluster, Slots(k.slots, k.slots_annotation, k.slots_resource), k.name_is)
    assert k.service is not None
    return of_service(k.service, cluster, k.slots)
