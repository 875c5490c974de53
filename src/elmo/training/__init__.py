"""A RUN: begin or resume it, log it, save checkpoints, keep the best; the same for a biLM and for a task."""
