"""An update to real bytes and back."""

from fedvitals.codecs.feedback import Feedback, Memory, Sent
from fedvitals.codecs.protocol import Codec, Update
from fedvitals.codecs.registry import from_config, names, parse, register, share_of, with_share

__all__ = [
    "Codec",
    "Feedback",
    "Memory",
    "Sent",
    "Update",
    "from_config",
    "names",
    "parse",
    "register",
    "share_of",
    "with_share",
]
