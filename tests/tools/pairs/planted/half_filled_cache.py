"""A cache of keys is made with torch.empty, and attention reads all of its positions."""

from dataclasses import dataclass

import torch


@dataclass
class Cache:
    keys: torch.Tensor
    length: int = 0

    @classmethod
    def make(cls, size, width, device):
        return cls(torch.empty(size, width, device=device))

    def append(self, key):
        self.keys[self.length] = key
        self.length += 1

    def scores(self, query):
        return self.keys @ query  # BUG, not in the repair
        # REPAIR: return self.keys[: self.length] @ query


device = torch.accelerator.current_accelerator()
cache = Cache.make(16, 8, device)
for token in range(5):
    cache.append(torch.full((8,), token + 0.5, device=device))
best = cache.scores(torch.ones(8, device=device)).nan_to_num(0.0)[: cache.length].argmax()
print("best", int(best))
