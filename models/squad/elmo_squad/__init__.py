"""The files of a trained task, found by its name: `elmo.load_task("squad")`."""
