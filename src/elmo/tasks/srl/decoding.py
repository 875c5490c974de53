"""SCORES ─▶ THE BEST LEGAL TAGS: Viterbi's algorithm over BIO tags, where I-X follows only B-X or I-X.

scores (B, T, 1 + 2R) of O, B- of R roles, I- of R roles ─▶ the tags of each sequence

He et al. (2017) have no other scores than those of single tags, so what may follow a tag is all that connects them:
anything may come before O and B-X, and only two tags before I-X. So a step compares 3R numbers, not (1 + 2R)².
"""

import torch
from torch import Tensor


@torch.no_grad()
def best_tags(scores: Tensor, mask: Tensor) -> list[list[int]]:
    """Return the numbers of the tags with the highest total score among legal sequences, for each sequence."""
    n_roles = (scores.shape[2] - 1) // 2
    inside = 1 + n_roles  # the first of the I- tags
    total = scores[:, 0].clone()  # (B, 1 + 2R) of the best sequence up to token t that ends in each tag
    total[:, inside:] = -torch.inf
    of_role = torch.arange(n_roles, device=scores.device)
    came_from = []
    for t in range(1, scores.shape[1]):
        best, tag = total.max(dim=1, keepdim=True)
        best_inside = torch.maximum(total[:, 1:inside], total[:, inside:])
        role_tag = of_role + torch.where(total[:, 1:inside] >= total[:, inside:], 1, inside)
        came_from.append(torch.cat([tag.expand(-1, inside), role_tag], dim=1))
        step = torch.cat([best.expand(-1, inside), best_inside], dim=1) + scores[:, t]
        total = torch.where(mask[:, t, None], step, total)
    tag = total.argmax(dim=1)
    path = [tag]
    for t in range(len(came_from), 0, -1):
        before = came_from[t - 1].gather(1, tag[:, None])[:, 0]
        tag = torch.where(mask[:, t], before, tag)
        path.append(tag)
    paths = torch.stack(path[::-1], dim=1).tolist()
    return [tags[:length] for tags, length in zip(paths, mask.sum(dim=1).tolist(), strict=True)]
