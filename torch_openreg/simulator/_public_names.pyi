"""The public names that this folder adds, for type checkers."""

from .openreg import dry as dry
from .openreg import faults as faults
from .openreg import models as models
from .openreg import sanitizer as sanitizer
from .openreg.models import device_model as device_model
from .openreg.models import is_tf32_supported as is_tf32_supported
