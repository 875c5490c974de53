"""One root for every mistake a user can make: caught once by the command line, printed as one line, exit code 2.

A message says where, what was found, what was expected and what to do. Programmers' mistakes stay plain exceptions.
"""


class ElmoError(Exception):
    """Anything this library refuses with an explanation."""


class ConfigError(ElmoError):
    """An option, a config field or a command-line argument that cannot be used."""


class DataError(ElmoError):
    """A text, a vocabulary or an output file that cannot be read or written."""


class WeightsError(ElmoError):
    """Model files that are missing, damaged, or do not belong together."""


def no_softmax(model: object) -> WeightsError:
    """The error for a model that cannot predict words."""
    return WeightsError(
        f"{model}: has no softmax, so it predicts no words; published HDF5 files have none. `elmo finetune` trains one"
    )
