"""A LINEAR PROBE: a softmax over classes, trained on fixed vectors; the epoch is chosen on dev."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from elmo.analysis.vectors import Array
from elmo.model.device import device_named

BATCH_SIZE = 512
LEARNING_RATE = 2e-3  # Adam's, falling linearly to a twentieth


class LinearProbe:
    """Vectors and classes of train, dev and test; every dimension is scaled to mean 0 and variance 1 in train."""

    def __init__(self, vectors: Sequence[Array], classes: Sequence[npt.NDArray[np.int64]], n_classes: int) -> None:
        device = device_named("auto")
        parts = [torch.from_numpy(part).to(device) for part in vectors]
        mean, spread = parts[0].mean(dim=0), parts[0].std(dim=0).clamp(min=1e-12)
        self.vectors = [(part - mean) / spread for part in parts]
        self.classes = [torch.from_numpy(part).to(device) for part in classes]
        self.n_classes = n_classes

    def train(self, epochs: int, seed: int) -> tuple[float, float]:
        """Return the accuracy on dev and on test of the epoch that is best on dev."""
        train, dev, test = self.vectors
        torch.manual_seed(seed)
        classifier = nn.Linear(train.shape[1], self.n_classes).to(train.device)
        optimizer = torch.optim.Adam(classifier.parameters(), lr=LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, epochs)
        best = -1.0, 0.0
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(train)).to(train.device), BATCH_SIZE):
                optimizer.zero_grad()
                loss: Tensor = functional.cross_entropy(classifier(train[rows]), self.classes[0][rows])
                torch.autograd.backward(loss)
                optimizer.step()
            schedule.step()
            with torch.no_grad():
                found = [
                    float((classifier(part).argmax(dim=1) == gold).float().mean())
                    for part, gold in ((dev, self.classes[1]), (test, self.classes[2]))
                ]
            if found[0] > best[0]:  # of epochs that are alike on dev, the first: nothing is chosen by test
                best = found[0], found[1]
        return best
