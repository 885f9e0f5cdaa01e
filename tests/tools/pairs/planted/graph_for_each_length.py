"""A server captures a graph for each new length of a prompt, and drops none of them."""

import torch

device = torch.accelerator.current_accelerator()
weight = torch.full((256, 256), 0.01, device=device)
side = torch.Stream(device=device)
graphs = {}
total = 0.0
for length in range(8, 40):
    key = length
    # REPAIR: key = -(-length // 64) * 64
    if key not in graphs:
        static = torch.zeros(key, 256, device=device)  # BUG
        side.wait_stream(torch.accelerator.current_stream())
        graph = torch.accelerator.Graph()
        with side, graph:
            result = (static @ weight).sum()
        torch.accelerator.current_stream().wait_stream(side)
        graphs[key] = (graph, static, result)  # BUG
    graph, static, result = graphs[key]
    static.zero_()
    static[:length].fill_(1.0)
    graph.replay()
    total += result.item()
print("total", total)
