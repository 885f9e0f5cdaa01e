"""A function of numpy on a list of tensors: `np.sum` over the layers' outputs converts each to numpy.

Seen in https://github.com/xiaxin1998/DHCN/issues/14
Says: can't convert openreg:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.
"""

import numpy as np
import torch

device = torch.accelerator.current_accelerator().type
layers = [torch.ones(2, device=device), torch.ones(2, device=device)]
np.sum(np.array(layers), 0)
