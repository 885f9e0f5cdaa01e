// PyTorch's headers include this file, and use nothing of it in host code: c10::Half is PyTorch's own.
#pragma once
