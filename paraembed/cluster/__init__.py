"""Jobs on Ray, the only folder that imports it. What Ray reads at its import is set here, unless the user set it."""

import os

from paraembed.process import LOCAL_RAY, RAY, set_environment

set_environment(RAY if "RAY_ADDRESS" in os.environ else RAY | LOCAL_RAY)
