"""Small models trained by a compiled program (trainer.c), client by client; where it was compiled, the fastest way."""

from fedvitals.train.compiled.program import Program, program_of
from fedvitals.train.compiled.trainer import CompiledTrainer

__all__ = ["CompiledTrainer", "Program", "program_of"]
