"""A RUN: begin or resume it, log it, save checkpoints, keep the best. The same code for a biLM and for a task."""
