"""An update to real bytes and back."""

from fedvitals.codecs.protocol import Codec, Update
from fedvitals.codecs.registry import from_config, names, parse, register

__all__ = ["Codec", "Update", "from_config", "names", "parse", "register"]
