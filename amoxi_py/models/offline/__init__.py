"""The offline model: needs no key and no network, and knows nothing of any app but its tools' schemas."""

from amoxi_py.models.offline.model import OfflineModel

__all__ = ["OfflineModel"]
