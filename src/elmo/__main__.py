"""`python -m elmo` is the command `elmo`."""

from elmo.cli import main

main()
