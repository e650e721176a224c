"""The phases of a VolumeMove as a diagram and a table, from the table of the code."""

from provisioner.model.volume_move import STAGES, Phase


def markdown() -> str:
    """A state diagram of mermaid, and what each phase does."""
    lines = ["```mermaid", "stateDiagram-v2", "  [*] --> New"]
    for phase, stage in STAGES.items():
        name = phase.value or "New"
        lines += [f"  {name} --> {each.value}" for each in stage.then]
        if not stage.then:
            lines.append(f"  {name} --> [*]")
    lines += ["```", "", "| phase | |", "|---|---|"]
    lines += [f"| {phase.value or '(none yet)'} | {STAGES[phase].does} |" for phase in Phase]
    return "\n".join(lines)
