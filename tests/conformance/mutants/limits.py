"""Broken rules of ``probes/limits.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    *(
        Mutant(f"size-of-{kind}", "limits.TYPES", kind, "max_gib+1")
        for kind in ("gp2", "gp3", "io1", "io2", "st1", "sc1", "standard")
    ),
    *(
        Mutant(f"iops-of-{kind}", "limits.TYPES", kind, "max_iops+1")
        for kind in ("gp3", "io1", "io2")
    ),
    *(
        Mutant(f"iops-per-gib-of-{kind}", "limits.TYPES", kind, "max_iops_per_gib+1")
        for kind in ("gp3", "io1", "io2")
    ),
    Mutant(
        "iops-of-small-gp3",
        "limits.check_iops",
        "max(limits.min_iops, limits.max_iops_per_gib * size_gib)",
        "limits.max_iops_per_gib * size_gib",
    ),
    off("iops-required", "limits.check_iops", "limits.iops_required"),
    Mutant(
        "iops-of-other-types",
        "limits.check_iops",
        'if limits.max_iops == 0:\n        raise combination(f"The parameter iops is not supported for {volume_type} volumes.")',
        "if limits.max_iops == 0:\n        return",
    ),
    Mutant(
        "throughput-of-gp3",
        "limits.check_throughput",
        "throughput > GP3_MAX_THROUGHPUT:",
        "throughput > 3000:",
    ),
    Mutant(
        "throughput-per-iops",
        "limits.check_throughput",
        "if ratio > GP3_MAX_THROUGHPUT_PER_IOPS:",
        "if ratio > 0.5:",
    ),
    Mutant(
        "throughput-of-other-types",
        "limits.check_throughput",
        'if volume_type != "gp3":',
        'if volume_type == "st1":',
    ),
)
