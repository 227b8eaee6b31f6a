"""Ray: the only folder that imports it. Its settings stand here, before any of it; what the user has set stays."""

import os

from paraembed.process import LOCAL_RAY, RAY, set_environment

set_environment(RAY if "RAY_ADDRESS" in os.environ else RAY | LOCAL_RAY)
