"""An update to real bytes and back."""

from fedvitals.codecs.feedback import Feedback, Memory, Sent
from fedvitals.codecs.protocol import Codec, Update
from fedvitals.codecs.registry import (
    agreed,
    from_config,
    is_additive,
    names,
    parse,
    plain_bytes,
    register,
    share_of,
    with_share,
)

__all__ = [
    "Codec",
    "Feedback",
    "Memory",
    "Sent",
    "Update",
    "from_config",
    "names",
    "parse",
    "agreed",
    "is_additive",
    "plain_bytes",
    "register",
    "share_of",
    "with_share",
]
