"""The tests' own place for what the program keeps (packed weights, history, compiled kernels): beside the program, not with the user's."""
import os

# Where models are: the user's cache, whatever a test of ours that started this one has set since.
USER = os.environ.setdefault("ROSE_E2E_USER_CACHE", os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"))


def take(rose):
    os.environ["XDG_CACHE_HOME"] = os.path.join(os.path.dirname(os.path.abspath(rose)), "e2e-cache")
