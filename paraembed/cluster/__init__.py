"""Jobs on Ray; the only folder that imports Ray. Variables that Ray reads at its import are set here, unless the user
set them.
"""

import os

from paraembed.process import LOCAL_RAY, RAY, set_environment

set_environment(RAY if "RAY_ADDRESS" in os.environ else RAY | LOCAL_RAY)
