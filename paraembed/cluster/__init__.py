"""Jobs on Ray; the only folder that imports Ray. Variables that Ray reads at its import are set here, unless the user
set them.
"""

from paraembed.process import LOCAL_RAY, RAY, on_cluster, set_environment

set_environment(RAY if on_cluster() else RAY | LOCAL_RAY)
