version: str
torch_version: str
python_version: str
compiler: str
library_sizes: dict[str, int]
