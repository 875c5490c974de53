"""Errors of the user, all subclasses of `ElmoError`: the command line prints one line and exits with code 2.

A message says where, what was found, what was expected and what to do. Programming errors are ordinary exceptions.
"""

LONGEST = 4000  # characters of a message


class ElmoError(Exception):
    """Base class of all errors that this library explains to the user.

    What was found may be a value of any length: the middle of a long message is left out.
    """

    def __init__(self, message: str = "") -> None:
        half = LONGEST // 2
        super().__init__(message if len(message) <= LONGEST else f"{message[: half - 3]} … {message[-half:]}")


class ConfigError(ElmoError):
    """A wrong option, config field or command-line argument."""


class DataError(ElmoError):
    """A text, a vocabulary or an output file that cannot be read or written."""


class WeightsError(ElmoError):
    """Model files that are missing, damaged, or from different models."""


def no_softmax(model: object) -> WeightsError:
    """Return the error for a model that cannot predict words."""
    return WeightsError(
        f"{model}: has no softmax, so it predicts no words; published HDF5 files have none. `elmo finetune` trains one"
    )
