"""The fixed text whose final state is the initial state of `state="warm"`, for models that store no warm state.

bilm-tf and AllenNLP start at zeros and carry the state from batch to batch, so that published vectors are computed from
the state after earlier sentences. This text brings a model into such a state, always the same.
"""

from collections.abc import Callable

from torch import Tensor

from elmo.model.lstm import State
from elmo.model.packing import Packing

TEXT = [
    "The committee met on Tuesday to discuss the new budget .",
    "She had never seen the sea before , and she stood there for a long time .",
    "Prices rose by 3.4 % in the third quarter , according to the report .",
    "He said that the results were better than expected .",
    "In 1912 the family moved to a small town near the border .",
    "What do you think we should do now ?",
    "The river is 240 kilometres long and flows into the North Sea .",
    '" I will be back before dark , " said the old man .',
    "Researchers found that the treatment reduced the risk by about half .",
    "The team won its last four games and finished second .",
    "Most of the houses in the village were built of stone .",
    "However , there is no evidence that it ever happened .",
    "The company , which has 1,200 employees , makes parts for aircraft .",
    "It was raining when they left the station .",
    "Many species of birds live in the forest during the summer .",
    "The president is expected to sign the agreement next week .",
]


Contextualize = Callable[[Tensor, Packing, State], tuple[list[Tensor], State]]  # as `BiLM.contextualize`


def warm_state(contextualize: Contextualize, vectors: list[Tensor], state: State) -> State:
    """Return the state after the text, (L, 2, 1, ·), from the token vectors (T, D) of each sentence."""
    for tokens in vectors:
        _, state = contextualize(tokens, Packing.of([len(tokens)]), state)
    return state
