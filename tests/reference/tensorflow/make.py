"""Write the checkpoints in this folder with TensorFlow (2.21): python make.py FOLDER

    sharded/    names of TensorFlow 1.2 and later, three data files, variables in parts, an optimizer's slots
    old/        names before TensorFlow 1.2, one data file, one layer of LSTMs

The values are a formula of the variable's name and the place, so that a test can compute them again.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

v1 = tf.compat.v1

OPTIONS = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 2},
        "filters": [[1, 2], [3, 3]],
        "max_characters_per_token": 20,
        "n_characters": 261,
        "n_highway": 1,
    },
    "lstm": {
        "cell_clip": 3,
        "dim": 6,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 4,
        "use_skip_connections": True,
    },
    "n_tokens_vocab": 130,
}


def values(name: str, shape: list[int]) -> np.ndarray[Any, Any]:
    """Multiples of 2⁻¹⁶ in [−0.5, 0.5)."""
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64) * np.uint64(40503) + np.uint64(crc32(name.encode()))
    return ((numbers % np.uint64(65536)).astype(np.float32) / 65536 - 0.5).reshape(shape)


def shapes(options: dict[str, Any], old: bool) -> dict[str, list[int]]:
    cnn, lstm = options["char_cnn"], options["lstm"]
    dim, cell, n_words = lstm["projection_dim"], lstm["dim"], options["n_tokens_vocab"]
    filters = sum(count for _, count in cnn["filters"])
    found = {"char_embed": [261, cnn["embedding"]["dim"]]}
    for k, (width, count) in enumerate(cnn["filters"]):
        found |= {f"CNN/W_cnn_{k}": [1, width, cnn["embedding"]["dim"], count], f"CNN/b_cnn_{k}": [count]}
    for k in range(cnn["n_highway"]):
        for part in ("carry", "transform"):
            found |= {f"CNN_high_{k}/W_{part}": [filters, filters], f"CNN_high_{k}/b_{part}": [filters]}
    found |= {"CNN_proj/W_proj": [filters, dim], "CNN_proj/b_proj": [dim]}
    for direction in (0, 1):
        for layer in range(lstm["n_layers"]):
            cells = f"MultiRNNCell/Cell{layer}/" if old else f"multi_rnn_cell/cell_{layer}/"
            cells = cells if lstm["n_layers"] > 1 else ""
            where = f"RNN_{direction}/{'RNN' if old else 'rnn'}/{cells}{'LSTMCell' if old else 'lstm_cell'}"
            names = ("W_0", "B", "W_P_0") if old else ("kernel", "bias", "projection/kernel")
            sizes = ([2 * dim, 4 * cell], [4 * cell], [cell, dim])
            found |= {f"{where}/{name}": size for name, size in zip(names, sizes, strict=True)}
    return found | {"softmax/W": [n_words, dim], "softmax/b": [n_words]}


def write(folder: Path, options: dict[str, Any], old: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps(options) + "\n")
    with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
        step = v1.get_variable("global_step", [], initializer=v1.constant_initializer(7), trainable=False)
        v1.get_variable("train_perplexity", [], initializer=v1.constant_initializer(0.0), trainable=False)
        for number, (name, shape) in enumerate(shapes(options, old).items()):
            parts = None
            if not old and name == "softmax/W":
                parts = v1.fixed_size_partitioner(4, axis=0)  # 130 rows: starts of one and of two bytes
            if not old and name.endswith("kernel"):
                parts = v1.fixed_size_partitioner(3, axis=1)
            with tf.device(f"/cpu:{0 if old else number % 2}"), v1.variable_scope("lm", use_resource=False):
                # A partitioned variable takes its values from a function of the part's shape and place.
                whole = values(name, shape)

                def initial(size, dtype=None, partition_info=None, whole=whole):  # type: ignore[no-untyped-def]
                    start = partition_info.var_offset if partition_info is not None else [0] * len(size)
                    return tf.constant(whole[tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))])

                v1.get_variable(name, shape, initializer=initial, partitioner=parts)
        if not old:
            loss = tf.add_n([tf.reduce_sum(variable) for variable in v1.trainable_variables()])
            v1.train.AdagradOptimizer(0.2, initial_accumulator_value=1.0).minimize(loss)
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver(sharded=not old)
        saver.save(session, str(folder / "model.ckpt"), global_step=step, write_meta_graph=False)


if __name__ == "__main__":
    v1.disable_eager_execution()
    write(Path(sys.argv[1]) / "sharded", OPTIONS, old=False)
    one_layer = OPTIONS | {"lstm": OPTIONS["lstm"] | {"n_layers": 1}}
    write(Path(sys.argv[1]) / "old", one_layer, old=True)
