"""Jobs on Ray, the only folder that imports it; variables that Ray reads at import are set here, unless the user did."""

import os

from paraembed.process import LOCAL_RAY, RAY, set_environment

set_environment(RAY if "RAY_ADDRESS" in os.environ else RAY | LOCAL_RAY)
