"""`numpy()` without `cpu()`: an image of the device is handed to OpenCV.

Seen in https://github.com/chflame163/ComfyUI_FaceSimilarity/issues/10
Says: can't convert openreg:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.
"""

import torch

device = torch.accelerator.current_accelerator().type
image = torch.zeros(8, 8, 3, device=device)
image.numpy()
